"""Every number on the page, found by the heading of its column, against scikit-learn, scipy and numpy."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import binomtest, gmean
from sklearn import metrics as sk

from evenhand.metrics.predictions import Predictions, load_predictions
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.report import _embed_figures
from evenhand.report._report_data import read_report_data
from evenhand.report._serve_summary import metric_rows
from evenhand.report.page import render
from evenhand.runs.run import Run
from evenhand.statistics.intervals import mean_recall_interval
from tests.fabricated import write_comparison_folder, write_pictured_run

NAMES = ("cat", "dog", "owl", "lynx", "hare")
TESTED = (19, 16, 13, 9, 7)
COUNTS = ("training images", "test images")
ALL_SEEDS = ("training images", "test images (all seeds)")

Cells = dict[str, tuple[str, str]]
"""By the heading of the column: text, and the small text next to it."""


class Tables(HTMLParser):
    """The tables of a page: for each row its name and its cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[list[tuple[str, Cells]]] = []
        self.heads: list[str] = []
        self.cells: list[list[str]] = []
        self.titles: list[str] = []
        self.small = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.found.append([])
            self.heads = []
        elif tag == "tr":
            self.cells, self.titles = [], []
        elif tag in ("th", "td"):
            self.cells.append(["", ""])
            self.titles.append(dict(attrs).get("title") or "")
        self.small = tag == "small"

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1][self.small] += data.strip()

    def handle_endtag(self, tag: str) -> None:
        if tag == "thead":  # its last row; a column of a group bears the group in its title
            self.heads = [title or text for title, (text, _) in zip(self.titles, self.cells, strict=True)]
        elif tag == "tr" and self.heads:
            row = dict(zip(self.heads, map(tuple, self.cells), strict=True))
            self.found[-1].append((self.cells[0][0], row))
        elif tag == "table":
            self.cells = []


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_embed_figures, "figure_bytes", lambda *_: b"<svg></svg>")


def calibration_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    error = 0.0
    for k in range(15):
        inside = (confidence > k / 15) & (confidence <= (k + 1) / 15)
        if inside.any():
            error += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    return error


def metrics_of(predictions: Predictions) -> dict[str, float]:
    """All metrics of the page by heading, shares in percent, without a function of evenhand.metrics."""
    actual, probabilities = predictions.targets, softmax(predictions.logits.astype(np.float64), axis=1)
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    recall = sk.recall_score(actual, predicted, average=None)
    groups = find_shot_groups(predictions.train_counts)
    return {
        "balanced accuracy": 100 * sk.balanced_accuracy_score(actual, predicted),
        "accuracy": 100 * sk.accuracy_score(actual, predicted),
        "macro F1": 100 * sk.f1_score(actual, predicted, average="macro"),
        "G-mean": 100 * gmean(recall),
        "MCC": sk.matthews_corrcoef(actual, predicted),
        "Cohen's kappa": sk.cohen_kappa_score(actual, predicted),
        "NLL (nats)": sk.log_loss(actual, probabilities),
        "ECE": 100 * calibration_error(confidence, predicted == actual),
        "mean confidence": 100 * confidence.mean(),
        "many": 100 * recall[list(groups.many)].mean(),
        "medium": 100 * recall[list(groups.medium)].mean(),
        "few": 100 * recall[list(groups.few)].mean(),
    }


def shown(heading: str, value: float) -> str:
    return f"{value:.3f}" if heading in ("MCC", "Cohen's kappa", "NLL (nats)") else f"{value:.1f}"


def wilson(successes: float, trials: int) -> str:
    ends = binomtest(round(successes), int(trials)).proportion_ci(method="wilson")
    return f"[{100 * ends.low:.1f}, {100 * ends.high:.1f}]"


def check_classes(
    rows: list[tuple[str, Cells]],
    precise: dict[str, Cells],
    seeds: dict[str, list[Predictions]],
    baseline: str | None,
) -> None:
    """The tables of classes; precision and F1 are of all seeds together."""
    first = next(iter(seeds.values()))[0]
    assert [name for name, _ in rows] == [NAMES[k] for k in np.argsort(-first.train_counts, kind="stable")]
    recalls = {}
    for objective, own in seeds.items():
        actual = np.concatenate([each.targets for each in own])
        predicted = np.concatenate([each.logits.argmax(axis=1) for each in own])
        precision, recall, f1, support = sk.precision_recall_fscore_support(actual, predicted, zero_division=0)
        recalls[objective] = recall
        for name, cells in rows:
            k = NAMES.index(name)
            tested = support[k] // len(own)
            assert [cells[head][0] for head in (COUNTS if len(own) == 1 else ALL_SEEDS)] == [
                f"{first.train_counts[k]:,}",
                f"{tested:,}",
            ]
            share, interval = cells[f"recall (%), {objective}"]
            assert share == f"{100 * recall[k]:.1f}"
            if len(own) == 1:
                assert interval == wilson(recall[k] * tested, tested)
            assert precise[name][f"precision (%), {objective}"] == (f"{100 * precision[k]:.1f}", "")
            assert precise[name][f"F1 (%), {objective}"] == (f"{100 * f1[k]:.1f}", "")
    for name, cells in rows:
        for objective in seeds:
            if baseline is not None and objective != baseline:
                k = NAMES.index(name)
                points = round(100 * (recalls[objective][k] - recalls[baseline][k]), 1)
                text = cells[f"difference from {baseline} (pp), {objective}"][0]
                assert text == (f"{points:+.1f}" if points else "0.0")


def check_confusions(rows: list[tuple[str, Cells]], seeds: list[Predictions], what: str) -> None:
    """The largest confusions, of all seeds together."""
    counts = sum(sk.confusion_matrix(each.targets, each.logits.argmax(axis=1)) for each in seeds)
    totals = counts.sum(axis=1)
    wrong = [(counts[k, j] / totals[k], k, j) for k in range(5) for j in range(5) if k != j and counts[k, j]]
    assert [cells["%"][0] for _, cells in rows] == [f"{100 * share:.1f}" for share, *_ in sorted(wrong)[::-1][:15]]
    for name, cells in rows:
        k, j = NAMES.index(name), NAMES.index(cells["predicted as"][0])
        assert cells[what][0] == f"{counts[k, j]} of {totals[k]}"


def check_calibration(cells: Cells, seeds: list[Predictions]) -> None:
    """The table of calibration: means over seeds."""
    found: dict[str, list[float]] = {}
    groups = find_shot_groups(seeds[0].train_counts)
    for each in seeds:
        probabilities = softmax(each.logits.astype(np.float64), axis=1)
        confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == each.targets
        found.setdefault("accuracy (%)", []).append(correct.mean())
        found.setdefault("mean confidence (%)", []).append(confidence.mean())
        found.setdefault("ECE (%)", []).append(calibration_error(confidence, correct))
        for name in ("many", "medium", "few"):
            own = np.isin(each.targets, getattr(groups, name))
            found.setdefault(f"ECE, {name}-shot (%)", []).append(calibration_error(confidence[own], correct[own]))
    assert {head: cells[head][0] for head in found} == {k: f"{100 * np.mean(own):.1f}" for k, own in found.items()}


def test_a_run(tmp_path: Path) -> None:
    folder = write_pictured_run(tmp_path / "run", names=NAMES, gain=-0.5, per_class=TESTED)
    predictions = load_predictions(folder / "predictions.npz")
    text = render(read_report_data([folder]), embedding=False)
    _, results, classes, precise, confusion, pairs, calibration = Tables(text).found
    [(name, cells)] = results
    expected = metrics_of(predictions)
    assert len({shown(heading, value) for heading, value in expected.items()}) == len(expected), "none may be mistaken"
    assert name == "ce"
    assert set(cells) == {"objective", *expected, "worst class", "s/epoch"}
    assert {heading: cells[heading][0] for heading in expected} == {
        heading: shown(heading, value) for heading, value in expected.items()
    }
    actual, predicted = predictions.targets, predictions.logits.argmax(axis=1)
    assert cells["accuracy"][1] == wilson((actual == predicted).sum(), len(actual))
    low, high = mean_recall_interval(actual == predicted, actual)
    assert cells["balanced accuracy"][1] == f"[{100 * low:.1f}, {100 * high:.1f}]"
    recall = sk.recall_score(actual, predicted, average=None)
    assert cells["worst class"] == (NAMES[recall.argmin()], f"{100 * recall.min():.1f}%")
    assert cells["s/epoch"][0] == "1.00"
    check_classes(classes, dict(precise), {"ce": [predictions]}, None)
    check_confusions(pairs, [predictions], "test images")
    check_calibration(dict(calibration)["ce"], [predictions])
    assert dict(calibration)["ce"]["ECE (%)"][0] == cells["ECE"][0]
    counts = sk.confusion_matrix(actual, predicted)
    percent = 100 * counts / counts.sum(axis=1, keepdims=True)
    for name, cells in confusion:
        row = percent[NAMES.index(name)]
        for other in NAMES:
            share = row[NAMES.index(other)]
            assert cells[other][0] == (f"{share:.0f}" if share else "")
    probabilities = softmax(predictions.logits.astype(np.float64), axis=1)
    wrong = np.sort(probabilities.max(axis=1)[predicted != actual])[::-1][:60]
    assert re.findall(r"confidence ([\d.]+)%", text) == [f"{100 * value:.1f}" for value in wrong]


def test_a_comparison_shows_means_over_seeds(tmp_path: Path) -> None:
    folder = write_comparison_folder(tmp_path, names=NAMES, seeds=3, per_class=TESTED)
    tables = Tables(render(read_report_data([folder]), embedding=False)).found
    _, results, differences, classes, precise, _, pairs = tables[:7]
    seeds = {
        objective: [load_predictions(folder / f"{objective}-{seed}" / "predictions.npz") for seed in range(3)]
        for objective in ("ce", "cce")
    }
    check_classes(classes, dict(precise), seeds, "ce")
    check_confusions(pairs, seeds["ce"], "predictions")
    for name, cells in tables[-1]:
        check_calibration(cells, seeds[name])
        assert cells["ECE (%)"][0] == dict(results)[name]["ECE"][0]
    means = {}
    for objective, predictions in seeds.items():
        own = [metrics_of(each) for each in predictions]
        means[objective] = {heading: [each[heading] for each in own] for heading in own[0]}
    assert [name for name, _ in results] == ["ce", "cce"]
    for name, cells in results:
        shown_here = set(cells) - {"objective", "worst class", "validation", "s/epoch"}
        assert {"balanced accuracy", "accuracy", "macro F1", "ECE", "many", "medium", "few"} <= shown_here
        for heading in shown_here:
            values = means[name][heading]
            assert cells[heading][0] == shown(heading, np.mean(values)), heading
        assert cells["balanced accuracy"][1] == f"± {np.std(means[name]['balanced accuracy'], ddof=1):.1f}"
    points = {
        name: cells["difference (pp)"][0] for name, cells in differences if cells["metric"][0] == "balanced accuracy"
    }
    difference = np.mean(means["cce"]["balanced accuracy"]) - np.mean(means["ce"]["balanced accuracy"])
    assert points == {"cce": f"{difference:+.1f}"}


def test_serve_shows_the_same_metrics(tmp_path: Path) -> None:
    folder = write_pictured_run(tmp_path / "run", names=NAMES, gain=-0.5, per_class=TESTED)
    expected = metrics_of(load_predictions(folder / "predictions.npz"))
    rows = {row["title"].removesuffix("-shot recall"): row for row in metric_rows(Run(folder).summary)}
    for heading, value in expected.items():
        unit = "" if heading in ("MCC", "Cohen's kappa", "NLL (nats)") else "%"
        assert rows[heading]["text"] == shown(heading, value) + unit
        assert rows[heading]["value"] == pytest.approx(value / (100 if unit else 1))
