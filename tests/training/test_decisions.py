"""Decisions of a trained run: costs, prediction sets, unsure answers."""

import csv
import json
import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import evenhand
from evenhand.cli import app
from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.data.splits import make_splits
from evenhand.runs.held_out import as_used, one_per_group
from evenhand.runs.run import Run
from evenhand.runs.unsure import SetRule, answer_rule, set_rule, set_rule_of_folds
from evenhand.statistics.conformal import Calibration
from evenhand.training.cost_files import read_costs
from evenhand.training.decisions import evaluate_decisions, load_unsure, stored_thresholds
from evenhand.training.export import _metadata, export_onnx
from evenhand.training.posthoc import AdjustmentRequest, evaluate_adjusted
from evenhand.training.prior import change_prior
from evenhand.training.run import train_run
from tests.training.runs import tiny

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_predict.py"
CALIBRATED = "data.calibration_fraction=0.2"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(tiny(CALIBRATED, objective="ce"), tmp_path_factory.mktemp("calibrated") / "run")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(tiny(objective="ce"), tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    return [np.full((8, 8, 1), value, np.uint8) for value in (0, 60, 120, 200)]


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    path = tmp_path / "costs.csv"
    path.write_text("class,cost\n" + "".join(f"{k},{1 + 30 * (k == 9)}\n" for k in range(10)))
    return path


# Calibration images


def test_calibration_images_are_used_for_nothing_else(run: Run) -> None:
    splits, found = run.splits, run.calibration_predictions
    assert found is not None
    assert set(found.ids.tolist()) == set(splits.calibration)
    assert not set(splits.calibration) & (set(splits.train) | set(splits.val) | set(splits.test))
    counts = np.bincount(found.targets, minlength=10)
    total = found.train_counts
    np.testing.assert_array_equal(counts, np.where(total < 27, 0, np.maximum(np.rint(0.2 * total), 9)))
    validated = np.bincount(run.validation_predictions.targets, minlength=10)  # type: ignore[union-attr]
    np.testing.assert_array_equal(found.fitted_counts, total - counts - validated)


def test_without_the_setting_nothing_changes(plain: Run) -> None:
    assert plain.calibration_predictions is None
    assert plain.splits.calibration == ()
    with pytest.raises(EvenhandError, match=r"No class of digits has 27 training images"):
        make_splits(load_source("digits"), fraction=0.1, calibration_fraction=0.2)


def test_one_image_of_a_group_calibrates(run: Run) -> None:
    found = run.calibration_predictions
    assert found is not None
    grouped = replace(found, groups=np.array([str(k // 7) for k in range(len(found))]))
    kept = one_per_group(grouped)
    pairs = set(zip(kept.targets.tolist(), kept.groups.tolist(), strict=True))  # type: ignore[union-attr]
    assert len(kept) == len(pairs) == len(set(zip(grouped.targets.tolist(), grouped.groups.tolist(), strict=True)))  # type: ignore[union-attr]


# Sets and answers


def test_sets_of_predict_are_those_of_the_thresholds(run: Run, images: list[np.ndarray]) -> None:
    model = load_unsure(run.path, coverage=0.8, min_precision=0.2)
    (batch,) = model.stream(images)
    probabilities = evenhand.load(run.path).predict(images)
    np.testing.assert_allclose(batch.probabilities, getattr(probabilities, "probabilities", probabilities), atol=1e-6)
    rule = set_rule(run, 0.8)
    expected = batch.probabilities >= rule.calibration.thresholds(0.8)
    expected[np.arange(len(expected)), batch.probabilities.argmax(1)] = True
    np.testing.assert_array_equal(batch.sets, expected)
    assert batch.answered is not None
    np.testing.assert_array_equal(batch.answered, answer_rule(run, 0.2).answered(batch.probabilities))
    assert any("In every set, with fewer than 4 calibration images: '5 (0)'" in line for line in model.describe())


def test_coverage_in_evaluate_is_counted_on_test_images(run: Run) -> None:
    found = evaluate_decisions(run, run.predictions, coverage=0.8, min_precision=0.2)
    test, rule = run.predictions, set_rule(run, 0.8)
    sets = rule.sets([np.exp(test.log_probabilities())])
    for k, row in enumerate(found["sets"]["per_class"]):
        mine = test.targets == k
        assert row["coverage"] == pytest.approx(sets[mine, k].mean())
        assert row["interval"][0] <= row["coverage"] <= row["interval"][1]
    assert found["sets"]["full"] == pytest.approx(sets.all(1).mean())
    assert [row["name"] for row in found["sets"]["too_few"]] == ["5", "6", "7", "8", "9"]
    answered = answer_rule(run, 0.2).answered(np.exp(test.log_probabilities()))
    assert found["answers"]["precision"] == pytest.approx(test.correct()[answered].mean())
    assert found["answers"]["unsure"] == pytest.approx(1 - answered.mean())
    json.dumps(found, allow_nan=False)


def test_folds_calibrate_each_image_once(plain: Run, tmp_path: Path) -> None:
    rotated = [
        train_run(tiny("data.rotate=true", objective="ce", seed=seed, epochs=1), tmp_path / f"{seed}")
        for seed in (0, 1, 5)
    ]
    rule, members = set_rule_of_folds(rotated, 0.9)
    assert members == rotated[:2]  # nearly all test images of seed 5 are those of seed 0, of five folds
    assert rule.calibration.counts.sum() == len({*rotated[0].splits.test, *rotated[1].splits.test})
    with pytest.raises(EvenhandError, match="no test sets that rotate over several seeds"):
        set_rule_of_folds([plain, plain], 0.9)


def test_an_adjustment_is_in_calibration_too(run: Run, tmp_path: Path) -> None:
    copy = Run(Path(shutil.copytree(run.path, tmp_path / "copy")))
    evaluate_adjusted(copy.path, AdjustmentRequest(adjust="auto"))
    given = copy.adjustment
    assert given is not None
    used = as_used(copy, copy.calibration_predictions)  # type: ignore[arg-type]
    np.testing.assert_allclose(used.adjustment, given.added_to_logits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 1.5}, "--coverage takes a number above 0 and below 1, such as 0.9, got 1.5."),
        ({"min_precision": 0.0}, "--min-precision takes a number above 0 and below 1, such as 0.9, got 0."),
        ({"min_precision": 0.9999}, "A precision of 0.9999 cannot be shown for any answer"),
    ],
)
def test_what_cannot_be_promised_is_refused(run: Run, options: dict[str, float], message: str) -> None:
    with pytest.raises(EvenhandError) as refused:
        load_unsure(run.path, **options)
    assert str(refused.value).startswith(message)


def test_a_run_without_calibration_images_is_refused(plain: Run, run: Run) -> None:
    for options in ({"coverage": 0.9}, {"min_precision": 0.9}):
        with pytest.raises(EvenhandError, match=r"has no calibration images.*--set data.calibration_fraction=0.2"):
            load_unsure(plain.path, **options)
    with pytest.raises(EvenhandError, match="is a file of weights, which has no calibration images"):
        load_unsure(run.selected_weights, coverage=0.9)


# Costs


def test_costs_decide_under_a_uniform_prior(run: Run, costs: Path) -> None:
    model = evenhand.load(run.path, costs=costs)
    logits = run.predictions.logits.astype(np.float64)
    counts = run.predictions.fitted_counts
    assert counts is not None
    odds = np.exp(logits - logits.max(1, keepdims=True)) / counts  # trained with ce: p(x | k) is odds / count
    p = odds / odds.sum(1, keepdims=True)
    matrix = read_costs(costs, run.predictions.class_names)
    expected = [min(range(10), key=lambda j, row=row: sum(row[i] * matrix[i, j] for i in range(10))) for row in p]
    np.testing.assert_array_equal(model.decide(p.astype(np.float32)), expected)
    found = evaluate_decisions(run, run.predictions, costs=costs)["cost"]
    means = [matrix[k, np.array(expected)[run.predictions.targets == k]].mean() for k in range(10)]
    assert found["realised"] == pytest.approx(np.mean(means))
    assert found["expected"] > 0
    np.testing.assert_allclose(model.adjustment, np.log(0.1) - np.log(counts / counts.sum()), rtol=1e-5)


def test_shares_of_training_images_include_those_set_aside(run: Run) -> None:
    """Rare classes give more of their images to validation and calibration, which does not make them rarer."""
    predictions = run.predictions
    total, fitted = predictions.train_counts, predictions.fitted_counts
    assert fitted is not None
    change = change_prior(run, "train")
    np.testing.assert_allclose(change.shares, total / total.sum())
    odds = np.exp(predictions.logits.astype(np.float64)) / fitted * total
    used = np.exp(replace(predictions, adjustment=change.added_to_logits).log_probabilities())
    np.testing.assert_allclose(used, odds / odds.sum(1, keepdims=True), rtol=1e-5)
    assert np.abs(np.log(change.shares / (fitted / fitted.sum()))).max() > 0.1


def test_a_guarantee_is_never_rounded_up(run: Run) -> None:
    for coverage in (0.9, 0.9999999):
        assert f" of at least {coverage}; " in set_rule(run, coverage).describe()[0]
    own, targets = np.linspace(0.1, 0.9, 65), np.zeros(65, np.int64)
    folds = SetRule(Calibration((own, own), (targets, targets), 1), 0.9, ("a",))
    assert folds.calibration.guaranteed(0.9)[0] == pytest.approx(0.7878787)
    assert "and of 0.78 to 0.78 at least, by class" in folds.describe()[0]
    with pytest.raises(EvenhandError, match=r"^A precision of 0\.9999999 cannot be shown"):
        answer_rule(run, 0.9999999)


def test_intervals_of_groups_count_groups(run: Run, costs: Path) -> None:
    """Four copies of an image are one observation: neither the precision nor the cost is known better by them."""
    test = run.predictions
    copies = replace(
        test,
        logits=np.repeat(test.logits, 4, axis=0),
        targets=np.repeat(test.targets, 4),
        ids=np.array([str(k) for k in range(4 * len(test))]),
        groups=np.repeat(test.ids, 4),
    )
    asked = {"costs": costs, "min_precision": 0.2}
    single, grouped = (evaluate_decisions(run, each, **asked) for each in (test, copies))  # type: ignore[arg-type]
    assert grouped["cost"]["realised"] == pytest.approx(single["cost"]["realised"])
    assert grouped["cost"]["error"] == pytest.approx(single["cost"]["error"])
    (low, high), (low_of_groups, high_of_groups) = single["answers"]["interval"], grouped["answers"]["interval"]
    assert high_of_groups - low_of_groups > 0.9 * (high - low)


def test_an_exported_model_decides_by_its_costs(run: Run, costs: Path) -> None:
    example = runpy.run_path(str(EXAMPLE))
    model = evenhand.load(run.path, costs=costs)
    metadata = _metadata(model, None, "uniform", {})
    stored = json.loads(metadata["costs"])
    np.testing.assert_array_equal(stored, read_costs(costs, run.predictions.class_names))
    assert json.loads(metadata["prior"]) == "uniform"
    logits = np.random.default_rng(0).normal(size=(50, 10)).astype(np.float32)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert [example["decide"](row, stored) for row in logits] == model.decide(p).tolist()
    assert example["decide"](logits[0], None) == logits[0].argmax()


def test_an_exported_model_answers_by_its_thresholds(run: Run) -> None:
    example = runpy.run_path(str(EXAMPLE))
    model = load_unsure(run.path, coverage=0.8, min_precision=0.2, device="cpu")
    metadata = json.loads(json.dumps(stored_thresholds(run, 0.8, 0.2)))
    logits = np.random.default_rng(0).normal(0, 3, size=(200, 10)).astype(np.float32)
    p = torch.from_numpy(logits).softmax(1).numpy()
    assert model.sets is not None and model.answers is not None  # noqa: PT018
    names = model.class_names
    for row, each, inside, answered in zip(logits, p, model.sets.sets([p]), model.answers.answered(p), strict=True):
        found, sets = example["answer"](row, names, metadata).split(" ")
        assert found == (names[each.argmax()] if answered else "unsure")
        assert set(sets.split("|")) == {name for name, member in zip(names, inside, strict=True) if member}
    assert example["answer"](logits[0], names, {}) == names[logits[0].argmax()]


@pytest.mark.slow
def test_thresholds_are_exported(run: Run, tmp_path: Path) -> None:
    onnx = tmp_path / "model.onnx"
    export_onnx(run.path, onnx, coverage=0.8, min_precision=0.2)
    _, metadata = runpy.run_path(str(EXAMPLE))["load"](onnx)
    assert (metadata["coverage"], metadata["min_precision"]) == (0.8, 0.2)
    for name, values in stored_thresholds(run, 0.8, 0.2).items():
        assert metadata[name] == list(values)


@pytest.mark.slow
def test_costs_are_exported(run: Run, costs: Path, tmp_path: Path) -> None:
    onnx = tmp_path / "model.onnx"
    export_onnx(run.path, onnx, costs=costs)
    _, metadata = runpy.run_path(str(EXAMPLE))["load"](onnx)
    np.testing.assert_array_equal(metadata["costs"], read_costs(costs, run.predictions.class_names))
    assert metadata["prior"] == metadata["adjustment"]["prior"] == "uniform"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class,cost\n0,1\n", "its rows lack '1', '2', '3', '4', '5' and 4 more; give a cost for every class."),
        ("".join(f"{k},1\n" for k in range(11)), "its rows have unknown classes: '10'; the model knows"),
        ("".join(f"{k},{'nan' if k else 1}\n" for k in range(10)), "the cost of '1' must be finite, got nan."),
        ("".join(f"{k},-1\n" for k in range(10)), "the cost of '0' must be 0 or more, got -1."),
        ("".join(f"{k},much\n" for k in range(10)), "the cost of '0' must be a number, got 'much'."),
        ("".join(f"{k % 9},1\n" for k in range(10)), "'0' is given twice in its rows."),
        ("true,0,1\n0,0,1\n", "its columns lack '2', '3', '4', '5', '6' and 3 more; give a cost for every class."),
        ("", "its rows lack '0', '1', '2', '3', '4' and 5 more; give a cost for every class."),
    ],
)
def test_bad_files_of_costs_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "costs.csv"
    path.write_text(text)
    with pytest.raises(EvenhandError) as refused:
        read_costs(path, [str(k) for k in range(10)])
    assert str(refused.value).startswith(f"Cannot read costs from {path}: {message}")


def test_a_matrix_with_errors_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "costs.csv"
    for text, message in {
        "t,a,b\na,0,1\nb,-2,0\n": "the cost of an error must be 0 or more, got -2 for 'b' as 'a'.",
        "t,a,b\na,0,1\nb,3\n": "the row of 'b' has 1 costs, but there are 2 columns.",
        "t,a,b\na,0,1\nb,inf,0\n": "the cost of 'b' predicted as 'a' must be finite, got inf.",
        "t,a,b\na,1,1\nb,2,2\n": "Every decision costs the same",
        "predicted,a,b\na,0,1\nb,9,0\n": "its first cell is 'predicted'; transpose it, or name that cell true.",
        "0,1,2\na,0,1\n": "its first row must name the predicted classes, got '0,1,2'",
    }.items():
        path.write_text(text)
        with pytest.raises(EvenhandError, match=r"^Cannot read costs from ") as refused:
            read_costs(path, ["a", "b"])
        assert message in str(refused.value)
    for text in ("t;b;a\nb;-1;2\na;3;0\n", "b,a\nb,-1,2\na,3,0\n", "\ufeff\tb\ta\t\t\n\nb\t-1\t2\na\t3\t0\t\n"):
        path.write_text(text, encoding="utf-8")
        np.testing.assert_array_equal(read_costs(path, ["a", "b"]), [[0, 3], [2, -1]])


# The command line


def test_predict_writes_sets_answers_and_costs(run: Run, costs: Path, tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 90, np.uint8)).save(tmp_path / "a.png")
    call = CliRunner()

    def rows(*options: str) -> dict[str, str]:
        done = call.invoke(app, ["predict", str(run.path), str(tmp_path / "a.png"), *options])
        assert done.exit_code == 0, done.output
        lines = [line for line in done.stdout.splitlines() if not line.startswith("evenhand:")]
        return next(iter(csv.DictReader(lines)))

    sets = rows("--coverage", "0.8", "--min-precision", "0.2")
    assert len(sets["set"].split("|")) == int(sets["set_size"]) >= 5
    assert sets["answer"] in ("unsure", sets["class"])
    decided = rows("--costs", str(costs))
    assert float(decided["expected_cost"]) >= 0
    assert rows().keys() == {key for key in decided if key not in ("answer", "expected_cost")}
    for wrong in (["--coverage", "0.9", "--costs", str(costs)], ["--coverage", "2"], ["--min-precision", "0.99999"]):
        done = call.invoke(app, ["predict", str(run.path), str(tmp_path / "a.png"), *wrong])
        assert done.exit_code != 0
