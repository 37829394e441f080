"""The page of wrong labels: pictures of the images whose out-of-fold predictions contradict their label."""

from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from evenhand.core.files import enclosing, write_csv, write_text
from evenhand.data.decode import BadImage
from evenhand.data.reading import RowReader
from evenhand.experiments.wrong_labels import RankedLabel, WrongLabels
from evenhand.report._escape import page_environment
from evenhand.report._gallery import picture_address

MOST_PICTURES = 240
SHOWN = 160
"""Pixels of the shorter side of a picture."""
PAGE, TABLE = "wrong-labels.html", "wrong-labels.csv"


def write_label_page(found: WrongLabels, folder: Path | str) -> tuple[Path, Path]:
    """Write the page, one HTML file that needs no network, and a table of all labels.

    Args:
        found: the ranked labels.
        folder: where `wrong-labels.html` and `wrong-labels.csv` are written.

    Returns:
        The paths of the page and of the table.
    """
    page, table = Path(folder) / PAGE, Path(folder) / TABLE
    ranked = found.ranked()
    rows = [
        {
            "rank": place,
            "image": each.id,
            "label": each.label,
            "suggested": each.suggested,
            "flagged": each.flagged,
            "label_probability": round(each.label_probability, 6),
            "suggested_probability": round(each.suggested_probability, 6),
            "score": float(f"{each.score:.6g}"),
            "shots": each.group,
        }
        for place, each in enumerate(ranked, start=1)
    ]
    write_csv(table, rows, within=enclosing(table, [folder]))
    write_text(page, render_labels(found, ranked), within=enclosing(page, [folder]))
    return page, table


def render_labels(found: WrongLabels, ranked: list[RankedLabel]) -> str:
    """Return the HTML of the page."""
    flagged = int(found.errors.flagged.sum())
    groups = "; ".join(
        f"{name}-shot {wrong:,} of {of:,} ({wrong / of:.1%})" for name, (wrong, of) in found.flagged_by_group().items()
    )
    return (
        page_environment(trim=True)
        .get_template("labels.html.j2")
        .render(
            name=found.table.name,
            objective=found.objective,
            headline=f"{flagged:,} of {len(ranked):,} labels are flagged as wrong",
            notes=[f"Flagged by shot group of the label: {groups} ({found.groups.rule}).", *found.notes],
            classes=_classes(found),
            pictures=_pictures(found, ranked[:MOST_PICTURES]),
            total=f"{len(ranked):,}",
            table=TABLE,
            style=Markup((files("evenhand.report") / "templates" / "style.css").read_text(encoding="utf-8")),
            version=version("evenhand"),
        )
    )


def _classes(found: WrongLabels) -> list[dict[str, Any]]:
    labels = found.table.labels[found.rows]
    size = len(found.table.class_names)
    counts = np.bincount(labels, minlength=size)
    flagged = np.bincount(labels, found.errors.flagged, minlength=size)
    return [
        {
            "name": found.table.class_names[k],
            "group": found.groups.of(int(k)),
            "images": f"{counts[k]:,}",
            "flagged": f"{flagged[k]:,.0f}",
            "threshold": f"{found.errors.thresholds[k]:.2f}" if counts[k] else "",
        }
        for k in np.argsort(-counts, kind="stable")
    ]


def _pictures(found: WrongLabels, ranked: list[RankedLabel]) -> list[dict[str, Any]]:
    read = RowReader(found.table.pixels, SHOWN, 3)
    pictures = []
    for each in ranked:
        address, problem = "", ""
        try:
            address = picture_address(read(each.row))
        except BadImage as error:
            problem = error.reason
        pictures.append(
            {
                "address": address,
                "problem": problem,
                "label": each.label,
                "group": f"{each.group}-shot",
                "suggested": each.suggested,
                "flagged": each.flagged,
                "label_probability": f"{each.label_probability:.1%}",
                "suggested_probability": f"{each.suggested_probability:.1%}",
                "id": each.id,
            }
        )
    return pictures
