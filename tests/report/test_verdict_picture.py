"""The picture of a verdict shows the same numbers and words as its sentences."""

import pytest
from matplotlib.colors import to_hex

from evenhand.core.errors import EvenhandError
from evenhand.experiments.comparison import judge_differences
from evenhand.experiments.comparison._ascii_plot import plot_differences
from evenhand.report.figures import verdict_picture
from evenhand.report.figures.style import INK
from evenhand.report.figures.verdict import UNDECIDED

from .figure_cases import cut_off, overlapping, texts

CE = [0.80, 0.81, 0.79, 0.82, 0.80]
GAINS = {
    "balanced-softmax+cce:gamma=released": (0.05, 0.055, 0.05, 0.06, 0.05),
    "cot": (-0.04, -0.045, -0.04, -0.05, -0.04),
    "focal": (0.04, -0.03, 0.01, -0.02, 0.03),
}
VALUES = {"ce": CE, **{name: [a + b for a, b in zip(CE, own, strict=True)] for name, own in GAINS.items()}}


def test_dots_intervals_margin_and_words_are_those_of_the_differences() -> None:
    found = judge_differences({"balanced_accuracy": VALUES, "few": VALUES}, "ce")
    figure = verdict_picture(found, "ce")
    axes = figure.axes[0]
    primary = found[:3]
    assert [line.get_xdata()[0] for line in axes.lines[1:]] == pytest.approx([100 * each.mean for each in primary])
    ends = [segment[:, 0].tolist() for lines in axes.collections for segment in lines.get_segments()]
    assert ends == [pytest.approx([100 * each.low, 100 * each.high]) for each in primary]
    assert [to_hex(line.get_color()).upper() for line in axes.lines[1:]] == [INK, INK, UNDECIDED]
    [band] = axes.patches
    assert (band.get_x(), band.get_width()) == pytest.approx((-1, 2))
    shown = texts(figure)
    assert [each.outcome for each in primary] == ["better", "worse", "undecided"]
    for each in primary:
        assert any(text.endswith(f": {each.outcome}") for text in shown)
    assert overlapping(shown) == []
    assert cut_off(shown, figure) == []


def test_nothing_to_draw() -> None:
    with pytest.raises(EvenhandError, match="no difference"):
        verdict_picture([], "ce")


def test_the_picture_in_text_stands_to_scale() -> None:
    found = judge_differences({"balanced_accuracy": VALUES}, "ce")
    lines = plot_differences(found, 90)
    zero = lines[-2].index("0")
    for each, line in zip(found, lines[:-2], strict=True):
        assert (line.index("o", 36) > zero) == (each.mean > 0)
        assert line.index("[", 36) < line.index("o", 36) < line.index("]")
        assert max(map(len, lines)) <= 90


@pytest.mark.parametrize("spread", [0.001, 0.003, 0.01, 0.03, 0.1, 0.3])
def test_labels_of_the_margin_in_text_never_run_together(spread: float) -> None:
    values = {"ce": CE, "cot": [each + spread * sign for each, sign in zip(CE, (1, -1, 2, 0, 1), strict=True)]}
    labels = plot_differences(judge_differences({"balanced_accuracy": values}, "ce"))[-2].split()
    assert labels in (["-1", "0", "+1"], ["0"])
