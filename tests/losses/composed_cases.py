"""Settings of CCE with a share, classes that are excluded and class counts, and batches for them."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from evenhand.losses.functional import ldam_margins, logit_offset

K = 6
COUNTS = [500, 200, 60, 30, 12, 3]
OFFSET = logit_offset(COUNTS)
MARGIN = 3 * ldam_margins(COUNTS)
SHARES = 0.6 * (3 / torch.tensor(COUNTS, dtype=torch.float64)).sqrt()
WEIGHT = torch.tensor([0.5, 2.0, 1.0, 3.5, 0.1, 1.0], dtype=torch.float64)

SETTINGS = {
    "offset": {"offset": OFFSET, "share": 0.3},
    "far offset": {"offset": 20 * OFFSET},
    "spare": {"spare": 2, "gamma": -2.0},
    "all": {"offset": OFFSET, "margin": MARGIN, "share": SHARES, "spare": 1},
    "adjusted": {"offset": OFFSET, "complement_on": "adjusted", "share": 0.3, "spare": 1},
}
all_settings = pytest.mark.parametrize("setting", SETTINGS)
kinds = pytest.mark.parametrize("kind", ["indices", "probabilities"])


def batch(*shape: int, kind: str = "indices", dtype=torch.float64) -> tuple[Tensor, Tensor]:
    """Return logits (..., N, K) and targets."""
    logits = torch.randn(shape, dtype=torch.float64)
    target = torch.randint(K, shape[:-1])
    if kind == "probabilities":
        target = (0.7 * F.one_hot(target, K) + 0.3 * F.one_hot(target.flip(0), K)).to(dtype)
    return logits.to(dtype), target
