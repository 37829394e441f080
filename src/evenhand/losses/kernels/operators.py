"""The fused kernels as an operator of torch, `torch.ops.evenhand.complement_cross_entropy`: what `torch.compile` keeps.

In eager mode the kernels are called directly, since an operator written in Python costs more than a small loss.
"""

from typing import Any, cast

import torch
from torch import Tensor

from evenhand.losses._input import check_finite
from evenhand.losses.kernels.fused import (
    Terms,
    check_terms,
    compute,
    differentiable_gradient,
    refuse_learned,
    scaled_gradient,
)


@torch.library.custom_op("evenhand::complement_cross_entropy", mutates_args=())
def complement_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    offset: Tensor | None,
    margin: Tensor | None,
    shares: Tensor | None,
    share: float,
    with_cross_entropy: bool,
    ignore_index: int,
    reduction: str,
    with_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient, which is empty if it was not requested; the arguments are those of `Terms`."""
    factor = share if shares is None else shares
    terms = Terms(target, weight, offset, margin, factor, with_cross_entropy, ignore_index, reduction)
    check_terms(logits, terms)
    check_finite(shares)
    loss, gradient = compute(logits, terms, with_gradient)
    return loss, logits.new_empty(0) if gradient is None else gradient


@complement_cross_entropy.register_fake
def _(logits: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    target, weight, offset, margin, shares, share, *settings, with_gradient = arguments
    terms = Terms(target, weight, offset, margin, share if shares is None else shares, *settings)
    check_terms(logits, terms)
    loss = logits.new_empty(logits.shape[0] if terms.reduction == "none" else (), dtype=torch.float32)
    return loss, logits.new_empty(logits.shape if with_gradient else 0)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    refuse_learned(ctx.needs_input_grad[1:])
    *tensors, ctx.share, ctx.with_cross_entropy, ctx.ignore_index, ctx.reduction, ctx.with_gradient = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, output[1])


def _backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    logits, target, weight, offset, margin, shares, gradient = ctx.saved_tensors
    if torch.is_grad_enabled() or not ctx.with_gradient:
        share = ctx.share if shares is None else shares
        settings = (ctx.with_cross_entropy, ctx.ignore_index, ctx.reduction)
        gradient = differentiable_gradient(logits, Terms(target, weight, offset, margin, share, *settings), grad_loss)
    else:
        gradient = scaled_gradient(gradient, grad_loss)
    return gradient, *[None] * 10


complement_cross_entropy.register_autograd(_backward, setup_context=_remember)


def operator_loss(logits: Tensor, terms: Terms, with_gradient: bool) -> Tensor:
    """Return the loss by the operator."""
    target, weight, offset, margin, share, *settings = terms
    shares, number = (share, 0.0) if isinstance(share, Tensor) else (None, share)
    results = complement_cross_entropy(
        logits, target, weight, offset, margin, shares, number, *settings, with_gradient=with_gradient
    )
    return cast(Tensor, results[0])
