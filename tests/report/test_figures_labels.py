"""Figures: labels never cover each other, are never cut off, and say literally what names say."""

import io
import warnings
from collections.abc import Callable
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.report import figures
from evenhand.report.figures.style import literal, width_of, wrap
from tests.report.figure_cases import HOSTILE, cut_off, history, overlapping, predictions, runs, texts

SIZES = (2, 10, 100, *(pytest.param(size, marks=pytest.mark.slow) for size in (30, 200)))


def _distribution(num_classes: int) -> Figure:
    mine = predictions(num_classes)
    groups = find_shot_groups(mine.train_counts)
    named = [groups.of(k) for k in range(num_classes)]
    counts = mine.train_counts * 1000
    return figures.class_distribution(counts.tolist(), mine.class_names, named, title="a long title, " * 8)


def _overview(num_classes: int) -> Figure:
    models = {name: seeds[0] for name, seeds in runs(num_classes).items()}
    image = np.zeros((40, 30, 3), np.uint8)
    return figures.overview(models, image, "test/00007")


def _embeddings(num_classes: int) -> Figure:
    mine = predictions(num_classes)
    points = np.random.default_rng(0).normal(size=(len(mine), 2))
    return figures.draw_embeddings(
        {"ce": points, "cce": -points, "focal": points}, mine.targets, mine.class_names, mine.train_counts
    )


def _errors(num_classes: int) -> Figure:
    mine = predictions(num_classes, skill=1.0, each=9)
    images = np.zeros((len(mine), 16, 16, 3), np.uint8)
    return figures.error_study(mine, images, mine.ids)


def _difference(num_classes: int) -> Figure:
    baseline, ours = runs(num_classes).values()
    return figures.recall_difference(ours, baseline, names=("balanced-softmax+cce:gamma=released", "ce"))


FIGURES: dict[str, Callable[[int], Figure]] = {
    "distribution": _distribution,
    "overview": _overview,
    "confusion": lambda number: figures.confusion_matrices(runs(number, objectives=3, seeds=1), by_count=True),
    "embeddings": _embeddings,
    "errors": _errors,
    "recall": lambda number: figures.recall_by_count(runs(number, objectives=4, seeds=1)),
    "difference": _difference,
    "reliability": lambda number: figures.reliability(runs(number, objectives=4, seeds=1)),
}


@pytest.mark.parametrize("num_classes", SIZES)
@pytest.mark.parametrize("name", FIGURES)
def test_labels_neither_overlap_nor_are_cut_off(name: str, num_classes: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns where a layout does not fit
        figure = FIGURES[name](num_classes)
        boxes = texts(figure)
        assert len(boxes) > 4
        assert overlapping(boxes) == []
        assert cut_off(boxes, figure) == []


@pytest.mark.parametrize("epochs", [1, 300])
def test_labels_of_curves_do_not_overlap(epochs: int) -> None:
    histories = {name: [history(epochs, seed=seed) for seed in range(3)] for name in runs(2, objectives=4)}
    drawn = [
        figures.error_curves(histories),
        figures.complement_entropy_curves(histories, num_classes=10),
    ]
    for figure in drawn:
        boxes = texts(figure)
        assert len(boxes) > 4
        assert overlapping(boxes) == []
        assert cut_off(boxes, figure) == []


def test_labels_of_the_papers_distributions_do_not_overlap() -> None:
    figure = figures.class_distributions(figures.paper_distributions())
    boxes = texts(figure)
    assert overlapping(boxes) == []
    assert cut_off(boxes, figure) == []


def test_tick_labels_are_among_the_texts_that_are_checked() -> None:
    boxes = texts(_distribution(10))
    assert all(any(name in text for text in boxes) for name in predictions(10).class_names)


def test_the_check_of_overlaps_finds_one() -> None:
    figure = Figure()
    figure.text(0.5, 0.5, "one")
    figure.text(0.5, 0.5, "other")
    figure.text(0.99, 0.9, "beyond the edge")
    boxes = texts(figure)
    assert [(one[3:], other[3:]) for one, other in overlapping(boxes)] == [("one", "other")]
    assert [name[3:] for name in cut_off(boxes, figure)] == ["beyond the edge"]


@pytest.mark.parametrize("fonttype", ["path", "none"])
def test_hostile_class_names_are_drawn_literally_and_escaped(fonttype: str) -> None:
    mine = predictions(5, names=HOSTILE, skill=1.0)
    hostile_runs = {HOSTILE[0]: [mine], HOSTILE[1]: [mine]}
    images = np.zeros((len(mine), 8, 8, 1), np.uint8)
    points = np.random.default_rng(0).normal(size=(len(mine), 2))
    drawn = {
        "distribution": figures.class_distribution([5, 4, 3, 2, 1], HOSTILE, ["many"] * 5, title=HOSTILE[0]),
        "confusion": figures.confusion_matrices(hostile_runs),
        "embeddings": figures.draw_embeddings({HOSTILE[0]: points}, mine.targets, HOSTILE, mine.train_counts),
        "errors": figures.error_study(mine, images, mine.ids),
        "recall": figures.recall_by_count(hostile_runs),
        "difference": figures.recall_difference([mine], [mine], names=HOSTILE[:2]),
        "reliability": figures.reliability(hostile_runs),
        "overview": figures.overview({name: seeds[0] for name, seeds in hostile_runs.items()}, images[0], mine.ids[0]),
        "curves": figures.error_curves({name: [history(3)] for name in HOSTILE}),
    }
    for name, figure in drawn.items():
        with mpl.rc_context({"svg.fonttype": fonttype}), warnings.catch_warnings():
            warnings.simplefilter("error")
            content = figures.figure_bytes(figure, ".svg")
        tree = ElementTree.parse(io.BytesIO(content))
        assert not [part for part in tree.iter() if str(part.tag).endswith("script")], name
        if fonttype == "none":
            written = "".join("".join(part.itertext()) for part in tree.iter() if str(part.tag).endswith("text"))
            # The error study shows names only of what was mistaken.
            assert name == "errors" or (HOSTILE[0] in written and HOSTILE[1] in written), name


def test_a_dollar_is_a_dollar() -> None:
    figure = figures.class_distribution([2, 1], ["US$ 5 or $6$", "\\$_{x}^2$"], ["many", "few"])
    with mpl.rc_context({"svg.fonttype": "none"}):
        content = figures.figure_bytes(figure, ".svg").decode()
    assert ">US$ 5 or $6$</text>" in content
    assert ">\\$_{x}^2$</text>" in content


@given(st.text(max_size=60))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_any_text_is_one_line_never_mathematics_and_at_most_40_characters(name: str) -> None:
    shown = literal(name)
    assert len(shown.replace("\\$", "$")) <= 40
    assert shown.isprintable()
    assert shown.count("$") == shown.count("\\$")


@given(st.text(min_size=1, max_size=60), st.floats(0.5, 3), st.integers(1, 3))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_wrapped_texts_fit(text: str, inches: float, lines: int) -> None:
    wrapped = wrap(text, inches, lines=lines).split("\n")
    assert len(wrapped) <= lines
    assert all(width_of(line) <= inches + 1e-6 or len(line) <= 2 for line in wrapped)
    if len(wrapped) < lines:
        assert not wrapped[-1].endswith("…") or text.rstrip().endswith("…")
