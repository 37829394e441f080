"""The complement entropy of each row and its gradient: the formula at the heart of every loss in this room.

Notation, for one row of logits z with the correct class g: `rest` are the logits of the incorrect classes, m their
maximum, v = m - rest >= 0 their distance from it, q = softmax(rest), and d = logsumexp(rest) - z_g. Then

    complement entropy   C = -log(max q) + sum(q v)        dC/dz_k = q_k (v_k - sum(q v))
    cross entropy        H = softplus(d)                   dH/dz_k = q_k sigmoid(d),   dH/dz_g = -sigmoid(d)

Every sum is one of terms with equal signs, so nothing cancels: the gradient keeps its relative precision for the most
confident rows.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

# Stands for -inf: far enough that its exponential is 0, near enough that a product with it stays finite.
MASKED = -1e30

# Elements worked on at a time on the CPU: few enough to stay in its cache, many enough to hide the cost of a call.
CHUNK = 1 << 19


def complement_rows(logits: Tensor, correct: Tensor, share: float, *, with_cross_entropy: bool = False) -> Tensor:
    """Return share * C of every row, or H + share * C, differentiable to any order in the logits.

    Args:
        logits: (N, K) or (N, K, d1, ...), any floating dtype; never written to.
        correct: the correct class of each row, int64 (N, d1, ...); or a mask of the correct classes, bool, of the
            logits' shape. A mask goes without H, and a row with every class in the mask has C = 0.
        share: the factor of the complement entropy C, not 0.
        with_cross_entropy: add the cross entropy H.

    Returns:
        (N, d1, ...), float64 for float64 logits and float32 for all others.
    """
    ratio = 1 / share if with_cross_entropy else 0.0
    if not torch.compiler.is_compiling() and _transforms_active():
        return cast(Tensor, _TransformableRows.apply(logits, correct, share, ratio))
    keep = logits.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return cast(Tensor, _ComplementRows.apply(logits, correct, share, ratio, keep))


def loss_and_gradient(
    logits: Tensor, correct: Tensor, ratio: float, with_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Compute C + ratio * H of every row, and its gradient if wanted, in as few passes over memory as eager ops allow.

    The gradient is built in place in the buffer that is returned; one more buffer of at most CHUNK elements is used
    beside it on the CPU.
    """
    dtype = _compute_dtype(logits)
    gradient = torch.empty_like(logits, dtype=dtype) if with_gradient else None
    loss = logits.new_empty((logits.shape[0], 1, *logits.shape[2:]), dtype=dtype)
    rows = correct if correct.dtype == torch.bool else correct.unsqueeze(1)
    if logits.device.type != "cpu" or logits.numel() <= CHUNK:
        v = torch.empty_like(logits, dtype=dtype) if gradient is None else gradient
        _work(logits, rows, ratio, v, torch.empty_like(v), loss, with_gradient)
        return loss.squeeze(1), gradient
    q = v = loss
    for piece in _pieces(logits.shape):
        z = logits[piece]
        if q.shape != z.shape:
            q = torch.empty_like(z, dtype=dtype)
            v = q if with_gradient else torch.empty_like(q)
        _work(z, rows[piece], ratio, v if gradient is None else gradient[piece], q, loss[piece], with_gradient)
    return loss.squeeze(1), gradient


def _work(z: Tensor, correct: Tensor, ratio: float, v: Tensor, q: Tensor, loss: Tensor, with_gradient: bool) -> None:
    """Fill in the loss of each row of z, (n, 1, ...), and, if wanted, leave its gradient in v. q is overwritten."""
    masked = correct.dtype == torch.bool
    if z.dtype == v.dtype:
        torch.clamp(z, min=MASKED, out=v)
    else:
        v.copy_(z).clamp_(min=MASKED)
    if masked:
        v.masked_fill_(correct, MASKED)
    else:
        v.scatter_(1, correct, MASKED)
    m = v.amax(1, keepdim=True)
    torch.softmax(v, 1, out=q)
    if z.dim() > 2:  # torch's softmax adds up classes that lie apart in memory one by one, which costs digits
        q.div_(q.sum(1, keepdim=True))
    torch.sub(m, v, out=v).mul_(q)
    spread = v.sum(1, keepdim=True)
    log_top = q.amax(1, keepdim=True).log_()
    torch.sub(spread, log_top, out=loss).mul_((m - MASKED).sign_())  # C = 0 where every incorrect class is masked
    if ratio == 0:
        undefined = z.isnan().any(1, keepdim=True) if masked else z.gather(1, correct).isnan()
        loss.masked_fill_(undefined, torch.nan)
    else:
        d = m.sub_(z.gather(1, correct)).sub_(log_top)
        loss.add_(softplus(d), alpha=ratio)
        pull = d.sigmoid_().mul_(-ratio)
        spread.add_(pull)
    if with_gradient:
        v.addcmul_(q, spread, value=-1)
        if ratio != 0:
            v.scatter_(1, correct, pull)


def log_odds_against(logits: Tensor, index: Tensor) -> Tensor:
    """Return d = logsumexp(rest) - z_g of each row, (N, ...): the log odds that its class is not the correct one."""
    rows = index.unsqueeze(1)
    rest, m = _incorrect(logits, torch.zeros_like(logits, dtype=torch.bool).scatter(1, rows, True))
    return (m - logits.gather(1, rows) + torch.logsumexp(rest - m, 1, keepdim=True)).squeeze(1)


def softplus(d: Tensor) -> Tensor:
    """Return log(1 + exp(d)) to the last digit: torch's own threshold of 20 costs float64 half of its digits."""
    return F.softplus(d, threshold=60.0)


def _incorrect(z: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits with the correct classes masked, and the largest that is left of each row, as a constant."""
    rest = z.masked_fill(correct, MASKED).clamp(min=MASKED)
    return rest, rest.detach().amax(1, keepdim=True)


def _differentiable(logits: Tensor, correct: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    """Say what `loss_and_gradient` says in pure operations: to differentiate again, and for compilers to fuse."""
    z = logits.to(_compute_dtype(logits))
    if correct.dtype == torch.bool:
        mask = correct
        own = torch.where(z.isnan().any(1, keepdim=True), torch.nan, 0.0)
    else:
        rows = correct.unsqueeze(1)
        mask = torch.zeros_like(z, dtype=torch.bool).scatter(1, rows, True)
        own = z.gather(1, rows)
    rest, m = _incorrect(z, mask)
    alive = m > MASKED
    v = m - rest
    powers = torch.exp(-v)
    total = powers.sum(1, keepdim=True)
    q = powers / total
    spread = (q * v).sum(1, keepdim=True)
    log_sum = total.log()
    loss = torch.where(alive, spread + log_sum, 0.0).masked_fill(own.isnan(), torch.nan)
    gradient = q * (v - spread)
    if ratio != 0:
        d = m - own + log_sum
        risk = ratio * d.sigmoid()
        loss = loss + ratio * softplus(d)
        gradient = torch.where(mask, -risk, gradient + q * risk)
    return loss.squeeze(1), gradient


def _scaled(gradient: Tensor, scale: Tensor) -> Tensor:
    """Scale a kept gradient: in its place, unless it will be asked for again."""
    if not _graph_is_kept():
        try:
            return gradient.mul_(scale)
        except RuntimeError:  # many upstream gradients at a time (`is_grads_batched`) do not fit in the place of one
            pass
    return gradient * scale


class _ComplementRows(torch.autograd.Function):
    """The loss of every row, with its gradient worked out beside it and kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, correct: Tensor, share: float, ratio: float, keep: bool) -> Tensor:
        gradient = None
        if torch.compiler.is_compiling():
            loss = _differentiable(logits, correct, ratio)[0]
        else:
            loss, gradient = loss_and_gradient(logits, correct, ratio, keep)
        ctx.share, ctx.ratio = share, ratio
        ctx.save_for_backward(logits, correct, gradient)
        return loss * share  # a tensor of its own, not a view: the user may change it in place

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        logits, correct, gradient = ctx.saved_tensors
        scale = (grad_loss * ctx.share).unsqueeze(1)
        if gradient is None or torch.is_grad_enabled():
            gradient = _differentiable(logits, correct, ctx.ratio)[1] * scale
        else:
            gradient = _scaled(gradient, scale)
        return gradient.to(logits.dtype), *[None] * (len(ctx.needs_input_grad) - 1)


class _TransformableRows(torch.autograd.Function):
    """The same for the transforms of `torch.func`, which ask for another form that costs more to call.

    They always differentiate in a way that could be differentiated again, so a gradient kept here would go unused.
    """

    @staticmethod
    def forward(logits: Tensor, correct: Tensor, share: float, ratio: float) -> Tensor:
        return loss_and_gradient(logits, correct, ratio, False)[0] * share

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> None:
        logits, correct, ctx.share, ctx.ratio = inputs
        ctx.save_for_backward(logits, correct, None)
        ctx.save_for_forward(logits, correct)

    backward = _ComplementRows.backward

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        logits, correct = ctx.saved_tensors
        gradient = _differentiable(logits, correct, ctx.ratio)[1]
        return cast(Tensor, ctx.share * (gradient * tangent).sum(1))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        """Rows do not know of each other, so a batch of batches is one longer batch."""
        tensors = (
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(args[:2], in_dims[:2], strict=True)
        )
        logits, correct = (x.flatten(0, 1) for x in tensors)
        loss = _TransformableRows.apply(logits, correct, *args[2:])
        return loss.unflatten(0, (info.batch_size, -1)), 0


# Private, but what torch itself asks. Where one is missing, the answer is taken that is right everywhere, if slower.
_transforms_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
_graph_is_kept: Callable[[], bool] = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def _compute_dtype(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _pieces(shape: torch.Size) -> Iterator[tuple[slice, ...]]:
    """Cut (N, K, d1, ...) into pieces of about CHUNK elements: along N, and along d1 where one sample is large."""
    sample_size = shape[1:].numel()
    rows = max(1, CHUNK // sample_size)
    lines = shape[2] if len(shape) > 2 else 1
    step = max(1, lines * CHUNK // sample_size)
    for start in range(0, shape[0], rows):
        part = slice(start, start + rows)
        if step >= lines:
            yield (part,)
        else:
            yield from ((part, slice(None), slice(line, line + step)) for line in range(0, lines, step))
