"""The loss of each row as a differentiable operation: for autograd, `torch.func` transforms and `torch.compile`."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from evenhand.losses._formula import compute_dtype, differentiable, loss_and_gradient
from evenhand.losses._input import check_stored, is_wrapper


def complement_rows(
    logits: Tensor,
    correct: Tensor,
    share: float | Tensor,
    *,
    with_cross_entropy: bool = False,
    offset: Tensor | None = None,
    margin: Tensor | None = None,
    spare: int = 0,
) -> Tensor:
    """Return share * C of every row, or H + share * C, differentiable to any order in the logits (only in them).

    Args:
        logits: (N, K) or (N, K, d1, ...), any floating dtype; never written to.
        correct: the correct class of each row, int64 (N, d1, ...); or a mask of the correct classes, bool, of the
            logits' shape. A mask is not combined with H, and a row with every class in the mask has C = 0.
        share: the factor of the complement entropy C, a number or one per row (N, d1, ...).
        with_cross_entropy: add the cross entropy H.
        offset: added to the logits in H, not in C, (K).
        margin: subtracted in H from the logit of the correct class, (N, d1, ...).
        spare: how many of the most probable incorrect classes of each row C excludes, at most K - 3.

    Returns:
        (N, d1, ...), float64 for float64 logits and float32 for all others.
    """
    dtype = compute_dtype(logits)
    if offset is not None:
        offset = offset.to(dtype).view(1, -1, *[1] * (logits.dim() - 2))
    if margin is not None:
        margin = margin.to(dtype)
    if isinstance(share, Tensor):
        share = share.to(dtype)
    settings = (logits, correct, share, with_cross_entropy, offset, margin, spare)
    # A traced call of a Python function could not be saved; a wrapper changes nothing in the place of a plain tensor.
    if not torch.compiler.is_compiling() and (tracing_state() or any(map(is_wrapper, settings))):
        return differentiable(*settings)[0]
    if not torch.compiler.is_compiling() and transforms_active():
        return cast(Tensor, _TransformableRows.apply(*settings))
    keep = logits.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return cast(Tensor, _ComplementRows.apply(*settings, keep))


def _scaled(gradient: Tensor, scale: Tensor) -> Tensor:
    """Scale a saved gradient: in place, unless the graph is kept."""
    if not graph_is_kept():
        try:
            return gradient.mul_(scale)
        except RuntimeError:  # several upstream gradients (`is_grads_batched`) do not fit in place
            pass
    return gradient * scale


class _ComplementRows(torch.autograd.Function):
    """The loss of every row; its gradient is computed in the forward pass and saved for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        correct: Tensor,
        share: float | Tensor,
        with_cross_entropy: bool,
        offset: Tensor | None,
        margin: Tensor | None,
        spare: int,
        keep: bool,
    ) -> Tensor:
        terms = (logits, correct, share, with_cross_entropy, offset, margin, spare)
        gradient = None
        if torch.compiler.is_compiling():
            loss = differentiable(*terms)[0]
        else:
            loss, gradient = loss_and_gradient(*terms, keep)
        _save(ctx, *terms, gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        scale = grad_loss.unsqueeze(1)
        *terms, gradient = _saved(ctx)
        if gradient is None or torch.is_grad_enabled():
            for value in (*terms, scale):
                check_stored(value, "a tensor that the gradient needs")
            gradient = differentiable(*terms)[1] * scale
        else:
            gradient = _scaled(gradient, scale)
        return gradient.to(terms[0].dtype), *[None] * (len(ctx.needs_input_grad) - 1)


def _save(ctx: Any, *values: Any) -> None:
    """Save tensors and numbers for the backward pass."""
    ctx.numbers = [None if isinstance(value, Tensor) else value for value in values]
    ctx.save_for_backward(*[value if isinstance(value, Tensor) else None for value in values])


def _saved(ctx: Any) -> list[Any]:
    return [number if tensor is None else tensor for tensor, number in zip(ctx.saved_tensors, ctx.numbers, strict=True)]


class _TransformableRows(torch.autograd.Function):
    """The same for `torch.func` transforms, which need a form that is slower to call.

    They always create a graph, so a gradient saved here would not be used.
    """

    @staticmethod
    def forward(
        logits: Tensor,
        correct: Tensor,
        share: float | Tensor,
        with_cross_entropy: bool,
        offset: Tensor | None,
        margin: Tensor | None,
        spare: int,
    ) -> Tensor:
        return loss_and_gradient(logits, correct, share, with_cross_entropy, offset, margin, spare, False)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> None:
        _save(ctx, *inputs, None)
        ctx.save_for_forward(*[value if isinstance(value, Tensor) else None for value in (*inputs, None)])

    backward = _ComplementRows.backward

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        *terms, _gradient = _saved(ctx)
        return (differentiable(*terms)[1] * tangent).sum(1)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        """Flatten a batch of batches into one longer batch: rows are independent."""
        n = args[0].shape[0] if in_dims[0] is None else args[0].movedim(in_dims[0], 0).shape[1]

        def lengthened(x: Any, dim: int | None, is_offset: bool) -> Any:
            if not isinstance(x, Tensor) or (is_offset and dim is None and len(x) == 1):
                return x
            x = x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.expand(-1, n, *x.shape[2:]).flatten(0, 1)

        longer = [lengthened(x, dim, i == 4) for i, (x, dim) in enumerate(zip(args, in_dims, strict=True))]
        rows = _TransformableRows.apply(*longer)
        return rows.unflatten(0, (info.batch_size, -1)), 0


# Private, but what torch itself calls. Where one is missing, the default is correct everywhere, if slower.
tracing_state: Callable[[], object] = getattr(torch._C, "_get_tracing_state", lambda: None)
transforms_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
graph_is_kept: Callable[[], bool] = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
