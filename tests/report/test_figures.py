"""Figures: what is drawn, not how it looks."""

import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from evenhand.core.errors import EvenhandError
from evenhand.report.figures import GROUP_COLOURS, class_distribution, figure_bytes, save_figure


def test_bars_are_sorted_labelled_and_coloured_by_group() -> None:
    figure = class_distribution([5, 500, 60], ["owl", "cat", "dog"], ["few", "many", "medium"], title="pets")
    axes = figure.axes[0]
    assert [bar.get_height() for bar in axes.patches] == [500, 60, 5]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["cat", "dog", "owl"]
    assert [to_hex(bar.get_facecolor()).upper() for bar in axes.patches] == list(GROUP_COLOURS.values())
    assert [text.get_text() for text in axes.texts] == ["500", "60", "5"]


@pytest.mark.parametrize(
    ("classes", "ending"), [(2, "png"), (10, "svg"), (30, "pdf"), (31, "png"), (31, "svg"), (31, "pdf"), (1000, "png")]
)
def test_every_class_count_can_be_saved(tmp_path: Path, classes: int, ending: str) -> None:
    names = [f"$class_{k}$ " + "x" * 50 for k in range(classes)]
    figure = class_distribution(range(classes, 0, -1), names, ["many"] * classes)
    save_figure(figure, tmp_path / f"figure.{ending}")
    assert (tmp_path / f"figure.{ending}").stat().st_size > 1000


def test_bars_lie_down_where_names_are_too_long_to_stand_side_by_side() -> None:
    names = [f"a rather long class name {k}" for k in range(20)]
    axes = class_distribution(range(20, 0, -1), names, ["many"] * 20).axes[0]
    assert [bar.get_width() for bar in axes.patches] == list(range(20, 0, -1))
    assert [label.get_text() for label in axes.get_yticklabels()] == names


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_equal_figures_give_equal_bytes(ending: str) -> None:
    one, other = (figure_bytes(class_distribution([2, 1], ["a", "b"], ["many", "few"]), ending) for _ in range(2))
    assert one == other


def test_figures_leave_the_state_of_pyplot_alone() -> None:
    code = "import sys, evenhand.report.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_other_formats_are_refused(tmp_path: Path) -> None:
    figure = class_distribution([2, 1], ["a", "b"], ["many", "few"])
    with pytest.raises(EvenhandError, match=r"'figure\.gif'"):
        save_figure(figure, tmp_path / "figure.gif")
    with pytest.raises(EvenhandError, match=r"'gif'"):
        figure_bytes(figure, "gif")
