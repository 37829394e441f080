"""The cost of decisions in a comparison."""

from pathlib import Path

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.data.table import SampleTable
from evenhand.experiments.comparison import compare_runs
from evenhand.experiments.comparison.costs import (
    _recommended,
    check_costs,
    check_metric,
    cost_table,
    name_costs,
    with_costs,
)
from evenhand.experiments.comparison.unsure import unsure_sentence
from evenhand.report.figures import cost_by_objective
from evenhand.runs.comparison import Comparison, read_recommended
from evenhand.runs.comparison_schemas import CostRow
from evenhand.runs.config import make_config
from evenhand.runs.run import Run
from evenhand.runs.unsure import set_rule_of_folds
from evenhand.training.decisions import load_unsure
from evenhand.training.predict import load
from evenhand.training.run import train_run
from tests.training.runs import tiny


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    root = tmp_path_factory.mktemp("compared")
    return [
        train_run(tiny("data.rotate=true", objective=name, seed=seed), root / f"{name}-{seed}")
        for name in ("ce", "balanced-softmax")
        for seed in (0, 1)
    ]


def test_costs_of_a_comparison(runs: list[Run], tmp_path: Path) -> None:
    path = tmp_path / "costs.csv"
    path.write_text("".join(f"{k},{1 + 9 * (k > 6)}\n" for k in range(10)))
    comparison = compare_runs(runs)
    found = with_costs(comparison, path, metric="cost")
    assert found.costs is not None
    for row in found.costs.rows:
        realised = []
        for run in (each for each in runs if each.config.objective == row.objective):
            test, counts = run.predictions, run.predictions.fitted_counts
            assert counts is not None
            z = test.logits.astype(np.float64) - (np.log(counts) if row.objective == "ce" else 0)
            p = np.exp(z - z.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            miss = np.where(np.arange(10) > 6, 10.0, 1.0)
            decided = (miss * p).argmax(1)  # a cost per class: the largest weighted probability
            wrong = (decided != test.targets) * miss[test.targets]
            realised.append(np.mean([wrong[test.targets == k].mean() for k in range(10)]))
        assert row.realised == pytest.approx(np.mean(realised))
        assert row.spread == pytest.approx(np.std(realised, ddof=1))
    base, other = found.costs.rows
    assert other.difference == pytest.approx(other.realised - base.realised)
    assert other.low is None or other.low <= other.difference <= other.high  # type: ignore[operator]
    assert "most probable" in cost_table(found.costs)
    assert cost_by_objective(found.costs).axes
    moved = found.model_copy(update={"runs": [run.model_copy(update={"folder": run.folder}) for run in found.runs]})
    moved.write(runs[0].path.parent)
    assert Comparison.read(runs[0].path.parent).costs == found.costs
    assert read_recommended(runs[0].path.parent).objective == found.recommended
    assert with_costs(comparison, path).recommended == comparison.recommended
    sentence = unsure_sentence(comparison, "runs/it")
    assert sentence.startswith("Unsure: to cover each class in 90% of its images")
    assert sentence.endswith("evenhand predict runs/it IMAGES --coverage 0.9")
    path.write_text("0,1\n")
    with pytest.raises(EvenhandError, match="Cannot read costs from"):
        with_costs(comparison, path)


def row(name: str, realised: float, outcome: str = "") -> CostRow:
    sizes = {"difference": realised - 0.3, "low": realised - 0.4, "high": realised - 0.2} if outcome else {}
    return CostRow(objective=name, realised=realised, expected=0.3, most_probable=0.4, outcome=outcome, **sizes)


@pytest.mark.parametrize(
    ("others", "chosen", "words"),
    [
        ([("a", 0.2, "better"), ("b", 0.1, "better")], "b", "Which of it and a costs less was not tested."),
        ([("a", 0.2, "better"), ("b", 0.1, "undecided")], "a", "Use a: its decisions cost 0.2 per image, -0.1 ["),
        ([("a", 0.2, "undecided"), ("b", 0.5, "worse")], "a", "Undecided by cost; a has the lowest mean, 0.2 per"),
        ([("a", 0.2, "better on these test images only")], "a", "Undecided by cost; a has the lowest mean"),
        ([("a", 0.5, "worse"), ("b", 0.4, "worse")], "ce", "Use ce: it costs 0.3 per image, 5 seeds, and all others"),
        ([("a", 0.5, "worse"), ("b", 0.4, "undecided")], "ce", "Undecided by cost; ce has the lowest mean, 0.3 per"),
    ],
)
def test_one_objective_is_recommended_by_cost(others: list[tuple[str, float, str]], chosen: str, words: str) -> None:
    found, sentence = _recommended([row("ce", 0.3), *(row(*each) for each in others)], "ce", 5)
    assert found == chosen
    assert words in sentence
    assert ", 5 seeds" in sentence


def test_costs_that_were_added_later_are_exploratory(runs: list[Run], tmp_path: Path) -> None:
    path = tmp_path / "costs.csv"
    path.write_text("".join(f"{k},{1 + 9 * (k > 6)}\n" for k in range(10)))
    found = with_costs(compare_runs(runs), path, metric="cost", level=0)
    assert found.costs is not None
    assert found.certainty == "undecided"
    assert found.verdicts[-1].startswith("Exploratory, as no analysis in this folder was planned with these costs: ")
    assert [each.outcome for each in found.costs.rows] == ["", "exploratory"]
    first = name_costs(path)
    path.write_text("".join(f"{k},{1 + 8 * (k > 6)}\n" for k in range(10)))
    assert len({first, name_costs(path), name_costs(path, "train")}) == 3


def test_sets_of_folds_use_the_model_of_each_fold(runs: list[Run]) -> None:
    folder = runs[0].path.parent
    comparison = compare_runs(runs)
    comparison.write(folder)
    images = [np.full((8, 8, 1), value, np.uint8) for value in (0, 90, 200)]
    model = load_unsure(folder, coverage=0.8)
    (batch,) = model.stream(images)
    members = read_recommended(folder).runs
    each = [next(load(run.path).stream(images)).probabilities for run in members]
    np.testing.assert_allclose(batch.probabilities, np.mean(each, axis=0), atol=1e-6)
    np.testing.assert_array_equal(batch.sets, set_rule_of_folds(members, 0.8)[0].sets(each))
    assert "test images of 2 folds, by which the objective was recommended too" in model.describe()[0]
    with pytest.raises(EvenhandError, match="has no calibration images"):
        load_unsure(folder, min_precision=0.8)


@pytest.mark.parametrize(
    ("objectives", "costs", "prior", "message"),
    [
        (("ce", "focal"), "0,1\n1,1\n", None, "The probabilities of focal hold for no known class shares"),
        (("ce", "ce+label-smoothing"), "0,1\n1,1\n", None, "leave it out of --objectives."),
        (("ce", "balanced-softmax"), "0,1\n2,1\n", None, "its rows have unknown classes: '2'"),
        (("ce", "balanced-softmax"), "0,1\n1,1\n", "shares.csv", "the share of '1' must be above 0, got 0"),
        (("ce", "balanced-softmax"), "0,1\n1,1\n", "nowhere.csv", "Cannot read class shares from nowhere.csv"),
    ],
)
def test_what_cannot_be_compared_by_cost_is_refused_before_training(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    objectives: tuple[str, ...],
    costs: str,
    prior: str | None,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("costs.csv").write_text(costs)
    Path("shares.csv").write_text("0,1\n1,0\n")
    Path("weights.csv").write_text("0,1\n1,3\n")
    table = load_source("digits")
    few = table.take(np.flatnonzero(table.labels < 2))
    two = SampleTable("two", ("0", "1"), few.labels, few.ids, few.pixels)
    base = make_config(data__source="digits")
    with pytest.raises(EvenhandError) as refused:
        check_costs(base, objectives, two, "costs.csv", prior)
    assert message in str(refused.value)
    Path("costs.csv").write_text("0,1\n1,5\n")
    known = ["ce", "balanced-softmax", "ce+weights:file=weights.csv", "ce+cosine:lda=0.3:scale=20+post-hoc:tau=1"]
    for given in (None, "train", "uniform"):
        check_costs(base, known, two, "costs.csv", given)


def test_what_a_metric_needs() -> None:
    for metric, costs, seeds, message in (
        ("cost", None, 3, "needs a file of costs"),
        ("cost", Path("costs.csv"), None, "fixed number of seeds"),
        ("price", Path("costs.csv"), 3, "takes balanced_accuracy or cost, got 'price'"),
    ):
        with pytest.raises(EvenhandError, match=message):
            check_metric(metric, costs, seeds)
    assert check_metric("balanced_accuracy", None, None) == "balanced_accuracy"
