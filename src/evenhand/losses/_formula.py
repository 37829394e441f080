"""Cross entropy and complement entropy of each row, and their gradient: the formula that every backend computes.

Notation, for one row of logits z with the correct class g: `rest` are the logits of the incorrect classes, m their
maximum, u = m - rest >= 0 their distance from it, q = softmax(rest), and d = logsumexp(rest) - z_g. Then

    complement entropy   C = -log(max q) + sum(q u)        dC/dz_k = q_k (u_k - sum(q u))
    cross entropy        H = softplus(d)                   dH/dz_k = q_k sigmoid(d),   dH/dz_g = -sigmoid(d)

The terms of every sum have equal signs, so nothing cancels: the gradient keeps its relative precision for the most
confident rows. H may be computed from other logits than C: z + offset, minus a margin at g. Then d is that of these
logits, and dH/dz_k is r_k sigmoid(d) with r = softmax(rest + offset), which is q exp(offset) renormalised: no second
exponential per element. C may exclude the most probable incorrect classes of a row (`spare`): then `rest` has fewer
classes for C than for H.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# A distance whose exponential is 0 in every precision, and whose product with that 0 is not NaN.
FAR = 1e4

# r is computed from q where every exp(offset - max offset) exceeds this: then q has not underflowed.
NEAR = 1e-15

# Elements processed at a time on the CPU: few enough to stay in its cache, many enough to hide the cost of a call.
CHUNK = 1 << 19


def loss_and_gradient(
    logits: Tensor,
    correct: Tensor,
    share: float | Tensor,
    with_cross_entropy: bool,
    offset: Tensor | None,
    margin: Tensor | None,
    spare: int,
    with_gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute [H +] share * C of every row, and optionally its gradient, in as few passes over memory as torch allows.

    A fused kernel computes the same. The arguments are those of `complement_rows`, but `share`, `offset` and `margin`
    have the compute dtype, and the offset has as many dimensions as the logits: (1, K, 1, ...), or (N, K, 1, ...) where
    a transform has mapped over it.

    The gradient is computed in place in the buffer that is returned; on the CPU one more buffer of at most CHUNK
    elements is used.

    Returns:
        The rows, (N, d1, ...), as a new tensor, and their gradient, of the logits' shape; both of the compute dtype.
    """
    dtype = compute_dtype(logits)
    gradient = torch.empty_like(logits, dtype=dtype) if with_gradient else None
    rows = logits.new_empty((logits.shape[0], *logits.shape[2:]), dtype=dtype)
    lift = None if spare or offset is None else _lift(offset)
    terms = _Terms(
        correct if correct.dtype == torch.bool else correct.unsqueeze(1),
        share.unsqueeze(1) if isinstance(share, Tensor) else share,
        with_cross_entropy,
        offset,
        lift,
        None if margin is None else margin.unsqueeze(1),
        spare,
    )
    loss = rows.unsqueeze(1)
    if logits.device.type != "cpu" or logits.numel() <= CHUNK:
        u = torch.empty_like(logits, dtype=dtype) if gradient is None else gradient
        _compute(logits, terms, u, torch.empty_like(u), loss, with_gradient)
        return rows, gradient
    q = u = loss
    for piece in _pieces(logits.shape):
        z = logits[piece]
        if q.shape != z.shape:
            q = torch.empty_like(z, dtype=dtype)
            u = q if with_gradient else torch.empty_like(q)
        _compute(z, terms.at(piece), u if gradient is None else gradient[piece], q, loss[piece], with_gradient)
    return rows, gradient


class _Terms(NamedTuple):
    """The settings of the rows; values per row have a class dimension of 1."""

    correct: Tensor
    share: float | Tensor
    with_cross_entropy: bool
    offset: Tensor | None
    lift: Tensor | None  # exp(offset - max offset), where r can be computed from q
    margin: Tensor | None
    spare: int

    def at(self, piece: tuple[slice, ...]) -> "_Terms":
        """Return the terms of a piece of the rows."""
        share = self.share[piece] if isinstance(self.share, Tensor) else self.share
        offset = self.offset if self.offset is None or len(self.offset) == 1 else self.offset[piece[0]]
        margin = None if self.margin is None else self.margin[piece]
        return self._replace(correct=self.correct[piece], share=share, offset=offset, margin=margin)


def _compute(z: Tensor, terms: _Terms, u: Tensor, q: Tensor, loss: Tensor, with_gradient: bool) -> None:
    """Write the loss of each row of z into `loss`, (n, 1, ...), and optionally its gradient into u. Overwrites q."""
    correct = terms.correct
    m, log_top, spread = _complement(z, terms, u, q, loss)
    if terms.with_cross_entropy and terms.offset is None and terms.spare == 0:
        risk = _add_cross_entropy(loss, _log_odds(m, z.gather(1, correct)).sub_(log_top), terms.margin)
        if with_gradient:
            u.addcmul_(q, spread.sub_(risk), value=-1).scatter_(1, correct, risk.neg_())
        return
    if not terms.with_cross_entropy:
        undefined = _undefined(z, correct, terms.spare)
        loss.masked_fill_(undefined, torch.nan)
        spread.masked_fill_(undefined, torch.nan)
    if with_gradient:
        u.addcmul_(q, spread, value=-1)
    if not terms.with_cross_entropy:
        return
    own = z.gather(1, correct).to(u.dtype)
    if terms.offset is not None and terms.lift is not None:
        total = q.mul_(terms.lift).sum(1, keepdim=True)
        own_offset = (terms.offset - terms.offset.amax()).expand(z.shape).gather(1, correct)
        d = _log_odds(m, own).sub_(own_offset).sub_(log_top).add_(total.log())
    else:
        _fill_incorrect(q, z, correct, terms.offset)
        m = q.amax(1, keepdim=True)
        total = q.sub_(m).exp_().sum(1, keepdim=True)
        if terms.offset is not None:
            own.add_(terms.offset.expand(z.shape).gather(1, correct))
        d = _log_odds(m, own).add_(total.log())
    risk = _add_cross_entropy(loss, d, terms.margin)
    if with_gradient:
        u.addcmul_(q, risk / total).scatter_(1, correct, risk.neg_())


def _complement(z: Tensor, terms: _Terms, u: Tensor, q: Tensor, loss: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Write share q u into u, q into q, share C into the loss; return m, log(max q) and the sum of share q u."""
    share = terms.share
    lowest = torch.finfo(u.dtype).min
    _fill_incorrect(u, z, terms.correct)
    if terms.spare:
        u.scatter_(1, u.topk(terms.spare, 1).indices, lowest)
    m = u.amax(1, keepdim=True)
    torch.softmax(u, 1, out=q)
    if z.dim() > 2:  # over strided classes torch's softmax sums one by one, which loses precision
        q.div_(q.sum(1, keepdim=True))
    torch.sub(m, u, out=u).clamp_(max=FAR)
    if isinstance(share, Tensor):
        u.mul_(q).mul_(share)
    else:
        torch.addcmul(u.new_zeros(()), u, q, value=share, out=u)
    spread = u.sum(1, keepdim=True)
    log_top = q.amax(1, keepdim=True).log_()
    torch.sub(spread, log_top * share, out=loss).mul_(m > lowest)  # C = 0 where every incorrect class is masked
    return m, log_top, spread


def _fill_incorrect(out: Tensor, z: Tensor, correct: Tensor, offset: Tensor | None = None) -> None:
    """Write z + offset into out, with the lowest finite number for -inf, and less for the correct classes."""
    lowest = torch.finfo(out.dtype).min
    if offset is not None:
        torch.add(z, offset, out=out).clamp_(min=lowest)
    elif z.dtype == out.dtype:
        torch.clamp(z, min=lowest, out=out)
    else:
        out.copy_(z).clamp_(min=lowest)
    if correct.dtype == torch.bool:
        out.masked_fill_(correct, lowest)
    else:
        out.scatter_(1, correct, -torch.inf)


def _undefined(z: Tensor, correct: Tensor, spare: int) -> Tensor:
    """Return which rows have a NaN or +inf that C would not see: cross entropy is NaN there, so C is as well."""
    if spare or correct.dtype == torch.bool:
        return ~(z.amax(1, keepdim=True) < torch.inf)
    return ~(z.gather(1, correct) < torch.inf)


def _log_odds(m: Tensor, own: Tensor) -> Tensor:
    """Return m - own in the place of m; NaN where cross entropy is."""
    undefined = _no_odds(m, own)
    return m.sub_(own).masked_fill_(undefined, torch.nan)


def _no_odds(m: Tensor, own: Tensor) -> Tensor:
    """Return in which rows z_g is +inf or every class is masked; m is the largest incorrect logit, or lowest."""
    return (own == torch.inf) | ((m <= torch.finfo(m.dtype).min) & (own == -torch.inf))


def _add_cross_entropy(loss: Tensor, d: Tensor, margin: Tensor | None) -> Tensor:
    """Add H to the loss and return sigmoid(d), which is 1 - p_g, in the place of d."""
    if margin is not None:
        d.add_(margin)
    loss.add_(softplus(d))
    return d.sigmoid_()


def _lift(offset: Tensor) -> Tensor | None:
    """Return exp(offset - max offset) if r can be computed from q, which is only checked on the CPU."""
    if offset.device.type != "cpu" or len(offset) > 1:
        return None
    lift = (offset - offset.amax()).exp_()
    return lift if float(lift.amin()) > NEAR else None


def log_odds_against(logits: Tensor, index: Tensor) -> Tensor:
    """Return d = logsumexp(rest) - z_g of each row, (N, ...): the log odds that its class is not the correct one."""
    logits = undefined_as_nan(logits)
    rows = index.unsqueeze(1)
    own = logits.gather(1, rows)
    rest, m = _incorrect(logits, torch.zeros_like(logits, dtype=torch.bool).scatter(1, rows, 1), -torch.inf)
    d = m - own + torch.logsumexp(rest - m, 1, keepdim=True)
    return d.squeeze(1)


def log_odds_against_each(logits: Tensor) -> Tensor:
    """Return for each class k the logsumexp of the other classes minus z_k, (..., K), without cancellation in 1 - p."""
    top, place = logits.detach().max(-1, keepdim=True)
    leads = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, place, 1)
    # For every class but the leading one, the leading one is among the others, so the remaining sum is at least 1.
    terms = (logits - top).exp()
    left = torch.where(leads, 1.0, terms.sum(-1, keepdim=True) - terms).log() + top
    behind = logits.masked_fill(leads, torch.finfo(logits.dtype).min).logsumexp(-1, keepdim=True)
    return torch.where(leads, behind, left) - logits


def undefined_as_nan(logits: Tensor) -> Tensor:
    """Make the rows NaN, logits and gradient, that are NaN in cross entropy: with a NaN or +inf, or -inf only."""
    return logits + torch.where(logits.detach().amax(1, keepdim=True).isfinite(), 0.0, torch.nan)


def softplus(d: Tensor) -> Tensor:
    """Return log(1 + exp(d)) at full precision: torch's threshold of 20 costs float64 half of its digits."""
    return F.softplus(d, threshold=60.0)


def _incorrect(z: Tensor, correct: Tensor, filler: float) -> tuple[Tensor, Tensor]:
    """Return the logits with the correct classes filled, and the largest remaining one of each row, detached."""
    lowest = torch.finfo(z.dtype).min
    rest = torch.where(z < lowest, lowest, z).masked_fill(correct, filler)  # the gradient of clamp would hide a NaN
    return rest, rest.detach().amax(1, keepdim=True)


def differentiable(
    logits: Tensor,
    correct: Tensor,
    share: float | Tensor,
    with_cross_entropy: bool,
    offset: Tensor | None,
    margin: Tensor | None,
    spare: int,
) -> tuple[Tensor, Tensor]:
    """Compute the same as `loss_and_gradient` without in-place operations: to differentiate again, or to compile."""
    z = logits.to(compute_dtype(logits))
    if isinstance(share, Tensor):
        share = share.unsqueeze(1)
    lowest = torch.finfo(z.dtype).min
    filler = -torch.inf
    if correct.dtype == torch.bool:
        mask, filler = correct, lowest  # every class may be correct, and a row of -inf has no softmax
    else:
        rows = correct.unsqueeze(1)
        mask = torch.zeros_like(z, dtype=torch.bool).scatter(1, rows, 1)
        own = z.gather(1, rows)
    rest, m = _incorrect(z, mask, filler)
    if spare:
        rest, m = _incorrect(z, mask.scatter(1, rest.detach().topk(spare, 1).indices, 1), filler)
    u = (m - rest).clamp(max=FAR)
    powers = torch.exp(-u)
    total = powers.sum(1, keepdim=True)
    q = powers / total
    spread = (q * u).sum(1, keepdim=True)
    # A factor or a term that is NaN makes the gradient NaN as well, where a NaN filled in would make it 0.
    defined = torch.where(_undefined(z, mask if correct.dtype == torch.bool else rows, spare), torch.nan, 1.0)
    loss = share * torch.where(m <= lowest, 0.0, spread + total.log()) * defined
    gradient = share * q * (u - spread * defined)
    if with_cross_entropy:
        if offset is not None or spare:
            shifted = z if offset is None else z + offset
            own = shifted.gather(1, rows)
            rest, m = _incorrect(shifted, mask, filler)
            powers = torch.exp(rest - m)
            total = powers.sum(1, keepdim=True)
            q = powers / total
        d = m - own + total.log() + torch.where(_no_odds(m, own), torch.nan, 0.0)
        if margin is not None:
            d = d + margin.unsqueeze(1)
        risk = d.sigmoid()
        loss = loss + softplus(d)
        gradient = torch.where(mask, -risk, gradient + q * risk)
    return loss.squeeze(1), gradient


def compute_dtype(logits: Tensor) -> torch.dtype:
    """Return the dtype that losses are computed in: float64 for float64, else float32."""
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
