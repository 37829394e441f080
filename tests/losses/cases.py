"""Strategies for Hypothesis: batches of logits and targets, and rows near the limits of floats; and the backends."""

import math

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from evenhand.losses.kernels.backend import interpreting, why_not

BACKENDS = ["triton"] if interpreting() else [name for name in ("eager", "native") if not why_not(name)]
# For tests that reach a kernel: logits (N, K) in float32 or bfloat16, class indices, no smoothing, float32 vectors.
every_backend = pytest.mark.parametrize("on_backend", BACKENDS, indirect=True, scope="module")

# Derandomized: a test that passes here passes everywhere.
repeatable = settings(deadline=None, derandomize=True, max_examples=100)

classes = st.one_of(st.integers(2, 8), st.integers(2, 1000))
seeds = st.integers(0, 2**32 - 1)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Draw float64 logits (K), (N, K) or (N, K, d1, ...) and their class indices.

    Small batches are drawn number by number, so that a failure shrinks to something readable; large ones by a seed.
    """
    k = draw(classes)
    batch = draw(st.one_of(st.just(()), st.tuples(st.integers(1, 4))))
    inner = draw(st.lists(st.integers(1, 3), max_size=2)) if batch else []
    shape = (*batch, k, *inner)
    rows = (*batch, *inner)
    size = math.prod(shape)
    if size <= 32:
        numbers = draw(st.lists(st.floats(-8, 8, width=32), min_size=size, max_size=size))
        logits = torch.tensor(numbers, dtype=torch.float64).reshape(shape)
        indices = draw(st.lists(st.integers(0, k - 1), min_size=math.prod(rows), max_size=math.prod(rows)))
        return logits, torch.tensor(indices).reshape(rows)
    generator = torch.Generator().manual_seed(draw(seeds))
    scale = draw(st.floats(0.01, 3))
    logits = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    return logits, torch.randint(k, rows, generator=generator)


@st.composite
def hard_rows(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Draw float32 logits (N, K) of up to 1e4 in size with 1 - p_g from 0.5 down to 1e-12, and their targets.

    The wrong classes are flat, nearly tied, spread out, or one of them is far ahead of all others. What rounding to
    float32 makes of these logits is taken as exact.
    """
    k = draw(classes)
    n = draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(seeds))
    noise = torch.randn(n, k, generator=generator, dtype=torch.float64)
    shape = draw(st.sampled_from(["flat", "near tie", "spread", "one ahead", "wide"]))
    if shape == "flat":
        rest = torch.zeros(n, k, dtype=torch.float64)
    elif shape == "near tie":
        rest = noise * 10 ** draw(st.floats(-7, -2))
    elif shape == "spread":
        rest = noise * draw(st.floats(0.1, 20))
    elif shape == "one ahead":
        rest = noise * draw(st.floats(0, 2))
        winner = torch.randint(k, (n, 1), generator=generator)
        rest = rest.scatter(1, winner, rest.gather(1, winner) + draw(st.floats(1, 65)))
    else:
        rest = noise.clamp(-3, 3) * 3000
    rest = rest + draw(st.sampled_from([0.0, 0.0, 3.7, -50.0, 1000.3, 9000.0, -9000.0]))
    target = torch.randint(k, (n, 1), generator=generator)
    doubt = 10 ** draw(st.floats(-12, math.log10(0.5)))  # 1 - p_g
    others = rest.scatter(1, target, -torch.inf).logsumexp(1, keepdim=True)
    logits = rest.scatter(1, target, others + math.log1p(-doubt) - math.log(doubt))
    return logits.clamp(-1e4, 1e4).float(), target[:, 0]
