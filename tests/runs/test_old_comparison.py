"""A comparison of an earlier version is read by this one, and compared again it gives the same means."""

import json
import shutil
from pathlib import Path

import pytest
from scipy.stats import t

from evenhand.experiments.comparison import ComparisonResult, compare_runs
from evenhand.report._listing import Listing
from evenhand.report._report_data import read_report_data
from evenhand.report._tables import difference_table, objective_table
from evenhand.runs.comparison import Comparison, is_comparison, read_recommended
from evenhand.runs.interim_analyses import read_interim_analyses

OLD = Path(__file__).parent / "old_comparison"
FAMILY = next(iter(json.loads((OLD / "looks.json").read_text())))
FILE = json.loads((OLD / "comparison.json").read_text())


def test_every_value_is_read() -> None:
    found = Comparison.read(OLD)
    assert (found.source, found.baseline, found.seeds, found.test_images) == ("three", "ce", [0, 1], 80)
    assert found.objectives == ["ce", "balanced-softmax"]
    for row, kept in zip(found.rows, FILE["table"], strict=True):
        assert {name: kept[name] for name in row.scores} == row.scores
        assert set(row.scores) >= {"balanced_accuracy", "accuracy", "many", "few"}
        assert row.balanced_accuracy_spread == kept["balanced_accuracy_spread"]
    assert [each.outcome for each in found.differences] == ["undecided", "not tested"]
    assert [each.words for each in found.differences] == ["undecided", "not tested (baseline failed)"]
    assert found.differences[0].images is not None
    assert [(row.rose, row.fell) for row in found.per_class] == [(row["won"], row["paid"]) for row in FILE["per_class"]]
    assert found.per_class[2].rose == ["balanced-softmax"]
    assert [run.folder for run in found.runs] == [OLD / run["folder"] for run in FILE["runs"]]
    assert ComparisonResult.read(OLD / "comparison.json").table().count("balanced-softmax") > 3


def test_its_interim_analysis_is_read() -> None:
    [found] = read_interim_analyses(OLD, FAMILY)
    assert (found.seeds, found.level, found.exploratory) == (2, 0.05, False)
    assert found.picked == ["ce", "balanced-softmax"]
    assert found.differences == Comparison.read(OLD).differences


def test_report_listing_and_recommendation_read_it() -> None:
    assert is_comparison(OLD)
    data = read_report_data([OLD])
    assert [len(runs) for runs in data.finished.values()] == [2, 2]
    assert [row[0].text for row in objective_table(data).rows] == ["ce", "balanced-softmax"]
    assert difference_table(Comparison.read(OLD)).rows[0][-1].text == "undecided"
    listing = Listing(OLD)
    listing.refresh()
    [listed] = listing.comparisons()
    assert listed.problems == ()
    assert [name for name, _ in listed.balanced_accuracy] == ["balanced-softmax", "ce"]
    assert listed.verdict == FILE["verdicts"][-1]
    recommended = read_recommended(OLD)
    assert (recommended.objective, len(recommended.runs)) == (FILE["recommended"], 2)


def test_written_again_it_is_the_same(tmp_path: Path) -> None:
    copy = shutil.copytree(OLD, tmp_path / "copy")
    found = Comparison.read(OLD)
    found.model_copy(update={"runs": Comparison.read(copy).runs}).write(copy)
    assert Comparison.read(copy).to_json(copy) == found.to_json(OLD)
    content = found.to_json(OLD)
    derived = {"outcome", "words"}
    for old, new in zip(FILE["differences"], content["differences"], strict=True):
        if new["images"]:
            assert new["images"].pop("rotated") is False  # not kept then; read as the file says it was tested
            assert set(new["images"]) - set(old["images"]) <= {"of_one_seed"}
            new["images"] = {key: new["images"][key] for key in old["images"]}
        assert {key: new[key] for key in old if key not in derived} == {
            key: old[key] for key in old if key not in derived
        }
    for old, new in zip(FILE["table"], content["table"], strict=True):
        assert {key: new[key] for key in old} == old


def test_compared_again_its_numbers_are_the_same() -> None:
    again = compare_runs([OLD / run["folder"] for run in FILE["runs"]]).to_json(OLD)
    for old, new in zip(FILE["table"], again["table"], strict=True):
        assert {key: new[key] for key in old} == {
            key: value if isinstance(value, str) or value is None else pytest.approx(value)
            for key, value in old.items()
        }
    for old, new in zip(FILE["runs"], again["runs"], strict=True):
        assert {name: new["test"][name] for name in old["test"]} == pytest.approx(old["test"])
    for old, new in zip(FILE["differences"], again["differences"], strict=True):
        for key in ("mean", "level", "spread"):
            assert new[key] == (None if old[key] is None else pytest.approx(old[key])), key
    # Intervals have become longer by the training images that its two folds share: with one degree of freedom and 77,
    # the half-widths add as squares.
    old, new = FILE["differences"][0], again["differences"][0]
    assert new["images"]["rotated"]
    added = t.ppf(0.975, 77) * new["images"]["shared"]
    assert new["high"] - new["mean"] == pytest.approx(((old["high"] - old["mean"]) ** 2 + added**2) ** 0.5)
    assert 0 < added < 0.1
    assert old["p"] < new["p"] < old["p"] + 0.01
