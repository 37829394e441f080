"""The figure of prediction sets."""

from pathlib import Path

import pytest
from matplotlib.collections import PathCollection

from evenhand.report._embed_figures import draw_figures
from evenhand.report._report_data import read_report_data
from evenhand.report.figures import UNSURE, coverage_by_class
from evenhand.runs.unsure import set_rule, summarise_sets
from evenhand.training.run import train_run
from tests.training.runs import tiny


def test_coverage_of_each_class_is_drawn(tmp_path: Path) -> None:
    run = train_run(tiny("data.calibration_fraction=0.2", objective="ce", epochs=1), tmp_path / "run")
    found = summarise_sets(set_rule(run, 0.9), run.predictions)
    left, right = coverage_by_class(run).axes
    drawn = [points.get_offsets()[0] for points in left.collections if isinstance(points, PathCollection)]
    rows = sorted(found["per_class"], key=lambda row: -row["calibration_images"])
    assert [point[0] for point in drawn] == pytest.approx([100 * row["coverage"] for row in rows])
    assert [bar.get_width() for bar in right.patches] == pytest.approx([row["mean_size"] for row in rows])
    assert next(label.get_text() for label in left.get_yticklabels()).startswith(f"{rows[0]['name']} (")
    (panels,) = draw_figures([UNSURE], read_report_data([run.path]))["calibration"]
    assert not panels[0].problem
    assert f"{found['mean_size']:.2f} classes in the mean" in panels[0].content
    (run.path / "calibration.npz").unlink()
    assert not draw_figures([UNSURE], read_report_data([run.path]))["calibration"]
