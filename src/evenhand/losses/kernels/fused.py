"""Complement cross entropy by a fused kernel: loss, reduction and gradient in one call."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _get_tracing_state as tracing_state
from torch._C import _len_torch_dispatch_stack as dispatch_modes
from torch.compiler import is_compiling

from evenhand.losses._complement import graph_is_kept, transforms_active
from evenhand.losses._formula import differentiable, loss_and_gradient
from evenhand.losses._input import (
    check,
    check_device,
    check_number,
    check_per_class,
    check_stored,
    class_indices,
    weigh,
)
from evenhand.losses.kernels import native
from evenhand.losses.kernels.backend import chosen

_TENSORS = (Tensor, torch.nn.Parameter)
_REDUCTIONS = ("mean", "sum", "none")  # a tuple, in which anything can be looked for

# With a smaller share the complement entropy does not change the loss in any precision.
NEGLIGIBLE = 1e-30


class Terms(NamedTuple):
    """The settings of the loss of logits (N, K): [H +] share * C for class indices, reduced.

    Attributes:
        target: class indices, (N).
        weight: a weight per class, (K).
        offset: added to the logits in H, (K).
        margin: subtracted in H from the logit of a class where it is the correct one, (K).
        share: the factor of the complement entropy C, a number or one per class, (K).
        with_cross_entropy: add the cross entropy H.
        ignore_index: rows with this target are ignored.
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
    """Return whether a kernel takes these tensors as they are; called for every loss, so all checks are fast."""
    return (
        type(input) in _TENSORS
        and type(target) in _TENSORS
        and (
            chosen.cpu != "eager" and target.is_cpu
            if input.is_cpu
            else chosen.gpu != "eager" and input.is_cuda and target.device == input.device
        )
        and input.dim() == 2
        and target.dim() == 1
        and input.dtype in native.DTYPES
        and target.dtype is torch.int64
        and (classes := input.size(1)) > 1
        and target.numel() * classes == input.numel()  # as many rows: to ask for a size takes three times as long
        and reduction in _REDUCTIONS
        and (is_compiling() or not (transforms_active() or input.is_neg() or dispatch_modes() or tracing_state()))
    )


def fused_loss(input: Tensor, terms: Terms) -> Tensor | None:
    """Return the loss of tensors that are `is_fused`, of the input's dtype or float32 under autocast.

    Returns None for vectors per class that no kernel takes (not float32, or requiring a gradient), and for a share of
    0, where there is no complement to compute.
    """
    target, weight, offset, margin, share, with_cross_entropy, ignore_index, reduction = terms
    if isinstance(share, Tensor):
        share = share.to(torch.float32)
        if not _is_plain(share, input, input.size(1)):
            return None
        terms = terms._replace(share=share)
    elif -NEGLIGIBLE < share < NEGLIGIBLE:
        return None
    if weight is not None or offset is not None or margin is not None:
        classes = input.size(1)
        for vector in (weight, offset, margin):
            if vector is not None and not _is_plain(vector, input, classes):
                return None
    keep = input.requires_grad and torch.is_grad_enabled()
    if is_compiling():
        from evenhand.losses.kernels.operators import operator_loss

        loss = operator_loss(input, terms, keep)
    else:
        done = None
        if chosen.cpu == "native" and input.is_cpu:  # as `compute` does, without the time of a call
            try:
                done = native.run(
                    input, target, weight, offset, margin, share, with_cross_entropy, ignore_index, reduction, keep
                )
            except RuntimeError:  # of tensors without plain memory: sparse, nested, quantised
                check_terms(input, terms)
                raise
        done = done or compute(input, terms, keep)
        loss = _differentiable(input, terms, done) if keep else done[0]
    return (
        loss if input.dtype is torch.float32 or torch.is_autocast_enabled(input.device.type) else loss.to(input.dtype)
    )


def check_terms(logits: Tensor, terms: Terms) -> None:
    """Refuse what no kernel takes, for operators: they can be called with anything, and kernels check no shapes."""
    classes = check(logits, terms.target, terms.weight, terms.reduction)
    if logits.dim() != 2 or logits.dtype not in native.DTYPES or terms.target.dtype is not torch.int64:
        raise ValueError(
            f"logits must be (N, K) in float32 or bfloat16 and target int64 (N), got {logits.dtype} of shape "
            f"{tuple(logits.shape)} and {terms.target.dtype} of shape {tuple(terms.target.shape)}."
        )
    if not isinstance(terms.share, Tensor):
        check_number(terms.share, "share")
    for name, value in zip(Terms._fields, terms, strict=True):
        if not isinstance(value, Tensor):
            continue
        if name != "target":
            check_per_class(value, name, classes)
            if value.dtype is not torch.float32:
                raise ValueError(f"{name} must be float32, got {value.dtype}.")
        check_device(value, name, logits.device)


def refuse_learned(learned: Iterable[bool]) -> None:
    """Refuse vectors of the classes that are to be differentiated, where they would not be."""
    if any(learned):
        raise ValueError(
            "weight, offset, margin and share are not differentiated here, got one that requires grad: "
            "use complement_cross_entropy of the logits, or detach it."
        )


def _is_plain(vector: Tensor, input: Tensor, classes: int) -> bool:
    return (
        type(vector) in _TENSORS
        and vector.dim() == 1
        and vector.numel() == classes
        and vector.dtype is torch.float32
        and (vector.is_cpu if input.is_cpu else vector.device == input.device)
        and not vector.requires_grad
    )


def compute(
    logits: Tensor, terms: Terms, with_gradient: bool, *, in_place: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return the loss, () or (N), and optionally its gradient, (N, K), in the logits' dtype.

    With `in_place`, the gradient overwrites the logits, which must be contiguous.
    """
    if (chosen.cpu if logits.is_cpu else chosen.gpu) == "triton":
        from evenhand.losses.kernels import gpu

        _check_stored(logits, terms)
        if logits.is_cpu:
            class_indices(terms.target, logits.size(1), terms.ignore_index)
        return gpu.run(logits, terms, with_gradient=with_gradient)
    if logits.is_cpu and chosen.cpu == "native" and logits.dtype in native.DTYPES:
        done = native.run(logits, *terms, with_gradient, in_place=in_place)
        if done is not None:
            return done
    return _by_torch(logits.detach(), terms, with_gradient)


def _check_stored(logits: Tensor, terms: Terms) -> None:
    for name, value in zip(("input", *Terms._fields), (logits, *terms), strict=True):
        check_stored(value, name)


def _by_torch(logits: Tensor, terms: Terms, with_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """Compute the same with torch operations: for what a kernel does not report, such as an invalid target."""
    _check_stored(logits, terms)
    index, valid = class_indices(terms.target, logits.size(1), terms.ignore_index)
    share, margin, offset = _for_rows(terms, index)
    rows, gradient = loss_and_gradient(logits, index, share, terms.with_cross_entropy, offset, margin, 0, with_gradient)
    rows, total = weigh(rows, index, valid, terms.weight)
    if gradient is not None:
        scale = torch.ones_like(rows) if terms.weight is None else terms.weight[index]
        scale = scale if valid is None else torch.where(valid, scale, 0.0)
        divisor = rows.numel() if total is None else total
        gradient = (gradient * (scale / divisor if terms.reduction == "mean" else scale)[:, None]).to(logits.dtype)
        gradient = gradient if valid is None else gradient.masked_fill_(~valid[:, None], 0)  # even if it is undefined
    if terms.reduction == "mean":
        return rows.mean() if total is None else rows.sum() / total, gradient
    return rows.sum() if terms.reduction == "sum" else rows, gradient


def _for_rows(terms: Terms, index: Tensor) -> tuple[float | Tensor, Tensor | None, Tensor | None]:
    """Return share, margin and offset per row, given the class of each row."""
    return (
        terms.share[index] if isinstance(terms.share, Tensor) else terms.share,
        None if terms.margin is None else terms.margin[index],
        None if terms.offset is None else terms.offset.unsqueeze(0),
    )


class _Fused(torch.autograd.Function):
    """A loss that is already computed, with its gradient saved for the backward pass."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, terms: Terms, done: tuple[Tensor, Tensor]) -> Tensor:
        ctx.settings = terms[4:]
        loss, gradient = done
        ctx.save_for_backward(input, gradient, *terms[:4])  # what the caller may change: to unpack it is to check it
        return loss

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            return differentiable_gradient(saved[0], Terms(*saved[2:], *ctx.settings), grad_loss), None, None
        return _scaled(saved[1], grad_loss), None, None


# Skips the first part of `Function.apply`, which handles `torch.func` transforms: none is active here.
_differentiable: Callable[[Tensor, Terms, tuple[Tensor, Tensor | None]], Tensor] = super(
    torch.autograd.Function, _Fused
).apply


def _scaled(gradient: Tensor, grad_loss: Tensor) -> Tensor:
    """Scale a saved gradient by that of its loss, () or (N): in place, unless the graph is kept."""
    if not graph_is_kept():
        try:
            if not grad_loss.dim() and grad_loss.is_cpu and grad_loss.item() == 1:
                return gradient  # as in `loss.backward()`: saves a pass over memory
            return gradient.mul_(grad_loss.unsqueeze(1) if grad_loss.dim() else grad_loss)
        except RuntimeError:  # several upstream gradients (`is_grads_batched`) do not fit in place
            pass
    return scaled_gradient(gradient, grad_loss)


def scaled_gradient(gradient: Tensor, grad_loss: Tensor) -> Tensor:
    """Return a gradient times that of its loss, () or (N), as a new tensor."""
    check_stored(grad_loss, "the gradient of the loss")
    return (gradient * (grad_loss.unsqueeze(1) if grad_loss.dim() else grad_loss)).to(gradient.dtype)


def differentiable_gradient(logits: Tensor, terms: Terms, grad_loss: Tensor) -> Tensor:
    """Compute the gradient again with torch operations, so that it can be differentiated."""
    _check_stored(logits, terms)
    check_stored(grad_loss, "the gradient of the loss")
    valid = terms.target != terms.ignore_index
    index = torch.where(valid, terms.target, 0)
    factor = valid.to(torch.float32) if terms.weight is None else torch.where(valid, terms.weight[index], 0.0)
    if terms.reduction == "mean":
        grad_loss = grad_loss / factor.sum()
    share, margin, offset = _for_rows(terms, index)
    _, gradient = differentiable(logits, index, share, terms.with_cross_entropy, offset, margin, 0)
    gradient = gradient * (grad_loss * factor).unsqueeze(1)
    return torch.where(valid.unsqueeze(1), gradient, 0.0).to(logits.dtype)
