"""Prediction sets of each class: coverage on test images, and how many classes a set holds."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from evenhand.core.errors import none_if_unreadable
from evenhand.metrics.predictions import Predictions
from evenhand.report._report_data import ReportData
from evenhand.report.figures.given import Folder
from evenhand.report.figures.page_figure import MOST_DRAWN, PageFigure, Shown
from evenhand.report.figures.style import INK, MOST_NAMED, clear_frame, heading, literal, new_figure, widest
from evenhand.runs.held_out import as_used
from evenhand.runs.run import Run
from evenhand.runs.unsure import set_rule, summarise_sets

COVERAGE = 0.9
"""The coverage that the page shows."""


def coverage_by_class(run: Run | Folder, coverage: float = COVERAGE) -> Figure:
    """Draw the coverage of each class by the prediction sets of a run, and their mean sizes.

    Prediction sets are calibrated on the run's calibration images and evaluated on its test images. Lines are 95%
    Wilson intervals over test images. Hollow: a class with too few calibration images, which is in every set. With more
    than 30 classes, those of the lowest coverage are drawn.

    Args:
        run: a finished run with calibration images, or its folder.
        coverage: of each class.
    """
    run = run if isinstance(run, Run) else Run(Path(run))
    found = summarise_sets(set_rule(run, coverage), as_used(run, run.predictions))
    rows = [row for row in found["per_class"] if row["images"]]
    title = f"coverage {coverage:.0%}: {found['mean_size']:.2f} classes in a set"
    if len(rows) > MOST_NAMED:
        rows = sorted(rows, key=lambda row: row["coverage"])[:MOST_NAMED]
        title += f"; the {MOST_NAMED} classes of lowest coverage"
    else:
        rows = sorted(rows, key=lambda row: -row["calibration_images"])
    labels = [f"{literal(row['name'])} ({row['calibration_images']:,})" for row in rows]
    figure = new_figure(6.0 + widest(labels), max(2.2, 1.2 + 0.24 * len(rows)))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2, 1])
    places = np.arange(len(rows))
    for place, row in zip(places, rows, strict=True):
        if row["interval"] is not None:
            left.hlines(place, 100 * row["interval"][0], 100 * row["interval"][1], color=INK, linewidth=1.0)
        face = INK if row["guaranteed"] else "white"
        left.scatter(100 * row["coverage"], place, s=18, color=face, edgecolors=INK, zorder=3)
    right.barh(places, [row["mean_size"] for row in rows], color=INK, height=0.6, alpha=0.5)
    left.axvline(100 * coverage, color=INK, linewidth=0.8, linestyle="dashed")
    left.set_yticks(places, labels, fontsize=8)
    left.set_ylim(len(rows) - 0.5, -0.5)
    left.set_xlim(right=101)
    left.set_xlabel("coverage (%), 95% interval", fontsize=9)
    right.set_xlabel("mean size of the set", fontsize=9)
    clear_frame(left, "x")
    clear_frame(right, "x")
    heading(left, title, 5.0, size=9)
    return figure


def _on_page(data: ReportData, panel: str) -> Shown:
    run = _calibrated(data)[panel]
    found = summarise_sets(set_rule(run, COVERAGE), as_used(run, run.predictions))
    alt = (
        f"Prediction sets of {panel} at a coverage of {COVERAGE:.0%}: {found['mean_size']:.2f} classes in the mean; "
        f"more than one class for {found['unsure']:.1%} of images, all classes for {found['full']:.1%}."
    )
    return Shown(coverage_by_class(run), alt, points=len(found["per_class"]) > MOST_DRAWN)


def _calibrated(data: ReportData) -> dict[str, Run]:
    """Return the first seed of each name, if it has calibration images."""
    first = {name: seeds[0] for name, seeds in data.finished.items()}
    return {name: run for name, run in first.items() if none_if_unreadable(partial(_calibration, run)) is not None}


def _calibration(run: Run) -> Predictions | None:
    return run.calibration_predictions


def _panels(data: ReportData) -> Iterable[str]:
    return _calibrated(data)


UNSURE = PageFigure(
    "unsure",
    "calibration",
    _on_page,
    condition=lambda data: data.comparable() and bool(_calibrated(data)),
    caption=f"Prediction sets that cover each class in {COVERAGE:.0%} of its images or more, on test images. "
    "In brackets: calibration images. Hollow: too few of them, so the class is in every set.",
    panels=_panels,
)
