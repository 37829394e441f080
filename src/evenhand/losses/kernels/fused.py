"""Complement cross entropy by a fused kernel: loss, reduction and gradient in one call."""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch._C import _get_tracing_state as tracing_state
from torch._C import _len_torch_dispatch_stack as dispatch_modes
from torch.compiler import is_compiling

from evenhand.losses._complement import graph_is_kept, transforms_active
from evenhand.losses._formula import differentiable
from evenhand.losses.kernels import native
from evenhand.losses.kernels.backend import chosen

_TENSORS = (Tensor, torch.nn.Parameter)


class Terms(NamedTuple):
    """What is asked of logits (N, K): [H +] share * C for class indices, reduced.

    Attributes:
        target: class indices, (N).
        weight: a factor for each class, (K).
        offset: what H adds to the logits, (K).
        margin: what H takes off the logit of a class where it is the correct one, (K).
        share: the factor of the complement entropy C, one for all or one a class, (K).
        with_cross_entropy: add the cross entropy H.
        ignore_index: rows with this target count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    target: Tensor
    weight: Tensor | None
    offset: Tensor | None
    margin: Tensor | None
    share: float | Tensor
    with_cross_entropy: bool
    ignore_index: int
    reduction: str


def is_fused(input: Tensor, target: Tensor, reduction: str) -> bool:
    """Tell whether a kernel takes these tensors as they are. It is asked at every call, so it asks little."""
    return (
        not is_compiling()
        and chosen.cpu == "native"
        and type(input) in _TENSORS
        and isinstance(target, Tensor)
        and input.dim() == 2
        and target.dim() == 1
        and input.dtype in native.DTYPES
        and target.dtype is torch.int64
        and len(target) == len(input)
        and input.is_cpu
        and target.is_cpu
        and input.size(1) > 1
        and reduction in native.REDUCTIONS
        and not input.is_neg()
        and not transforms_active()
        and not dispatch_modes()
        and not tracing_state()
    )


def fused_loss(input: Tensor, terms: Terms) -> Tensor | None:
    """Return the loss of what `is_fused`, of the input's dtype or float32 under autocast; or None if no kernel can say.

    A kernel cannot where a target is no class, where a vector of the classes is of another kind than float32 or is to
    be differentiated itself, and where an offset is too wide.
    """
    share = terms.share if isinstance(terms.share, Tensor) else None
    if any(x is not None and not _is_plain(x, input.size(1)) for x in (*terms[1:4], share)):
        return None
    keep = input.requires_grad and torch.is_grad_enabled()
    done = native.run(input, *terms, with_gradient=keep)
    if done is None:
        return None
    loss = cast(Tensor, _Fused.apply(input, terms, done)) if keep else done[0]
    return loss if input.dtype is torch.float32 or torch.is_autocast_enabled("cpu") else loss.to(input.dtype)


def _is_plain(vector: Tensor, classes: int) -> bool:
    return (
        isinstance(vector, Tensor)
        and vector.shape == (classes,)
        and vector.dtype is torch.float32
        and vector.is_cpu
        and not vector.requires_grad
    )


class _Fused(torch.autograd.Function):
    """A loss that is known already, with its gradient kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, terms: Terms, done: tuple[Tensor, Tensor]) -> Tensor:
        ctx.terms = terms
        loss, gradient = done
        ctx.save_for_backward(input, gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        logits, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():
            return differentiable_gradient(logits, ctx.terms, grad_loss), None, None
        return scaled(gradient, grad_loss), None, None


def scaled(gradient: Tensor, grad_loss: Tensor) -> Tensor:
    """Scale a kept gradient by that of its loss, () or (N): in its place, unless it will be asked for again."""
    scale = grad_loss.unsqueeze(1) if grad_loss.dim() else grad_loss
    if not graph_is_kept():
        try:
            if not grad_loss.dim() and grad_loss.is_cpu and grad_loss.item() == 1:
                return gradient  # as `loss.backward()` asks for it: one pass over memory less
            return gradient.mul_(scale)
        except RuntimeError:  # many upstream gradients at a time (`is_grads_batched`) do not fit in the place of one
            pass
    return (gradient * scale).to(gradient.dtype)


def differentiable_gradient(input: Tensor, terms: Terms, grad_loss: Tensor) -> Tensor:
    """Work the gradient out again in operations of torch, to be differentiated once more."""
    valid = terms.target != terms.ignore_index
    index = torch.where(valid, terms.target, 0)
    factor = valid.to(torch.float32) if terms.weight is None else torch.where(valid, terms.weight[index], 0.0)
    if terms.reduction == "mean":
        grad_loss = grad_loss / factor.sum()
    offset = None if terms.offset is None else terms.offset.unsqueeze(0)
    margin = None if terms.margin is None else terms.margin[index]
    share = terms.share[index] if isinstance(terms.share, Tensor) else terms.share
    _, gradient = differentiable(input, index, share, terms.with_cross_entropy, offset, margin, 0)
    return (gradient * (grad_loss * factor).unsqueeze(1)).to(input.dtype)
