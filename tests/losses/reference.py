"""The paper's equations 1 to 5 as printed, to judge the package by: in float64, and in as many digits as it takes.

Everything here works on single rows and class indices, and knows nothing of how the package computes.
"""

import mpmath
import torch
from torch import Tensor


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Eq. 1 of each row: logits (N, K), target (N) -> (N), in float64."""
    y_hat = logits.double().softmax(1)
    return -y_hat[torch.arange(len(target)), target].log()


def complement_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Eq. 2 of each row, in float64: right while 1 - y_hat_g keeps enough digits, about up to y_hat_g = 1 - 1e-8."""
    y_hat = logits.double().softmax(1)
    rows = []
    for row, g in zip(y_hat, target.tolist(), strict=True):
        incorrect = torch.cat([row[:g], row[g + 1 :]]) / (1 - row[g])
        rows.append(-(incorrect * incorrect.log()).sum())
    return torch.stack(rows) if rows else logits.new_zeros(0, dtype=torch.float64)


def complement_cross_entropy(logits: Tensor, target: Tensor, gamma: float) -> Tensor:
    """Eqs. 4 and 5 of each row, in float64."""
    classes = logits.shape[1]
    return cross_entropy(logits, target) + gamma / (classes - 1) * complement_entropy(logits, target)


def flat_rows(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Bring (K), (N, K) or (N, K, d1, ...) to one row a prediction: (M, K) and (M)."""
    if logits.dim() == 1:
        return logits[None], target[None]
    return logits.movedim(1, -1).flatten(0, -2), target.flatten()


# What float64 cannot do: more digits than any case of ours can lose.


def _enough_digits(logits: list[float], g: int) -> int:
    """1 - y_hat_g of eq. 2 loses as many digits as the correct class is ahead of the next, in powers of ten."""
    ahead = logits[g] - max(z for j, z in enumerate(logits) if j != g)
    return 150 + int(max(ahead, 0.0) / 2.3)


def _softmax(logits: list[float]) -> list[mpmath.mpf]:
    powers = [mpmath.exp(z) for z in logits]
    total = mpmath.fsum(powers)
    return [power / total for power in powers]


def exact_cross_entropy(logits: list[float], g: int) -> float:
    """Eq. 1 of one row."""
    with mpmath.workdps(_enough_digits(logits, g)):
        return float(-mpmath.log(_softmax(logits)[g]))


def _eq2(logits: list[float], g: int) -> mpmath.mpf:
    y_hat = _softmax(logits)
    shares = [y / (1 - y_hat[g]) for j, y in enumerate(y_hat) if j != g]
    return -mpmath.fsum(share * mpmath.log(share) for share in shares if share)


def exact_complement_entropy(logits: list[float], g: int) -> float:
    """Eq. 2 of one row."""
    with mpmath.workdps(_enough_digits(logits, g)):
        return float(_eq2(logits, g))


def exact_complement_gradient(logits: list[float], g: int) -> list[float]:
    """The derivative of eq. 2 by each logit: a difference quotient of eq. 2 itself, so nothing was derived by hand."""
    with mpmath.workdps(_enough_digits(logits, g)):
        h = mpmath.mpf(10) ** -40  # the error is of the order of h squared
        slopes = []
        for k, z in enumerate(logits):
            ahead, behind = list(logits), list(logits)
            ahead[k], behind[k] = mpmath.mpf(z) + h, mpmath.mpf(z) - h
            slopes.append(float((_eq2(ahead, g) - _eq2(behind, g)) / (2 * h)))
        return slopes


def precise_complement_gradient(logits: Tensor, target: Tensor) -> Tensor:
    """The derivative of eq. 2 in float64 for many rows (N, K), with no digits lost for confident ones.

    `test_numerics` checks it against `exact_complement_gradient`, which is too slow for 1000 classes.
    """
    g = target[:, None]
    z = logits.double().scatter(1, g, -torch.inf)
    v = z.amax(1, keepdim=True) - z
    q = torch.exp(-v)
    q = q / q.sum(1, keepdim=True)
    qv = torch.where(q > 0, q * v, 0.0)
    return qv - q * qv.sum(1, keepdim=True)


def precise_cross_entropy_gradient(logits: Tensor, target: Tensor) -> Tensor:
    """The derivative of eq. 1 in float64, with no digits lost for confident rows."""
    g = target[:, None]
    z = logits.double()
    y_hat = z.softmax(1)
    others = y_hat.scatter(1, g, 0.0)
    return others.scatter(1, g, -others.sum(1, keepdim=True))


# Losses that know the counts, and CCE with them: by their formulas, in float64.


def spared_complement_entropy(logits: Tensor, target: Tensor, spare: int) -> Tensor:
    """Eq. 2 of each row (N, K) over the incorrect classes but the `spare` likeliest."""
    rows = []
    for row, g in zip(logits.double(), target.tolist(), strict=True):
        incorrect = torch.cat([row[:g], row[g + 1 :]]).sort(descending=True).values[spare:]
        y_hat = incorrect.exp() / incorrect.exp().sum()
        rows.append(-(y_hat * y_hat.log()).sum())
    return torch.stack(rows) if rows else logits.new_zeros(0, dtype=torch.float64)


def adjusted_rows(logits: Tensor, target: Tensor, counts: Tensor, tau: float) -> Tensor:
    """Menon et al., eq. 10, as a power of the prior inside the softmax, and Ren et al., eq. 3, at tau = 1."""
    prior = counts.double() / counts.sum()
    weighed = prior**tau * logits.double().exp()
    return -(weighed.gather(1, target[:, None])[:, 0] / weighed.sum(1)).log()


def ldam_rows(cosines: Tensor, target: Tensor, counts: Tensor, max_margin: float, scale: float) -> Tensor:
    """Cao et al., eqs. 12 and 13, with C such that the largest margin is max_margin."""
    margins = counts.double() ** -0.25
    margins = margins * max_margin / margins.max()
    rows = []
    for row, g in zip(cosines.double(), target.tolist(), strict=True):
        own = (scale * (row[g] - margins[g])).exp()
        others = (scale * torch.cat([row[:g], row[g + 1 :]])).exp().sum()
        rows.append(-(own / (own + others)).log())
    return torch.stack(rows) if rows else cosines.new_zeros(0, dtype=torch.float64)


def vs_rows(logits: Tensor, target: Tensor, counts: Tensor, gamma: float, tau: float) -> Tensor:
    """Kini et al., eq. 2: the odds of every other class against the correct one, each class with its own z and n."""
    n = counts.double()
    rows = []
    for row, g in zip(logits.double(), target.tolist(), strict=True):
        scaled = [z * (count / n.max()) ** gamma for z, count in zip(row, n, strict=True)]
        odds = [(n[j] / n[g]) ** tau * (scaled[j] - scaled[g]).exp() for j in range(len(row)) if j != g]
        rows.append(torch.log1p(sum(odds)))
    return torch.stack(rows) if rows else logits.new_zeros(0, dtype=torch.float64)
