"""Linear layer and loss for many classes: the logits use the memory of the weight's gradient until that is written.

Of weights (K, D) and features (N, D) with N <= D, the logits, (K, N), fit where the gradient of the weights will be. So
they are computed once, block by block of classes, kept there, and replaced by the gradient block by block: three
matrix products as without any of this, and no room for N x K numbers anywhere else.
"""

from typing import NamedTuple

import torch
from torch import Tensor

FAR = -1e4  # a distance whose exponential is 0, and whose product with that 0 is no NaN
SPAN = 50.0  # the widest range of offsets for which exp(z) exp(o) is used for exp(z + o)
BLOCK = 1 << 18  # logits processed at a time: few enough to stay in the cache


class Layer(NamedTuple):
    """The operands: features (N, D), weights (K, D), bias (K) or None, all float32."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None


class Rows(NamedTuple):
    """The settings of each row, (N): its class, whether it counts, its margin in H, the factor of C, and its weight."""

    classes: Tensor
    valid: Tensor | None
    margin: Tensor | None
    share: float | Tensor
    scale: Tensor


def suits(layer: Layer, offset: Tensor | None) -> bool:
    """Return whether the logits fit into the gradient of the weights, and H and C can share one exponential."""
    rows, width = layer.features.shape
    if rows > width or layer.weight.dtype is not torch.float32:
        return False
    return offset is None or bool((offset.amax() - offset.amin()) <= SPAN)


def loss_and_gradients(layer: Layer, rows: Rows, offset: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the sum of scale * (H + share * C), and its gradient by features, weights and bias."""
    weight_gradient = torch.empty_like(layer.weight, memory_format=torch.contiguous_format)
    logits = weight_gradient[:, : len(layer.features)]
    blocks = _Blocks(layer, rows.classes)
    factors = None if offset is None else (offset - offset.amax()).exp()
    own = torch.empty_like(rows.scale)
    m = torch.full_like(rows.scale, torch.finfo(torch.float32).min)
    total, spread, weighted = (torch.zeros_like(rows.scale, dtype=torch.float64) for _ in range(3))
    for block, place in blocks:
        z = logits[block]
        if layer.bias is None:
            torch.mm(layer.weight[block], layer.features.t(), out=z)
        else:
            torch.addmm(layer.bias[block, None], layer.weight[block], layer.features.t(), out=z)
        own[place[1]] = z[place]
        z[place] = -torch.inf
        top = torch.maximum(m, z.amax(0))
        grown = (top - m).clamp_(max=-FAR).double()
        x = (z - top).clamp_(min=FAR)
        e = x.exp()
        shrink = (-grown).exp()
        spread = (spread + total * grown) * shrink - x.mul_(e).sum(0)
        total = total * shrink + e.sum(0)
        if factors is not None:
            weighted = weighted * shrink + factors[block] @ e
        m = top

    total = torch.where(total == 0, 1.0, total)  # every wrong class is masked: C = 0
    mean_v = spread / total
    d = torch.where(m > torch.finfo(torch.float32).min, m.double(), -torch.inf) - own  # NaN: every class is masked
    d.masked_fill_(own == torch.inf, torch.nan)
    if offset is None or factors is None:
        d += total.log()
    else:
        d += weighted.log() + (offset.amax() - offset[rows.classes])
    if rows.margin is not None:
        d += rows.margin
    losses = rows.scale * (torch.nn.functional.softplus(d, threshold=60.0) + rows.share * (total.log() + mean_v))
    loss = (losses if rows.valid is None else torch.where(rows.valid, losses, 0.0)).sum()
    risk = d.sigmoid()
    each = rows.scale / total
    pull = each * risk if factors is None else rows.scale * risk / torch.where(weighted == 0, 1.0, weighted)
    base = -each * rows.share * mean_v + (pull if factors is None else 0.0)
    slopes = _Slopes(m, *(x.float() for x in (base, each * rows.share, pull, -rows.scale * risk)))
    features_gradient, bias_gradient = _gradients(layer, blocks, slopes, logits, factors, weight_gradient)
    return loss, features_gradient, weight_gradient, bias_gradient


class _Slopes(NamedTuple):
    """How the loss of a row changes with a logit z: e (base - slope x [+ pull factor]), x = z - m, e = exp(x)."""

    m: Tensor
    base: Tensor
    slope: Tensor
    pull: Tensor
    own: Tensor  # with the logit of the correct class


def _gradients(
    layer: Layer, blocks: "_Blocks", slopes: _Slopes, logits: Tensor, factors: Tensor | None, weight_gradient: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Write the gradient of the weights over the logits; return those of the features and the bias."""
    features_gradient = torch.zeros_like(layer.features)
    bias_gradient = None if layer.bias is None else torch.empty_like(layer.bias)
    for block, place in blocks:
        x = (logits[block] - slopes.m).clamp_(min=FAR)
        e = x.exp()
        x.mul_(slopes.slope).neg_().add_(slopes.base)
        if factors is not None:
            x.addcmul_(factors[block, None], slopes.pull)
        gradient = e.mul_(x)
        gradient[place] = slopes.own[place[1]]
        features_gradient.addmm_(gradient.t(), layer.weight[block])
        torch.mm(gradient, layer.features, out=weight_gradient[block])
        if bias_gradient is not None:
            torch.sum(gradient, 1, out=bias_gradient[block])
    return features_gradient, bias_gradient


class _Blocks:
    """The classes block by block, each with the places (class in the block, row) of the correct classes in it."""

    def __init__(self, layer: Layer, index: Tensor) -> None:
        self.classes = len(layer.weight)
        self.size = max(1, BLOCK // max(1, len(layer.features)))
        self.index, self.order = index.sort()
        starts = torch.arange(0, self.classes + self.size, self.size, device=index.device)
        self.bounds = torch.searchsorted(self.index, starts).tolist()

    def __iter__(self):  # type: ignore[no-untyped-def]
        """Yield slices of the classes and index pairs into their logits (classes of the block, N)."""
        for number, start in enumerate(range(0, self.classes, self.size)):
            inside = slice(self.bounds[number], self.bounds[number + 1])
            yield slice(start, start + self.size), (self.index[inside] - start, self.order[inside])
