"""Test sets that rotate over seeds: what is compared, claimed, shown and refused."""

import json
from pathlib import Path

import numpy as np
import pytest

import evenhand
from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.experiments.api import plan_comparison
from evenhand.experiments.comparison import compare_runs
from evenhand.metrics.per_image import correct_per_image
from evenhand.report.page import write_report
from evenhand.runs.config import Config, make_config
from evenhand.runs.run import Run
from evenhand.statistics.image_sampling import paired_image_error
from tests.training.runs import tiny


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rotated")
    evenhand.compare(config=tiny(epochs=1), objectives=["ce", "cce"], seeds=3, out=folder, jobs=1)
    return folder


def runs_of(folder: Path) -> dict[tuple[str, int], Run]:
    found = json.loads((folder / "comparison.json").read_text())
    return {(each["objective"], each["seed"]): Run(folder / each["folder"]) for each in found["runs"]}


def test_seeds_have_test_images_of_their_own_which_objectives_share(compared: Path) -> None:
    runs = runs_of(compared)
    tested = {key: set(run.splits.test) for key, run in runs.items()}
    for seed in range(3):
        assert tested["ce", seed] == tested["cce", seed]
        assert not tested["ce", seed] & set(runs["ce", seed].splits.train + runs["ce", seed].splits.val)
    assert not tested["ce", 0] & tested["ce", 1]
    assert not tested["ce", 1] & tested["ce", 2]
    together = set.union(*tested.values())
    found = json.loads((compared / "comparison.json").read_text())
    assert found["test_images"] == len(together) == 3 * len(tested["ce", 0])
    assert sum(row["test_count"] for row in found["per_class"]) == len(together)


def test_its_figures_are_those_of_each_seed_on_its_own_images(compared: Path) -> None:
    runs, found = runs_of(compared), json.loads((compared / "comparison.json").read_text())
    for row in found["table"]:
        own = [runs[row["objective"], seed].summary.balanced_accuracy for seed in range(3)]
        assert row["balanced_accuracy"] == pytest.approx(np.mean(own))
        assert row["balanced_accuracy_spread"] == pytest.approx(np.std(own, ddof=1))
    assert found["ensemble"] is None  # each run has seen test images of the others
    assert not any("--ensemble" in note for note in found["notes"])
    assert any(
        note.startswith(
            "Each seed is tested on a different fold (5-fold cross-validation): 3 of 5 folds were used, 1,077 images"
        )
        for note in found["notes"]
    )


def test_images_count_by_what_they_gained_wherever_they_were_tested(compared: Path) -> None:
    runs = runs_of(compared)
    ours, base = (correct_per_image([runs[name, seed].predictions for seed in range(3)]) for name in ("cce", "ce"))
    error = paired_image_error(ours.correct[None], base.correct[None], ours.targets)
    comparison = compare_runs([run.path for run in runs.values()])
    found = next(each for each in comparison.differences if each.metric == "balanced_accuracy").images
    assert found is not None
    assert found.error == pytest.approx(error.error)
    # No image is tested twice, so a fifth of the variance over images is taken to be training noise; of the rest,
    # training images that two of three folds have in common count by class, as the formula of the guide says. Seeds
    # that train on a part of a fold differ by that part too, so less is noise; error rates are shrunk to their mean.
    counts = np.mean([runs["ce", seed].predictions.train_counts for seed in range(3)], axis=0)
    missed = 1 - (ours.correct + base.correct) / 2
    rate = np.mean([missed[ours.targets == k].mean() for k in range(10)])
    expected = 0.0
    for k in range(10):
        gains = (ours.correct - base.correct)[ours.targets == k]
        pooled = sum(
            ((ours.correct - base.correct)[ours.targets == j].var() * (ours.targets == j).sum()) for j in range(10)
        )
        usual = (pooled + 1) / (len(ours.targets) - 10 + 4)
        own = ((len(gains) - 1) * gains.var(ddof=1) + 4 * usual) / (len(gains) + 3) / len(gains) / 100
        own_rate = (missed[ours.targets == k].sum() + 4 * rate) / (len(gains) + 4)
        part = min(1, 3 * own_rate) / (1 + counts[k] / 40)
        kept = min(1, counts[k] / (len(gains) / 3 * 4))
        expected += 0.75 * kept * part * own * len(gains) / counts[k] * (1 - 0.2 * kept)
    assert found.rotated
    assert found.shared**2 == pytest.approx(expected, rel=0.02)  # 2%: counts are rounded


def test_the_page_and_the_model_of_such_a_comparison(compared: Path) -> None:
    page = write_report([compared], embedding=False).read_text()
    assert "3 seeds per objective, 1,077 test images" in page
    assert "Each seed is tested on a different fold" in page
    assert evenhand.load(compared).predict(load_source("digits").pixels.images[:2]).probabilities.shape == (2, 10)


def rotates(base: Config) -> bool:
    return plan_comparison(base, ["ce", "cce"], out="nowhere").base.data.rotate


def test_who_rotates(tmp_path: Path) -> None:
    images, labels = load_source("digits").pixels.images[:40], load_source("digits").labels[:40]
    np.savez(tmp_path / "whole.npz", train_images=images, train_labels=labels)
    np.savez(tmp_path / "fixed.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    assert rotates(make_config(data__source=str(tmp_path / "whole.npz")))
    assert not rotates(make_config(data__source=str(tmp_path / "fixed.npz")))
    assert not rotates(make_config(settings=["data.rotate=false"]))
    assert not rotates(make_config(start__weights="any"))  # weights may have seen any image


def test_runs_that_rotate_are_not_mixed_with_others(compared: Path, tmp_path: Path) -> None:
    plain = evenhand.train(config=tiny(epochs=1, objective="cce", seed=1), out=tmp_path / "plain")
    with pytest.raises(EvenhandError, match=r"data.rotate is True in one and False in the other"):
        compare_runs([runs_of(compared)["ce", 1].path, plain.path])
