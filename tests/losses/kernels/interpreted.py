"""Compare the Triton kernel, interpreted, with the formula in float64; run by `test_triton` in a process of its own."""

import itertools
import math
import sys

import torch
import undefined
from torch.testing import assert_close

from evenhand.losses.functional import complement_cross_entropy, complement_entropy
from evenhand.losses.kernels import gpu
from evenhand.losses.kernels.backend import chosen

SOME = [
    (torch.float32, 150, "none"),
    (torch.float32, 10, "mean"),
    (torch.bfloat16, 150, "mean"),
    (torch.bfloat16, 2, "none"),
]


def compare(loss, logits: torch.Tensor, target: torch.Tensor, **settings) -> None:
    wide = {name: x.double() if isinstance(x, torch.Tensor) else x for name, x in settings.items()}
    results = []
    for z, chosen_settings in ((logits, settings), (logits.double(), wide)):
        leaf = z.detach().clone().requires_grad_()
        value = loss(leaf, target, **chosen_settings)
        value.sum().backward()
        results.append((value.detach().double(), leaf.grad.double()))
    (value, gradient), (wanted, wanted_gradient) = results
    digits = 1e-5 if logits.dtype is torch.float32 else 2**-7
    assert_close(value, wanted, rtol=digits, atol=1e-6, equal_nan=True)
    assert_close(gradient, wanted_gradient, rtol=digits, atol=1e-6, equal_nan=True)


def main(everything: bool) -> None:
    assert chosen.cpu == "triton"
    gpu.MOST = 64  # so that rows of a few hundred classes take several blocks
    torch.manual_seed(0)
    cases = 0
    kinds = itertools.product((torch.float32, torch.bfloat16), (2, 10, 150), ("none", "mean"))
    for dtype, k, reduction in kinds if everything else SOME:
        logits, target = (3 * torch.randn(3, k)).to(dtype), torch.randint(k, (3,))
        target[1] = -100
        vectors = {"weight": torch.rand(k), "offset": torch.randn(k), "margin": torch.rand(k), "share": torch.rand(k)}
        for settings in ({}, {"offset": vectors["offset"]}, vectors):
            compare(complement_cross_entropy, logits, target, reduction=reduction, **settings)
            cases += 1
        compare(complement_entropy, logits, target, reduction=reduction)
    rows = [[0, -math.inf, 1, 2], [-math.inf, 1, 2, 0], [3, -math.inf, -math.inf, -math.inf], [3e38, -3e38, 1e38, 0]]
    rows += [[math.nan, 0, 1, 2], [0, math.nan, 1, 2], [1e4, 0, -1e4, 5], [-3e38] * 4, [-math.inf] * 4]
    rows += [[0, math.nan, -math.inf, -math.inf]]
    z, zero = torch.tensor(rows, dtype=torch.float32), torch.zeros(len(rows), dtype=torch.long)
    for settings in ({}, {"offset": torch.randn(4)}, {"offset": torch.tensor([0, -math.inf, 0, 0])}):
        compare(complement_cross_entropy, z[[4, 5, 8, 9]], zero[:4], reduction="none", **settings)
    compare(complement_entropy, z[[4, 5, 8, 9]], zero[:4], reduction="none")
    value = complement_cross_entropy(z, zero, reduction="none").double()
    wanted = complement_cross_entropy(z.double(), zero, reduction="none").float().double()
    assert_close(value, wanted, rtol=1e-6, atol=1e-6, equal_nan=True)
    assert complement_cross_entropy(torch.zeros(0, 4), torch.zeros(0).long()).isnan()
    for name in undefined.SETTINGS if everything else ("mask", "all"):
        undefined.check(complement_cross_entropy, name)
        cases += 1
    print(f"{cases} cases agree")  # noqa: T201


if __name__ == "__main__":
    main("--all" in sys.argv)
