"""Rows of every combination of +inf, -inf, NaN and numbers, and what cross entropy makes of them.

The rule: a loss and its gradient are NaN or infinite in the rows in which those of cross entropy are. Elsewhere, they
are those of cross entropy plus a multiple of the complement entropy, whose masked classes have no share in it.
"""

import itertools
import math
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

K = 3
SHARE = 0.25
OFFSET, MARGIN = torch.tensor([0.0, -1.0, 0.5]), torch.tensor([0.0, 1.0, 0.5])
ROWS = torch.tensor(list(itertools.product((math.inf, -math.inf, math.nan, 0.0, 2.0), repeat=K)))
TARGETS = torch.arange(K).repeat_interleave(len(ROWS))
LOGITS = ROWS.repeat(K, 1)
UNDEFINED = (LOGITS.isnan() | (math.inf == LOGITS)).any(1) | (-math.inf == LOGITS).all(1)
SETTINGS = {
    "usual": {"share": SHARE},
    "offset": {"share": SHARE, "offset": OFFSET},
    "far offset": {"share": SHARE, "offset": 80 * OFFSET},
    "mask": {"share": SHARE, "offset": torch.tensor([0.0, -math.inf, 0.5])},
    "margin": {"share": SHARE, "margin": MARGIN},
    "all": {"share": SHARE, "offset": OFFSET, "margin": MARGIN, "weight": MARGIN + 1},
}


def complement(row: Tensor, g: int) -> Tensor:
    """Return C as its equation has it, over the wrong classes that are not masked."""
    wrong = [z for k, z in enumerate(row) if k != g and z > -math.inf]
    return torch.special.entr(torch.stack(wrong).softmax(0)).sum() if wrong else 0.0 * row.nan_to_num(0, 0, 0).sum()


@cache
def expected(name: str) -> tuple[Tensor, Tensor]:
    """Return loss and gradient of every row in float64, of which the undefined ones are cross entropy's."""
    vectors = {key: x.double() for key, x in SETTINGS[name].items() if isinstance(x, Tensor)}
    z = LOGITS.double().requires_grad_()
    adjusted = z + vectors.get("offset", 0.0) - F.one_hot(TARGETS, K) * vectors.get("margin", 0.0)
    rows = F.cross_entropy(adjusted, TARGETS, vectors.get("weight"), reduction="none")
    (gradient,) = torch.autograd.grad(rows.sum(), z)
    rows = rows.detach()
    assert rows[UNDEFINED].isnan().all()
    assert gradient[UNDEFINED].isnan().all()
    for n in (~UNDEFINED).nonzero()[:, 0].tolist():
        row, g = LOGITS[n].double().requires_grad_(), int(TARGETS[n])
        c = SHARE * vectors.get("weight", torch.ones(K))[g] * complement(row, g)
        rows[n] -= c.detach()
        gradient[n] -= torch.autograd.grad(c, row)[0].nan_to_num()
    return rows, gradient


def check(loss: Callable[..., Tensor], name: str, dtype: torch.dtype = torch.float32, again: bool = False) -> None:
    """Compare `loss(logits, target, reduction="none", **settings)`, and its gradient, with what is expected."""
    leaf = LOGITS.to(dtype).requires_grad_()
    rows = loss(leaf, TARGETS, reduction="none", **SETTINGS[name])
    (gradient,) = torch.autograd.grad(rows.sum(), leaf, create_graph=again)
    digits = {torch.bfloat16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-5}[dtype]
    wanted, slope = expected(name)
    assert_close(rows.detach().double(), wanted, rtol=digits, atol=digits, equal_nan=True)
    assert_close(gradient.detach().double(), slope, rtol=digits, atol=digits, equal_nan=True)
