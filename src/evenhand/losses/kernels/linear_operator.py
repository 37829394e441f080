"""Linear layer and loss as an operator of torch, `torch.ops.evenhand.linear_complement_cross_entropy`, to compile."""

from typing import Any, cast

import torch
from torch import Tensor

from evenhand.losses._input import check_finite
from evenhand.losses.kernels.fused import refuse_learned
from evenhand.losses.kernels.linear import Settings, check_linear, loss_and_gradients, refuse_second_derivative

# Written out, as torch 2.5 does not infer the types `list[bool]` and `list[Tensor]`.
SCHEMA = (
    "(Tensor features, Tensor weight, Tensor? bias, Tensor target, Tensor? class_weight, Tensor? offset, "
    "Tensor? margin, Tensor? shares, float share, int ignore_index, str reduction, bool[] wanted) -> Tensor[]"
)


@torch.library.custom_op("evenhand::linear_complement_cross_entropy", mutates_args=(), schema=SCHEMA)
def linear_complement_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    class_weight: Tensor | None,
    offset: Tensor | None,
    margin: Tensor | None,
    shares: Tensor | None,
    share: float,
    ignore_index: int,
    reduction: str,
    wanted: list[bool],
) -> list[Tensor]:
    """Return the loss and its gradient by features, weight and bias; those that are not wanted are empty."""
    factor = share if shares is None else shares
    settings = Settings(target, class_weight, offset, margin, factor, ignore_index, reduction)
    _check(features, weight, bias, settings, wanted)
    check_finite(shares)
    loss, *gradients = loss_and_gradients(features, weight, bias, settings, tuple(wanted))
    given = zip(gradients, wanted, strict=True)
    return [loss, *(x if want and x is not None else loss.new_empty(0) for x, want in given)]


def _check(features: Tensor, weight: Tensor, bias: Tensor | None, settings: Settings, wanted: list[bool]) -> None:
    check_linear(features, weight, bias, settings)
    if len(wanted) != 3:
        raise ValueError(f"wanted must say of features, weight and bias whether to differentiate them, got {wanted}.")


@linear_complement_cross_entropy.register_fake
def _(features: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> list[Tensor]:
    target, class_weight, offset, margin, shares, share, ignore_index, reduction, wanted = rest
    factor = share if shares is None else shares
    settings = Settings(target, class_weight, offset, margin, factor, ignore_index, reduction)
    _check(features, weight, bias, settings, wanted)
    dtype = torch.promote_types(weight.dtype, torch.float32)
    given = zip((features, weight, bias), wanted, strict=True)
    loss = features.new_empty((), dtype=dtype)
    return [loss, *(x.new_empty(x.shape) if want and x is not None else loss.new_empty(0) for x, want in given)]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    needed = ctx.needs_input_grad
    refuse_learned(needed[3:])
    ctx.wanted, ctx.count = inputs[-1], len(inputs)
    if any(need and not want for need, want in zip(needed, ctx.wanted, strict=False)):
        raise ValueError(f"features, weight and bias that require grad must be wanted, got wanted={ctx.wanted}.")
    ctx.save_for_backward(*output[1:])


def _backward(ctx: Any, gradients: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    refuse_second_derivative()
    (grad_loss, *_) = gradients
    given = zip(ctx.saved_tensors, ctx.wanted, strict=True)
    scaled = [x * grad_loss.to(x.dtype) if want and grad_loss is not None else None for x, want in given]
    return *scaled, *[None] * (ctx.count - 3)


linear_complement_cross_entropy.register_autograd(_backward, setup_context=_remember)


def operator_loss(features: Tensor, weight: Tensor, bias: Tensor | None, settings: Settings) -> Tensor:
    """Return the loss by the operator."""
    *vectors, share, ignore_index, reduction = settings
    shares, number = (share, 0.0) if isinstance(share, Tensor) else (None, share)
    wanted = [torch.is_grad_enabled() and x is not None and x.requires_grad for x in (features, weight, bias)]
    results = linear_complement_cross_entropy(
        features, weight, bias, *vectors, shares, number, ignore_index, reduction, wanted
    )
    return cast(Tensor, results[0])
