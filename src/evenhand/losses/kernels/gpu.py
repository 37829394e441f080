"""The Triton kernel for GPUs: a program computes loss and gradient of a row, accumulating sums block by block.

It has been interpreted and compiled, but no GPU has timed it. The formula and its words are those of `_rows.h`; with an
offset, H has an exponential of its own, since nothing may be asked of the offset without waiting for the device.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from evenhand.losses.kernels.fused import Terms

FAR = tl.constexpr(1e4)  # a distance whose exponential is 0, and whose product with that 0 is no NaN
LOWEST = tl.constexpr(-3.4028234663852886e38)
MOST = 4096  # elements of a row that a program processes at a time


@triton.jit
def _distance(m, x):
    """Return m - x, at most FAR; a comparison with NaN is false, so NaN stays."""
    v = m - x
    return tl.where(v > FAR, FAR, v)


@triton.jit
def _softplus(d):
    """Return log(1 + exp(d)) at full precision: the rounding error of 1 + p is compensated."""
    p = tl.exp(-tl.abs(d))
    u = 1.0 + p
    return tl.where(d > 0, d, 0.0) + tl.where(u == 1.0, p, tl.log(u) * (p / (u - 1.0)))


@triton.jit
def cce_kernel(
    logits,
    target,
    weight,
    offset,
    margin,
    shares,
    divisor,
    loss,
    gradient,
    classes,
    stride,
    ignore_index,
    share,
    WITH_H: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Compute one row. Vectors and a gradient that are None are not compiled into the kernel."""
    row = tl.program_id(0).to(tl.int64)
    g = tl.load(target + row)
    counts = (g != ignore_index) & (g >= 0) & (g < classes)
    g = tl.where(counts, g, 0)
    z = logits + row * stride
    own = tl.load(z + g).to(tl.float32)
    lanes = tl.arange(0, BLOCK)

    m = tl.full((), LOWEST, tl.float32)
    total = tl.zeros((), tl.float32)
    spread = tl.zeros((), tl.float32)
    m_h = tl.full((), LOWEST, tl.float32)
    total_h = tl.zeros((), tl.float32)
    for start in range(0, classes, BLOCK):
        k = start + lanes
        x = tl.load(z + k, mask=(k < classes) & (k != g), other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(x, 0))
        grown = _distance(top, m)
        shrink = tl.exp(-grown)
        v = _distance(top, x)
        e = tl.exp(-v)
        spread = (spread + total * grown) * shrink + tl.sum(e * v, 0)
        total = total * shrink + tl.sum(e, 0)
        m = top
        if offset is not None:
            y = x + tl.load(offset + k, mask=k < classes, other=0.0)
            top_h = tl.maximum(m_h, tl.max(y, 0))
            total_h = total_h * tl.exp(-_distance(top_h, m_h)) + tl.sum(tl.exp(-_distance(top_h, y)), 0)
            m_h = top_h

    masked = (m <= LOWEST) & (total == total)  # every wrong class, none of them NaN: C = 0
    total = tl.where(total == 0.0, 1.0, total)
    mean_v = spread / total
    c = share
    if shares is not None:
        c = tl.load(shares + g)
    value = tl.where(masked, 0.0, c * (tl.log(total) + mean_v))
    undefined = tl.where(own < float("inf"), 0.0, float("nan"))  # as in cross entropy, in C too, which ignores own
    value += undefined
    risk = undefined
    if WITH_H:
        if offset is not None:
            own_offset = tl.load(offset + g)
            d = (m_h - own + undefined) + (tl.log(tl.where(total_h == 0.0, 1.0, total_h)) - own_offset)
            d = tl.where((m_h <= LOWEST) & (own + own_offset == -float("inf")), float("nan"), d)
        else:
            d = (m - own + undefined) + tl.log(total)
            d = tl.where(masked & (own == -float("inf")), float("nan"), d)  # every class is masked
        if margin is not None:
            d += tl.load(margin + g)
        value += _softplus(d)
        power = tl.exp(-tl.abs(d))
        risk = tl.where(d > 0, 1.0, power) / (1.0 + power)
    factor = tl.full((), 1.0, tl.float32)
    if weight is not None:
        factor = tl.load(weight + g)
    tl.store(loss + row, tl.where(counts, factor * value, 0.0))

    if gradient is not None:
        scale = factor / tl.load(divisor)
        out = gradient + row * classes
        for start in range(0, classes, BLOCK):
            k = start + lanes
            x = tl.load(z + k, mask=(k < classes) & (k != g), other=-float("inf")).to(tl.float32)
            v = _distance(m, x)
            q = tl.exp(-v) / total
            slope = c * (q * v - q * mean_v) + undefined
            if WITH_H:
                r = q
                if offset is not None:
                    y = x + tl.load(offset + k, mask=k < classes, other=0.0)
                    r = tl.exp(-_distance(m_h, y)) / tl.where(total_h == 0.0, 1.0, total_h)
                slope = tl.where(k == g, -risk, slope + r * risk)
            slope = tl.where(counts, scale * slope, 0.0)
            tl.store(out + k, slope.to(gradient.dtype.element_ty), mask=k < classes)


def launch_settings(classes: int) -> dict[str, Any]:
    """Return the size of a block and how many warps work on it."""
    block = min(triton.next_power_of_2(classes), MOST)
    return {"BLOCK": block, "num_warps": 4 if block <= 1024 else 8}


def run(logits: Tensor, terms: "Terms", *, with_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """Compute [H +] share * C of all rows, reduced, and the gradient of that: as `native.run`, on a GPU.

    Nothing waits for the device: a target that is no class fails there, as with cross entropy.
    """
    target, weight, offset, margin, share, with_cross_entropy, ignore_index, reduction = terms
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    rows, classes = logits.shape
    target = target.contiguous()
    valid = target != ignore_index
    torch._assert_async((~valid | ((target >= 0) & (target < classes))).all())
    factor = valid.to(torch.float32)
    if weight is not None:
        factor = torch.where(valid, weight[target.clamp(0, classes - 1)], 0.0)
    divisor = factor.sum() if reduction == "mean" else torch.ones_like(factor[:1].sum())
    vectors = [None if x is None else x.contiguous() for x in (weight, offset, margin)]
    shares, number = (share.contiguous(), 0.0) if isinstance(share, Tensor) else (None, share)
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format) if with_gradient else None
    if rows:
        cce_kernel[(rows,)](
            logits,
            target,
            *vectors,
            shares,
            divisor,
            losses,
            gradient,
            classes,
            logits.stride(0),
            ignore_index,
            number,
            WITH_H=with_cross_entropy,
            **launch_settings(classes),
        )
    return losses if reduction == "none" else losses.sum() / divisor, gradient
