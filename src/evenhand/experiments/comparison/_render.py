"""Render a comparison: text for a terminal, Markdown and CSV."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from evenhand.core.files import write_csv, write_text
from evenhand.core.text import markdown_escaped, markdown_table, text_table, visible
from evenhand.data.imbalance import describe_imbalance
from evenhand.experiments.comparison._ascii_plot import plot_differences
from evenhand.experiments.comparison.verdict import ensemble_note, in_points, points
from evenhand.metrics.registry import METRICS
from evenhand.runs.comparison import Comparison
from evenhand.runs.comparison_schemas import PRIMARY, TESTED, ClassRow, Difference, ObjectiveRow
from evenhand.runs.filenames import EXPLORATORY

# Up to this many classes are all listed in a terminal; of more, the largest and the smallest.
MOST_LISTED, ENDS = 30, 10
LONGEST_NAME = 16
NOT_PICKED = "not picked"

Cells = list[list[str]]


def method(differences: Sequence[Difference], seeds: int) -> str:
    """Return how differences were tested."""
    if not differences:
        return "Nothing was compared."
    if seeds < 2:
        return (
            "Differences are those of two models on the same test images, in percentage points (pp). "
            "Intervals are 95% CIs over test "
            "images; they do not cover training noise."
        )
    if all(each.p is None for each in differences):
        return (
            "Differences are paired by seed and averaged over seeds, in percentage points (pp). "
            "They vary by less than one test image "
            "over seeds, so nothing could be tested and nothing is claimed."
        )
    untested = " Differences that vary by less than one test image over seeds are not tested."
    return (
        "Differences are paired by seed and averaged over seeds, in percentage points (pp). "
        "The family-wise error rate is "
        "at most 5%: balanced accuracy is tested first, and the alpha of a shown difference is passed on to the "
        "other tests (graphical procedure, Bretz et al. 2009). Each 95% confidence interval "
        "(CI) is adjusted for the tests made together (it is at the alpha of its test, or of the analysis where "
        "nothing was tested) and "
        "includes the variance over seeds (moderated by empirical Bayes) and the "
        "sampling of test images. A difference is claimed where the interval excludes 0, that is where p is at most "
        f"alpha; practically equivalent where the interval is within ±{points(differences[0].margin)}."
        f"{untested if any(each.p is None for each in differences) else ''}"
    )


def terminal_text(comparison: Comparison, width: int) -> str:
    """Return tables and verdict for a terminal of about this width."""
    parts = [_filled([_heading(comparison)], width), *_tables_within(score_cells(comparison), width)]
    if comparison.differences:
        parts.append("\n".join(text_table(difference_cells(comparison), left=(0, 1, 3))))
        parts += _class_table(comparison, width)
        parts.append(_filled(class_changes(comparison), width))
    parts.append(
        _filled(
            [_explained(comparison), _short_method(comparison), *ensemble_note(comparison), *comparison.notes], width
        )
    )
    *sentences, last = comparison.verdicts
    verdict = ["Verdict"]
    if comparison.failures:
        verdict[0] += "\n" + _filled([f"Failed: {each}." for each in comparison.failures], width)
    verdict[0] += "\n" + _filled([last], width)
    if comparison.differences:
        verdict.append("\n".join(plot_differences(comparison.differences, width)))
    if sentences:
        verdict.append(_filled([f"- {each}" for each in sentences], width))
    return "\n\n".join([*parts, *verdict]) + "\n"


def markdown(comparison: Comparison) -> str:
    """Return everything as a page of Markdown, with all classes."""
    *sentences, last = comparison.verdicts
    parts = [f"# {markdown_escaped(_heading(comparison))}"]
    if comparison.failures:
        parts.append("\n".join(f"- Failed: {markdown_escaped(each)}." for each in comparison.failures))
    parts.append(f"**{markdown_escaped(last)}**")
    if comparison.differences:
        parts.append("\n".join(["```", *plot_differences(comparison.differences, 100), "```"]))
    if sentences:
        parts.append("\n".join(f"- {markdown_escaped(each)}" for each in sentences))
    parts += ["## Results", _explained(comparison), _markdown_table(score_cells(comparison, shorten=False))]
    if comparison.differences:
        parts += ["## Differences", comparison.method, _markdown_table(difference_cells(comparison))]
        parts += ["## Classes", "\n".join(f"- {markdown_escaped(each)}" for each in class_changes(comparison))]
        parts.append(_markdown_table(class_cells(comparison, comparison.per_class)))
    notes = [*ensemble_note(comparison), *comparison.notes]
    if notes:
        parts += ["## Notes", "\n".join(f"- {markdown_escaped(each)}" for each in notes)]
    return "\n\n".join(parts) + "\n"


def write_tables(comparison: Comparison, file: Path, *, raw: bool = False) -> list[Path]:
    """Write `comparison.csv`, `per_class.csv` and `comparison.md` next to a `comparison.json`; return their paths.

    Next to an exploratory one they are `exploratory.csv`, `exploratory_per_class.csv` and `exploratory.md`.
    """
    folder, classes = file.parent, "per_class.csv"
    if file.name == EXPLORATORY:
        classes = f"{file.stem}_{classes}"
    paths = [file.with_suffix(".csv"), folder / classes, file.with_suffix(".md")]
    write_csv(
        paths[0], [_objective_for_csv(row, comparison.differences) for row in comparison.rows], raw=raw, within=folder
    )
    write_csv(paths[1], [_class_for_csv(row) for row in comparison.per_class], raw=raw, within=folder)
    write_text(paths[2], markdown(comparison), within=folder)
    return paths


def score_cells(comparison: Comparison, *, shorten: bool = True) -> Cells:
    """Return the table of scores, in percent, header first; empty columns are left out."""
    tuned = not all(row.picked for row in comparison.rows)
    others = [each for each in METRICS.values() if "compare" in each.shown and each.name != PRIMARY]
    header = ["objective", TESTED[PRIMARY], "many", "medium", "few", *(each.title for each in others), "s/epoch"]
    header += ["validation"] * tuned + ["worst class"]
    rows = []
    for row in comparison.rows:
        spread = "" if row.balanced_accuracy_spread is None else f" ± {100 * row.balanced_accuracy_spread:.1f}"
        balanced = f"{_percent(row.balanced_accuracy)}{spread}" if row.picked else NOT_PICKED
        shots = [_percent(row.scores.get(name)) for name in ("many", "medium", "few")]
        name = "" if row.worst_class is None else _shown(row.worst_class, LONGEST_NAME if shorten else 0)
        seconds = row.seconds_per_epoch
        cells = [row.objective, balanced, *shots, *(each.format(row.scores.get(each.name)) for each in others)]
        cells.append(f"{seconds:.{2 if seconds < 10 else 0}f}")
        tried = f" (1/{row.tried})" if row.picked and row.tried > 1 else ""
        cells += [f"{_percent(row.val_balanced_accuracy)}{tried}"] * tuned
        rows.append([*cells, f"{name} ({_percent(row.worst_recall)})" if row.picked else ""])
    filled = [place for place in range(len(header)) if any(row[place] for row in rows)]
    return [[row[place] for place in filled] for row in [header, *rows]]


def difference_cells(comparison: Comparison) -> Cells:
    """Return the table of differences, in percentage points, header first."""
    rows = [[f"vs. {comparison.baseline}", "metric", "diff. (pp)", "95% CI", "p", "alpha", "outcome"]]
    for each in comparison.differences:
        size, _, interval = in_points(each.mean, each.low, each.high).partition(" ")
        alpha = f"{each.level:.2%}" if each.level else ""
        rows.append(
            [each.objective, TESTED.get(each.metric, each.metric), size, interval, each.shown_p, alpha, each.words]
        )
    return rows if comparison.differences[0].seeds > 1 else [row[:4] for row in rows]


def class_cells(comparison: Comparison, classes: Sequence[ClassRow]) -> Cells:
    """Return recall per class, in percent, with the others' differences to the baseline in points."""
    others = [name for name in comparison.objectives if name != comparison.baseline]
    header = ["class", "training", "test", f"recall {comparison.baseline}", *(f"diff. {name}" for name in others)]
    rows = []
    for row in classes:
        gains = ("" if row.difference[name] is None else _signed(row.difference[name]) for name in others)
        numbers = [f"{row.train_count:,}", f"{row.test_count:,}", _percent(row.recall[comparison.baseline])]
        rows.append([row.name, *numbers, *gains])
    return [header, *rows]


def class_changes(comparison: Comparison) -> list[str]:
    """Return for each objective in how many classes the recall rose or fell, and in which most."""
    lines = []
    for name in (each for each in comparison.objectives if each != comparison.baseline):
        rose = [row for row in comparison.per_class if name in row.rose]
        fell = [row for row in comparison.per_class if name in row.fell]
        sides = []
        for classes, verb, most in ((rose, "rose", max), (fell, "fell", min)):
            sides.append(f"{verb} in {len(classes)} class{'es' * (len(classes) != 1)}")
            if classes:
                extreme = most(classes, key=lambda row: row.difference[name] or 0)
                sides[-1] += f" (most: {_shown(extreme.name, 40)}, {_signed(extreme.difference[name])})"
        lines.append(f"{name} against {comparison.baseline}: recall {', '.join(sides)}")
    return lines


def _heading(comparison: Comparison) -> str:
    seeds = f"{len(comparison.seeds)} seed{'s' * (len(comparison.seeds) != 1)}"
    return (
        f"{comparison.source}, {describe_imbalance(comparison.imbalance)}, {comparison.model}: "
        f"{', '.join(comparison.objectives)}; {seeds}, {comparison.test_images:,} test images"
    )


def _explained(comparison: Comparison) -> str:
    means = ", means over seeds; ± is the standard deviation over seeds" if len(comparison.seeds) > 1 else ""
    grouped = any(row.scores.get(name) is not None for row in comparison.rows for name in ("many", "medium", "few"))
    groups = f" many, medium, few: mean recall of classes by training images ({comparison.shot_rule})." * grouped
    text = (
        f"Percent{means}.{groups} Worst class: that of lowest mean recall. By class: the recall of the baseline, and "
        "the difference of the others to it in pp, untested."
    )
    if all(row.picked for row in comparison.rows):
        return text
    return (
        f"{text} Validation: balanced accuracy, by which one of n settings was picked (1/n). Not picked: another "
        "setting was better on validation; its test result is not read."
    )


def _short_method(comparison: Comparison) -> str:
    """Return how differences were tested, in short where they were."""
    if len(comparison.seeds) < 2 or all(each.p is None for each in comparison.differences):
        return comparison.method
    return (
        "Differences are paired by seed, in percentage points (pp), with 95% confidence intervals (CI) adjusted for "
        "all tests; all claims together are wrong in at most 5% of comparisons. More: `evenhand guide verdict`."
    )


def _tables_within(cells: Cells, width: int) -> list[str]:
    """Return a table as text; one that is too wide is split by columns, and the first column is repeated."""
    for count in range(len(cells[0]), 2, -1):
        rest = len(cells[0]) - count
        lines = text_table([row[:count] for row in cells], left=(0,) if rest else (0, -1))  # the last column is text
        if max(map(cell_len, lines)) <= width or count == 3:
            more = _tables_within([[row[0], *row[count:]] for row in cells], width) if rest else []
            return ["\n".join(lines), *more]
    return ["\n".join(text_table(cells, left=(0, -1)))]


def _class_table(comparison: Comparison, width: int) -> list[str]:
    """Return the table of classes, or where to find it if it is too wide."""
    classes = comparison.per_class
    hidden = len(classes) - 2 * ENDS if len(classes) > MOST_LISTED else 0
    shown = [*classes[:ENDS], *classes[-ENDS:]] if hidden else classes
    cells = class_cells(comparison, shown)
    lines = text_table([[_shown(row[0], 2 * LONGEST_NAME), *row[1:]] for row in cells], left=(0,))
    if max(map(cell_len, lines)) > width:
        return [f"Recall by class: in per_class.csv, as the table is wider than {width} columns."]
    if hidden:
        lines.insert(ENDS + 1, f"... {hidden} more")
    return ["\n".join(lines)]


def _filled(lines: Sequence[str], width: int) -> str:
    """Wrap long lines between words, never inside `gamma=-2`."""
    return "\n".join(textwrap.fill(each, width, subsequent_indent="  ", break_on_hyphens=False) for each in lines)


def _shown(name: str, longest: int) -> str:
    """Return a name without control characters, cut where it is too long (0: not cut)."""
    clean = visible(name)
    return f"{clean[: longest - 3]}..." if longest and len(clean) > longest else clean


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.1f}"


def _signed(fraction: float | None) -> str:
    rounded = round(100 * (fraction or 0), 1)
    return f"{rounded:+.1f}" if rounded else "0.0"


def _markdown_table(cells: Cells) -> str:
    return markdown_table(cells[0], cells[1:])


def _objective_for_csv(row: ObjectiveRow, differences: Sequence[Difference]) -> dict[str, Any]:
    own = {each.metric: each for each in differences if each.objective == row.objective}
    content = row.model_dump()
    for metric in dict.fromkeys(each.metric for each in differences):
        for key in ("mean", "low", "high", "p", "level", "outcome"):
            # Without a test there is no p-value and no alpha.
            tested = metric in own and (key not in ("p", "level") or bool(own[metric].shown_p))
            content[f"{metric}_difference_{key}"] = getattr(own[metric], key) if tested else None
    return content


def _class_for_csv(row: ClassRow) -> dict[str, Any]:
    return {
        **{key: getattr(row, key) for key in ("name", "group", "train_count", "test_count")},
        **{f"recall {name}": value for name, value in row.recall.items()},
        **{f"difference {name}": value for name, value in row.difference.items()},
        "rose": " ".join(row.rose),
        "fell": " ".join(row.fell),
    }
