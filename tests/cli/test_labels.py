"""`evenhand inspect SOURCE --labels COMPARISON`: the flipped label comes first, on a page that runs nothing."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.experiments.comparison import compare_runs, write_comparison
from evenhand.experiments.wrong_labels import find_wrong_labels
from evenhand.metrics.predictions import Predictions
from tests.cli.test_planted_links import WAYS, Way, contents, whole_folder
from tests.fabricated import fabricate
from tests.trained import assert_one_sentence, draw, evenhand

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
NAMES = ("cat", "<script>alert(1)</script>", "dog")
COUNTS = (30, 12, 20)
FLIPPED = "dog/4.png"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A manifest in which one dog is labelled a cat."""
    root = draw(tmp_path, dict(zip(("cat", "script", "dog"), COUNTS, strict=True)))
    paths = [
        f"{folder}/{i}.png"
        for folder, count in zip(("cat", "script", "dog"), COUNTS, strict=True)
        for i in range(count)
    ]
    labels = [NAMES[k] for k in np.repeat([0, 1, 2], COUNTS)]
    with (root / "list.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows((path, "cat" if path == FLIPPED else label) for path, label in zip(paths, labels, strict=True))
    return root / "list.csv"


def write_runs(source: Path, folder: Path) -> Path:
    """Write a comparison of two objectives and two folds, whose runs know the true classes, the second less surely."""
    table = load_source(source)
    truth = np.array([{"cat": 1, "script": 0, "dog": 2}[name.split("/")[0]] for name in table.ids.tolist()])
    rng = np.random.default_rng(0)
    runs = []
    for objective in ("ce", "balanced-softmax"):
        for fold in (0, 1):
            rows = np.arange(fold, len(table), 2)
            logits = rng.normal(0, 0.5, (len(rows), 3))
            logits[np.arange(len(rows)), truth[rows]] += np.array([1.5, 5, 5])[truth[rows]]
            predictions = Predictions(
                logits.astype(np.float32),
                table.labels[rows],
                table.ids[rows],
                table.class_names,
                np.array([10, 25, 16]),
            )
            runs.append(fabricate(folder, objective, fold, predictions, data__source=str(source), data__rotate=True))
    write_comparison(compare_runs(runs), folder)
    return folder


def test_the_flipped_label_is_ranked_first_and_shown(
    capsys: Capture, monkeypatch: Patch, source: Path, tmp_path: Path
) -> None:
    comparison = write_runs(source, tmp_path / "runs")
    code, out, _ = evenhand(capsys, monkeypatch, "inspect", source, "--labels", comparison)
    assert code == 0
    assert "1 of 62 labels are flagged as wrong" in out
    assert FLIPPED in next(line for line in out.splitlines() if "%" in line and ".png" in line)
    page = (comparison / "wrong-labels.html").read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("data:image/") == 62
    with (comparison / "wrong-labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 62
    assert (rows[0]["image"], rows[0]["label"], rows[0]["suggested"], rows[0]["flagged"]) == (
        FLIPPED,
        "cat",
        "dog",
        "True",
    )
    code, out, _ = evenhand(capsys, monkeypatch, "inspect", source, "--labels", comparison, "--json", "--out", tmp_path)
    assert [each["id"] for each in json.loads(out)["flagged"]] == [FLIPPED]
    assert (tmp_path / "wrong-labels.html").is_file()


@pytest.mark.parametrize("way", WAYS)
def test_planted_links_are_not_followed(
    source: Path, tmp_path: Path, way: Way, capsys: Capture, monkeypatch: Patch
) -> None:
    """Of the page, of the table, and of a folder in the comparison that `--out` names."""
    comparison, canary = write_runs(source, tmp_path / "runs"), tmp_path / "canary"
    places = [comparison / "wrong-labels.html", comparison / "wrong-labels.csv", comparison / "inner"]
    places[-1].mkdir()
    for place in places:
        (canary / place.name).mkdir(parents=True)
        way(place, canary / place.name)
    before = contents(canary)
    for out in ((), ("--out", comparison / "inner"), ("--out", comparison / "inner" / "new")):
        code, _, err = evenhand(capsys, monkeypatch, "inspect", source, "--labels", comparison, *out)
        assert code in (0, 2), err
        assert "Traceback" not in err
        assert contents(canary) == before, out
    assert not (comparison / "wrong-labels.html").is_symlink() or way is whole_folder


def test_probabilities_hold_for_the_shares_of_the_training_images(source: Path, tmp_path: Path) -> None:
    found = find_wrong_labels(source, write_runs(source, tmp_path / "runs"))
    runs = [run for run in (tmp_path / "runs").iterdir() if run.name.startswith(f"{found.objective}-")]
    shares = np.array([10, 25, 16]) / 51
    expected = {}
    for run in runs:
        with np.load(run / "predictions.npz") as content:
            weights = np.exp(content["logits"].astype(np.float64)) * (shares if found.objective != "ce" else 1)
            expected |= dict(zip(content["ids"].tolist(), weights / weights.sum(1, keepdims=True), strict=True))
    for row, probabilities in zip(found.rows, found.probabilities, strict=True):
        np.testing.assert_allclose(probabilities, expected[str(found.table.ids[row])], rtol=1e-6)


def test_a_corrected_label_is_judged_as_it_is_now(source: Path, tmp_path: Path) -> None:
    comparison = write_runs(source, tmp_path / "runs")
    text = source.read_text("utf-8").replace(f"{FLIPPED},cat", f"{FLIPPED},dog")
    source.write_text(text, "utf-8")
    found = find_wrong_labels(source, comparison)
    assert not found.errors.flagged.any()
    source.write_text(text.replace("cat/3.png,cat\n", ""), "utf-8")
    assert find_wrong_labels(source, comparison).notes == ("1 tested images are no longer in the source.",)


def test_mistakes_are_one_sentence(capsys: Capture, monkeypatch: Patch, source: Path, tmp_path: Path) -> None:
    comparison = write_runs(source, tmp_path / "runs")
    result = evenhand(capsys, monkeypatch, "inspect", "digits", "--labels", comparison)
    assert_one_sentence(result, "none of the images")
    for folder, words in (
        (tmp_path / "no", "no is no comparison: there is no such folder; give a folder that evenhand compare wrote."),
        (tmp_path, "is no comparison: it has no comparison.json; give"),
        (next((tmp_path / "runs").glob("*/config.yaml")).parent, "is no comparison: it is a run; give"),
    ):
        assert_one_sentence(evenhand(capsys, monkeypatch, "inspect", source, "--labels", folder), words)
    source.write_text(source.read_text("utf-8").replace("cat/3.png,cat", "cat/3.png,lion"), "utf-8")
    with pytest.raises(EvenhandError, match="labels that the models do not know: 'lion'"):
        find_wrong_labels(source, comparison)
