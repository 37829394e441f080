"""How often a comparison would be unsure, as `predict` answers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenhand.experiments.comparison import compare_runs
from evenhand.experiments.comparison.unsure import unsure_sentence
from tests.fabricated import fabricate, predict


@pytest.mark.parametrize(
    ("support", "words"),
    [
        ((50, 40, 2), "would name more than one class for 0."),
        ((50, 40, 1), "9 test images of each are needed; there are too few of "),
    ],
)
def test_folds_are_pooled_and_classes_with_too_few_images_are_named(
    tmp_path: Path, support: tuple[int, ...], words: str
) -> None:
    runs = []
    for objective in ("ce", "cce"):
        for seed in range(5):
            own = predict([1.0, 1.0, 1.0], names=["many", "medium", "rare"], counts=[200, 160, 8], support=support)
            own = replace(own, ids=np.array([f"{seed}/{n}" for n in range(len(own.ids))]))
            runs.append(fabricate(tmp_path, objective, seed, own, data__rotate=True))
    sentence = unsure_sentence(compare_runs(runs), "runs/it")
    assert words in sentence.replace("\n  ", " ")
    assert max(map(len, sentence.splitlines())) <= 100
