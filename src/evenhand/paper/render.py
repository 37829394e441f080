"""The results of a study as files: `table.json`, `table.csv` and `table.md`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evenhand.core.files import write_csv, write_json, write_text
from evenhand.core.text import markdown_table
from evenhand.experiments.comparison.verdict import in_points
from evenhand.paper._ordering import Ordering, noise_words
from evenhand.paper._provenance import provenance_lines
from evenhand.paper._published import published_tables
from evenhand.paper.planning import StudyCell
from evenhand.paper.results import MEASURES, MeasuredCell, MeasuredColumn, Reproduction
from evenhand.statistics.paired import PairedDifference


def write_reproduction(result: Reproduction, folder: Path) -> list[Path]:
    """Write the three files into a folder; return their paths."""
    return write_pages(folder, to_json(result), csv_rows(result), to_markdown(result))


def write_pages(folder: Path, content: dict[str, Any], rows: Sequence[dict[str, Any]], page: str) -> list[Path]:
    """Write `table.json`, `table.csv` and `table.md`; return their paths."""
    write_json(folder / "table.json", content, within=folder)
    write_csv(folder / "table.csv", rows, within=folder)
    write_text(folder / "table.md", page, within=folder)
    return [folder / name for name in ("table.json", "table.csv", "table.md")]


def to_json(result: Reproduction) -> dict[str, Any]:
    """Return everything as plain numbers and text; what the page gives in percent and points is 0 to 1 here."""
    return {
        "study": result.study.id,
        "shows": result.study.shows,
        "protocol": result.options.protocol,
        "command": result.command,
        "seeds": list(result.options.seeds),
        "unit": "share",
        "deviations": result.deviations(),
        "open_choices": result.open_choices(),
        "provenance": result.provenance,
        "runs": {"finished": result.finished, "wanted": result.wanted, "failed": list(result.failed)},
        "not_run": result.not_run(),
        "conclusions": result.conclusions(),
        "columns": [_column_json(column, result.measures) for column in result.columns],
    }


def _column_json(column: MeasuredColumn, measures: Sequence[str]) -> dict[str, Any]:
    orderings = {measure: column.orderings[measure] for measure in measures if measure in column.orderings}
    return {
        **_conditions(column.cells[0].cell),
        "cells": [_cell_json(cell, measures) for cell in column.cells],
        "orderings": {measure: _ordering_json(ordering) for measure, ordering in orderings.items()},
        "reference": column.reference,
        "gains": {
            measure: {method: asdict(gain) for method, gain in column.gains[measure].items()} for measure in measures
        },
        "alpha": {measure: asdict(column.alpha[measure]) for measure in measures if measure in column.alpha},
        "majority": dict(column.cells[0].majority),
    }


def _conditions(cell: StudyCell) -> dict[str, Any]:
    """Return what the methods of a column share."""
    config = cell.config
    return {
        "row": cell.row,
        "network": config.model.name,
        "source": config.data.source,
        "imbalance": config.data.imbalance,
        "epochs": config.epochs,
        "fraction": config.data.fraction,
    }


def _cell_json(each: MeasuredCell, measures: Sequence[str]) -> dict[str, Any]:
    return {
        "method": each.cell.method,
        "objective": each.cell.config.objective,
        "published": each.cell.published,
        "comparable": each.cell.comparable,
        "n": each.n,
        "wanted": len(each.cell.seeds),
        "runs": [run.name for run in each.runs],
        "measured": {
            measure: {
                "mean": seen.mean,
                "spread": seen.spread,
                "by_seed": dict(seen.values),
                "difference": each.difference(measure),
            }
            for measure, seen in each.measured.items()
            if measure in measures
        },
    }


def _ordering_json(ordering: Ordering) -> dict[str, Any]:
    return {
        "state": ordering.state,
        "published": list(ordering.published),
        "pairs": [{**asdict(pair), "agrees": pair.agrees, "clear": pair.clear} for pair in ordering.pairs],
        "sentence": ordering.sentence(),
    }


def csv_rows(result: Reproduction) -> list[dict[str, Any]]:
    """Return one row per cell and measure, values 0 to 1; None without a finished run."""
    rows = []
    for column in result.columns:
        for each in column.cells:
            for measure in result.measures:
                found = each.measured.get(measure)
                rows.append(
                    {
                        "protocol": result.options.protocol,
                        **_conditions(each.cell),
                        "method": each.cell.method,
                        "objective": each.cell.config.objective,
                        "measure": measure,
                        "mean": found.mean if found else None,
                        "spread": found.spread if found else None,
                        "n": each.n,
                        "wanted": len(each.cell.seeds),
                        "published": each.cell.published,
                        "comparable": each.cell.comparable,
                        "difference": each.difference(measure),
                    }
                )
    return rows


def to_markdown(result: Reproduction) -> str:
    """Return the page in Markdown."""
    study, options = result.study, result.options
    lines = [f"# {study.id}, protocol {options.protocol}", "", f"{study.shows[0].upper()}{study.shows[1:]}.", ""]
    if result.command:
        lines += ["```", result.command, "```", ""]
    lines += [
        f"- {result.finished} of {result.wanted} runs, {len(options.seeds)} seeds per cell",
        *(f"- failed: {reason}" for reason in result.failed),
        *provenance_lines(result.provenance),
        "",
    ]
    lines += _section("Where this differs from the paper", result.deviations())
    lines += _section("What the paper leaves open, and the choice here", result.open_choices())
    lines += _section("Results", result.conclusions())
    lines += _section("Not run", result.not_run())
    lines += [explanation(result), ""]
    for column in result.columns:
        if column.finished:
            lines += [f"## {column.title}", "", markdown_table(*column_table(column, result.measures)), ""]
            lines += [text for line in column_sentences(column, result.measures) for text in (line, "")]
    table = published_tables().get(study.id)
    columns = [column for column in table.columns if "reported" in column.values] if table else []
    if columns:
        reported = [[column.row, f"{column.values['reported']:.2f}"] for column in columns]
        lines += ["## Other papers' results, as the paper reports them", ""]
        lines.append(markdown_table(["", "published"], reported))
    return "\n".join(lines).rstrip() + "\n"


def explanation(result: Reproduction) -> str:
    """Return what the columns of the tables mean."""
    both = " The test set is imbalanced, so accuracy is given as well." * result.study.imbalanced_test
    return (
        "Percent on the test set: mean over seeds ± standard deviation over seeds; n: finished of planned runs; diff: "
        f"measured minus published, in points.{both} The last column of a measure is the paired difference over seeds "
        "in points with its 95% t interval, not corrected. Beyond noise: p < 0.05 in a paired t-test over seeds, after "
        "Holm's correction for all pairs of the published methods on this page. An order holds if all pairs agree "
        "beyond noise, does not hold if one is reversed beyond noise, and is not decided otherwise; where "
        "training differs from the paper's, the state is one at this scale. Methods that the paper does "
        "not print are compared without correction."
    )


def column_table(column: MeasuredColumn, measures: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of one column's table, as text."""
    heading = ["method", "n", "published"]
    compared = any(column.gains[measure] for measure in measures)
    for measure in measures:
        heading += [MEASURES[measure], "diff", *[f"{column.reference} minus it"] * compared]
    rows = []
    for each in column.cells:
        published = "" if each.cell.published is None else f"{100 * each.cell.published:.2f}"
        row = [each.cell.method, f"{each.n}/{len(each.cell.seeds)}", published]
        for measure in measures:
            found, difference = each.measured.get(measure), each.difference(measure)
            spread = "" if found is None or found.spread is None else f" ± {100 * found.spread:.2f}"
            row.append("not run" if found is None else f"{100 * found.mean:.2f}{spread}")
            row.append("" if difference is None else f"{100 * difference:+.2f}")
            row += [_interval(column.gains[measure].get(each.cell.method))] * compared
        rows.append(row)
    largest = next((each.majority for each in column.cells if each.majority), None)
    if largest and len(measures) > 1:  # on an imbalanced test set, always predicting the largest class looks good
        cells = [text for measure in measures for text in (f"{100 * largest[measure]:.2f}", "", *[""] * compared)]
        rows.append(["always the largest class", "", "", *cells])
    return heading, rows


def column_sentences(column: MeasuredColumn, measures: Sequence[str]) -> list[str]:
    """Return whether the published order holds, and which sign and which focal loss is better."""
    lines = []
    for measure in measures:
        start = f"By {MEASURES[measure]}: " if len(measures) > 1 else ""
        if measure in column.orderings:
            lines.append(start + column.orderings[measure].sentence())
        if measure in column.signs:
            lines.append(start + sign_sentence(column.signs[measure]))
        if measure in column.alpha:
            lines.append(start + alpha_sentence(column.alpha[measure]))
    return lines


def sign_sentence(difference: PairedDifference) -> str:
    """Return which sign of CCE is better.

    Example:
        >>> from evenhand.paper.render import sign_sentence
        >>> from evenhand.statistics.paired import paired_difference
        >>> sign_sentence(paired_difference([0.82, 0.83, 0.811], [0.80, 0.81, 0.79]))
        "CCE with the paper's sign against the released code's: +2.0 [1.9, 2.2] points, 3 seeds, beyond noise."
    """
    return f"CCE with the paper's sign against the released code's: {_difference_words(difference)}"


def alpha_sentence(difference: PairedDifference) -> str:
    """Return what the factor alpha = 0.25 changes in focal loss."""
    return f"Focal loss with alpha = 0.25 against without: {_difference_words(difference)}"


def _difference_words(difference: PairedDifference) -> str:
    size = in_points(difference.mean, difference.low, difference.high)
    return f"{size} points, {difference.n} seed{'s' * (difference.n != 1)}, {noise_words(difference.p)}."


def _interval(difference: PairedDifference | None) -> str:
    if difference is None:
        return ""
    mean = f"{100 * difference.mean:+.2f}"
    if difference.low is None or difference.high is None:
        return mean
    return f"{mean} [{100 * difference.low:.2f}, {100 * difference.high:.2f}]"


def _section(title: str, sentences: Sequence[str]) -> list[str]:
    return [f"**{title}**", "", *(f"- {sentence}" for sentence in sentences), ""] if sentences else []
