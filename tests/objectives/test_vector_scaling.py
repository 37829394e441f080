"""The part `vs` is its loss, and refuses parts that adjust logits or correct for the counts as well."""

import numpy as np
import pytest
import torch

from evenhand.core.errors import EvenhandError
from evenhand.losses.functional import vs_loss
from evenhand.objectives import ObjectiveSpec, build_objective

COUNTS = [60, 25, 12, 3]


@pytest.mark.parametrize(("spec", "settings"), [("vs", {}), ("vs:gamma=0.15:tau=1.25", {"gamma": 0.15, "tau": 1.25})])
def test_the_loss_is_its_function(spec: str, settings: dict[str, float]) -> None:
    logits = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    objective = build_objective(spec, counts=COUNTS)
    for target in (torch.arange(8) % 4, logits.flip(0).softmax(1)):
        torch.testing.assert_close(objective.loss(logits, target), vs_loss(logits, target, COUNTS, **settings))
    assert objective.prior() is None
    summary = objective.parts[0].describe(objective.stats)
    assert summary is not None
    assert summary.values is not None
    np.testing.assert_allclose(summary.values, (np.array(COUNTS) / 60) ** settings.get("gamma", 0.3))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("vs+balanced-softmax", "both correct for the class counts"),
        ("vs+weights", "both correct for the class counts"),
        ("vs+ldam", "vs adjusts the logits itself and cannot be combined with ldam; use one."),
        ("vs:gamma=0", "The gamma of vs must be a number above 0 and up to 1, got '0'."),
    ],
)
def test_what_it_cannot_be_combined_with(spec: str, message: str) -> None:
    with pytest.raises(EvenhandError, match=message):
        ObjectiveSpec(spec)


def test_a_second_stage_is_trained_with_cross_entropy() -> None:
    assert ObjectiveSpec("vs+crt").first_stage == "vs"
    logits, target = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    second = build_objective("vs+crt", counts=COUNTS)
    torch.testing.assert_close(second.loss(logits, target), torch.nn.functional.cross_entropy(logits, target))
