"""The model that a page begins with, against numpy, scipy and scikit-learn."""

import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, linregress, t
from sklearn import metrics as sk

from evenhand.experiments.comparison._comparison import compare_runs, write_comparison
from evenhand.report._model import (
    Model,
    commands,
    count_trend,
    find_model,
    key_figures,
    measured_on,
    photograph_table,
    trend_sentence,
    weakest_classes,
)
from evenhand.report._report_data import read_report_data
from evenhand.report.page import render
from evenhand.runs.comparison import Comparison, read_recommended
from tests.fabricated import fabricate, predict, write_comparison_folder, write_pictured_run

NAMES = tuple(f"class {k}" for k in range(12))


def model_of(folder: Path) -> Model:
    found = find_model(read_report_data([folder]))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_comparison_folder(tmp_path_factory.mktemp("a comparison"), names=NAMES, seeds=3)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_pictured_run(tmp_path / "run", names=NAMES)


def wilson(hits: int, trials: int) -> tuple[float, float]:
    found = binomtest(hits, trials).proportion_ci(method="wilson")
    return found.low, found.high


def brackets(low: float, high: float) -> str:
    return f"[{100 * low:.1f}, {100 * high:.1f}]"


def test_it_is_the_objective_that_the_comparison_recommends_and_the_run_that_predict_uses(compared: Path) -> None:
    model, expected = model_of(compared), read_recommended(compared)
    assert model.name == expected.objective == "cce"
    assert model.used.path == expected.runs[0].path
    assert model.folder == compared
    assert model_of(compared / "comparison.json").folder == compared


def test_an_undecided_recommendation_says_so_and_none_shows_no_model(compared: Path, tmp_path: Path) -> None:
    data = read_report_data([compared])
    assert data.comparison is not None
    shown = find_model(replace(data, comparison=data.comparison.model_copy(update={"certainty": "shown"})))
    assert shown is not None
    assert shown.status == "Recommended objective"
    undecided = data.comparison.model_copy(update={"certainty": "undecided", "recommended": "ce"})
    model = find_model(replace(data, comparison=undecided))
    assert model is not None
    assert (model.name, model.status[:20]) == ("ce", "Recommended for now;")
    older = data.comparison.model_copy(update={"recommended": None})
    assert find_model(replace(data, comparison=older)) is None
    text = render(replace(data, comparison=older), embedding=False)
    assert f"<h1>{Comparison.read(compared).verdicts[-1]}</h1>" in text
    assert 'id="weakest"' not in text
    several = [write_pictured_run(tmp_path / name, names=NAMES, objective=name) for name in ("ce", "cce")]
    assert find_model(read_report_data(several)) is None


def test_what_it_reaches_is_the_mean_over_seeds(compared: Path) -> None:
    model = model_of(compared)
    seeds = [run.predictions for run in model.seeds]
    balanced = [sk.balanced_accuracy_score(each.targets, each.predicted()) for each in seeds]
    plain = [sk.accuracy_score(each.targets, each.predicted()) for each in seeds]
    found = {each.title: each for each in key_figures(model)}
    assert found["balanced accuracy"].value == f"{np.mean(balanced):.1%}"
    assert found["accuracy"].value == f"{np.mean(plain):.1%}"
    together = sum(sk.confusion_matrix(each.targets, each.predicted()) for each in seeds)
    recall = together.diagonal() / together.sum(axis=1)
    assert found["lowest recall"].value == f"{recall.min():.1%}"
    assert found["lowest recall"].note == f"of class {NAMES[recall.argmin()]}"
    spread = f"standard deviation of {100 * np.std(balanced, ddof=1):.1f} pp"
    assert f"Means over 3 seeds; the balanced accuracy of seeds has a {spread}" in measured_on(model)
    assert "over 144 test images" in measured_on(model)


def test_the_intervals_of_a_run_are_those_of_its_summary(run: Path) -> None:
    model = model_of(run)
    summary = model.used.summary
    found = {each.title: each.interval for each in key_figures(model)}
    assert found["balanced accuracy"] == brackets(*summary.balanced_accuracy_interval)
    assert found["accuracy"] == brackets(*wilson(int((model.results.correct == 1).sum()), 144))
    few = summary.groups["few"]
    assert few is not None
    assert found["few-shot recall"] == brackets(*few.interval)


def test_the_weakest_classes_and_what_they_are_taken_for(run: Path) -> None:
    model = model_of(run)
    predictions = model.used.predictions
    counts = sk.confusion_matrix(predictions.targets, predictions.predicted())
    recall = counts.diagonal() / counts.sum(axis=1)
    found = weakest_classes(model)
    assert [each.name for each in found] == [NAMES[k] for k in np.argsort(recall, kind="stable")[:5]]
    for each in found:
        k = NAMES.index(each.name)
        assert each.recall == f"{recall[k]:.1%}"
        assert each.interval == brackets(*wilson(counts[k, k], 12))
        assert each.missed == f"{12 - counts[k, k]} of 12 test images wrong"
        assert each.train_count == predictions.train_counts[k]
        wrong = np.delete(counts[k], k)
        assert [share for _, share in each.confused] == [f"{n / 12:.1%}" for n in np.sort(wrong)[::-1][:3] if n]
        assert all(
            counts[k, NAMES.index(name)] / 12 == pytest.approx(float(share[:-1]) / 100, abs=6e-4)
            for name, share in each.confused
        )


def test_pictures_are_of_the_class_and_of_its_most_confident_errors(run: Path) -> None:
    model = model_of(run)
    predictions = model.used.predictions
    confidence = np.exp(predictions.log_probabilities().max(axis=1))
    for each in weakest_classes(model):
        wrong = (predictions.targets == NAMES.index(each.name)) & (predictions.predicted() != predictions.targets)
        expected = np.sort(confidence[wrong])[::-1][:5]
        np.testing.assert_allclose([one.confidence for one in each.pictures], expected)
        assert all(one.address.startswith("data:image/") and not one.correct for one in each.pictures)


def test_without_pictures_the_rest_is_there(run: Path) -> None:
    (run / "thumbnails.npz").unlink()
    text = render(read_report_data([run]), embedding=False)
    assert "No pictures of it are stored." in text
    assert "predicted as" in text


def test_no_class_is_weak_where_all_is_recognised(tmp_path: Path) -> None:
    run = fabricate(tmp_path, "ce", 0, [1.0, 1.0, 1.0, 1.0])
    assert weakest_classes(model_of(run)) == []
    text = render(read_report_data([run]), embedding=False)
    assert "Every class has a recall of 100%" in text
    assert '<span class="option">--onnx model.onnx</span>' in text


def test_no_class_above_the_mean_is_weak_and_no_recognised_class_is_to_be_photographed(tmp_path: Path) -> None:
    recalls, counts = [1.0, 0.95, 0.95, 0.0], [20, 300, 300, 600]
    given = predict(recalls, names=tuple("abcd"), counts=counts, support=[40, 40, 40, 40])
    model = model_of(fabricate(tmp_path, "ce", 0, given))
    assert [each.name for each in weakest_classes(model)] == ["d"]
    assert "a" not in [row[0].text for row in photograph_table(model).rows]


def test_classes_to_photograph_have_the_most_errors_per_training_image(tmp_path: Path) -> None:
    recalls, counts, support = [0.9, 0.5, 0.5, 1.0, 0.9, 0.2], [400, 300, 10, 5, 20, 6], [40, 40, 40, 3, 40, 10]
    names = tuple("abcdef")
    run = fabricate(tmp_path, "ce", 0, predict(recalls, names=names, counts=counts, support=support))
    middles = [sum(wilson(round(r * n), n)) / 2 for r, n in zip(recalls, support, strict=True)]
    gains = np.array([(1 - middle) / count for middle, count in zip(middles, counts, strict=True)])
    order = np.argsort(-gains)[:3]
    rows = photograph_table(model_of(run)).rows
    assert [row[0].text for row in rows] == [names[k] for k in order] == ["f", "d", "c"]
    for row, k in zip(rows, order, strict=True):
        assert row[1].text == str(counts[k])
        assert row[2].small == brackets(*wilson(round(recalls[k] * support[k]), support[k]))
        needed = math.ceil(1.959964**2 * middles[k] * (1 - middles[k]) / 0.01)
        assert row[3].small == f"({needed})"
    assert [row[4].text for row in rows] == [
        "few training images; low recall; few test images", "few training images; few test images",
        "few training images; low recall",
    ]  # fmt: skip


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 5000)), min_size=5, max_size=40))
def test_the_trend_over_classes_is_scipys_line(pairs: list[tuple[int, int]]) -> None:
    recall, counts = np.array(pairs).T
    found = count_trend(recall / 100, counts)
    if counts.max() < 2 * counts.min():
        assert found is None
        return
    assert found is not None
    line = linregress(np.log2(counts), recall / 100)
    assert found[0] == pytest.approx(line.slope, abs=1e-9)
    assert (found[2] - found[1]) / 2 >= 0
    half = (found[2] - found[1]) / 2
    assert half == pytest.approx(t.ppf(0.975, len(counts) - 2) * line.stderr, abs=1e-6)


def test_the_trend_is_claimed_only_where_its_interval_excludes_zero(tmp_path: Path) -> None:
    counts = [400, 200, 100, 50, 25, 12]
    names = tuple("abcdef")
    for place, (recalls, words) in enumerate(
        [
            ([0.95, 0.85, 0.75, 0.65, 0.55, 0.45], r"\+9\.9 pp of recall .*: more photographs should help"),
            ([0.5, 0.9, 0.6, 0.8, 0.5, 0.9], "it is not shown that more photographs raise recall"),
        ]
    ):
        run = fabricate(tmp_path / str(place), "ce", 0, predict(recalls, names=names, counts=counts))
        assert re.search(words, trend_sentence(model_of(run)))
    even = fabricate(tmp_path / "even", "ce", 0, predict([0.5] * 6, names=names, counts=[50] * 6))
    assert "too similar numbers" in trend_sentence(model_of(even))


def test_commands_name_the_folder_whatever_its_name(compared: Path) -> None:
    given = [shlex.split(command) for _, command in commands(model_of(compared))[:3]]
    assert [each[1] for each in given] == ["predict", "export", "serve"]
    assert all(each[2] == str(compared) for each in given)


def test_test_images_are_counted_alike_where_seeds_have_test_sets_of_their_own(tmp_path: Path) -> None:
    recalls = [0.5, 0.75, 0.5, 0.25]
    paths = []
    for objective in ("ce", "cce"):
        for seed in range(3):
            made = predict(recalls)
            moved = replace(made, ids=np.array([f"test/{160 * seed + row:04d}" for row in range(160)]))
            paths.append(fabricate(tmp_path, objective, seed, moved, data__rotate=True))
    write_comparison(compare_runs(paths), tmp_path)
    text = render(read_report_data([tmp_path]), embedding=False)
    assert "3 seeds per objective, 480 test images" in text
    assert "over 480 test images" in text
    row = re.search(r'<th scope="row" data-label="class" data-value="ant">.*?</tr>', text)
    assert row is not None
    assert '<td data-label="test images (all seeds)" data-value="120">120</td>' in row[0]
    assert "ant correct: 60 of 120 predictions (50.0%)" in text
    assert "60 of 120 predictions (3 seeds) wrong" in text
