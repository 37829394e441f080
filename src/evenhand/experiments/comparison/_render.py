"""A comparison for people and for programs: terminal text, Markdown, CSV and JSON."""

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from evenhand.core.files import write_csv, write_json, write_text
from evenhand.core.text import markdown_escaped, markdown_table, text_table, visible
from evenhand.experiments.comparison._ascii_plot import picture
from evenhand.experiments.comparison._tables import ClassRow, ObjectiveRow
from evenhand.experiments.comparison.verdict import METRICS, Difference, in_points, outcome_words, points

if TYPE_CHECKING:
    from evenhand.experiments.comparison._comparison import Comparison

# So many classes are listed whole in a terminal; of more, the largest and the smallest.
MOST_LISTED, ENDS = 30, 10
LONGEST_NAME = 16
NOT_PICKED = "not picked"

Cells = list[list[str]]


def method(differences: Sequence[Difference], seeds: int) -> str:
    """Say how differences were judged."""
    if not differences:
        return "Nothing was compared."
    if seeds < 2:
        return (
            "Differences are those of two models on the same test images, in points. Intervals are 95% over test "
            "images, and say nothing about training noise."
        )
    if all(each.p is None for each in differences):
        return (
            "Differences are paired by seed and averaged over seeds, in points. They vary by less than one test image "
            "over seeds, so nothing could be tested and nothing is claimed."
        )
    untested = " Differences that vary by less than one test image over seeds are not tested."
    return (
        "Differences are paired by seed and averaged over seeds, in points. All claims together err in at most 5% "
        "of such comparisons: balanced accuracy comes first, its 5% shared by the objectives, and few-shot classes "
        "are tested where it shows a difference. Each interval is at the share of its question and includes the "
        "noise of seeds, whose spread is moderated by that of the other objectives, and the sampling of test "
        "images. A difference is claimed where the interval excludes 0, so where p is at most the share; no "
        "difference that matters where it lies within "
        f"{points(differences[0].margin)} of 0."
        f"{untested if any(each.p is None for each in differences) else ''}"
    )


def terminal_text(comparison: "Comparison", width: int) -> str:
    """Return everything a person wants to read in a terminal of about this width."""
    heading = _filled([_heading(comparison)], width)
    parts = [heading, "\n".join(text_table(figure_cells(comparison), left=(0, -1)))]
    if comparison.differences:
        parts.append("\n".join(text_table(difference_cells(comparison), left=(0, 1, 3))))
        parts += _class_table(comparison, width)
        parts.append(_filled(balance_of_classes(comparison), width))
    parts.append(_filled([_explained(comparison), comparison.method(), *comparison.notes], width))
    *sentences, last = comparison.verdicts
    drawn = ["\n".join(picture(comparison.differences, width))] if comparison.differences else []
    told = [_filled([f"- {each}" for each in sentences], width)] if sentences else []
    failed = [_filled([f"Failed: {each}." for each in comparison.failures], width)] if comparison.failures else []
    parts.append("\n\n".join(["Verdict\n" + _filled([last], width), *failed, *drawn, *told]))
    return "\n\n".join(parts) + "\n"


def markdown(comparison: "Comparison") -> str:
    """Return everything as a page of Markdown, with all classes."""
    *sentences, last = comparison.verdicts
    parts = [f"# {markdown_escaped(_heading(comparison))}", f"**{markdown_escaped(last)}**"]
    if comparison.failures:
        parts.append("\n".join(f"- Failed: {markdown_escaped(each)}." for each in comparison.failures))
    if comparison.differences:
        parts.append("\n".join(["```", *picture(comparison.differences, 100), "```"]))
    if sentences:
        parts.append("\n".join(f"- {markdown_escaped(each)}" for each in sentences))
    parts += ["## Figures", _explained(comparison), _markdown_table(figure_cells(comparison, shorten=False))]
    if comparison.differences:
        parts += ["## Differences", comparison.method(), _markdown_table(difference_cells(comparison))]
        parts += ["## Classes", "\n".join(f"- {markdown_escaped(each)}" for each in balance_of_classes(comparison))]
        parts.append(_markdown_table(class_cells(comparison, comparison.per_class)))
    if comparison.notes:
        parts += ["## Notes", "\n".join(f"- {markdown_escaped(each)}" for each in comparison.notes)]
    return "\n\n".join(parts) + "\n"


def write_all(comparison: "Comparison", folder: Path, *, raw: bool = False) -> list[Path]:
    """Write `comparison.json`, `comparison.csv`, `per_class.csv` and `comparison.md`; return their paths."""
    write_json(folder / "comparison.json", comparison.to_json(folder))
    write_text(folder / "comparison.md", markdown(comparison))
    figures = [_figures_for_csv(row, comparison.differences) for row in comparison.rows]
    write_csv(folder / "comparison.csv", figures, raw=raw)
    write_csv(folder / "per_class.csv", [_class_for_csv(row) for row in comparison.per_class], raw=raw)
    return [folder / name for name in ("comparison.json", "comparison.csv", "per_class.csv", "comparison.md")]


def figure_cells(comparison: "Comparison", *, shorten: bool = True) -> Cells:
    """Return the table of figures, in percent, header first; columns that nobody fills are left out."""
    tuned = not all(row.picked for row in comparison.rows)
    header = ["objective", "balanced accuracy", "many", "medium", "few", "macro F1", "ECE", "s/epoch"]
    header += ["validation"] * tuned + ["worst class"]
    rows = []
    for row in comparison.rows:
        spread = "" if row.balanced_accuracy_spread is None else f" ± {100 * row.balanced_accuracy_spread:.1f}"
        balanced = f"{percent(row.balanced_accuracy)}{spread}" if row.picked else NOT_PICKED
        shares = (row.many, row.medium, row.few, row.macro_f1, row.ece)
        name = "" if row.worst_class is None else _shown(row.worst_class, LONGEST_NAME if shorten else 0)
        seconds = row.seconds_per_epoch
        cells = [row.objective, balanced, *map(percent, shares), f"{seconds:.{2 if seconds < 10 else 0}f}"]
        tried = f" (1/{row.tried})" if row.picked and row.tried > 1 else ""
        cells += [f"{percent(row.val_balanced_accuracy)}{tried}"] * tuned
        rows.append([*cells, f"{name} ({percent(row.worst_recall)})" if row.picked else ""])
    filled = [place for place in range(len(header)) if any(row[place] for row in rows)]
    return [[row[place] for place in filled] for row in [header, *rows]]


def difference_cells(comparison: "Comparison") -> Cells:
    """Return the table of differences, in points, header first."""
    rows = [[f"against {comparison.baseline}", "in", "points", "interval", "p", "share", ""]]
    for each in comparison.differences:
        size, _, interval = in_points(each.mean, each.low, each.high).partition(" ")
        p = "" if each.p is None else _p(each.p)
        share = f"{each.level:.2%}" if each.level else ""
        rows.append([each.objective, METRICS[each.metric], size, interval, p, share, outcome_words(each)])
    return rows if comparison.differences[0].seeds > 1 else [row[:4] for row in rows]


def class_cells(comparison: "Comparison", classes: Sequence[ClassRow]) -> Cells:
    """Return recalls by class, in percent, with the others' differences to the baseline in points."""
    others = [name for name in comparison.objectives if name != comparison.baseline]
    header = ["class", "training", "test", f"recall {comparison.baseline}", *others]
    rows = []
    for row in classes:
        gains = ("" if row.difference[name] is None else _signed(row.difference[name]) for name in others)
        numbers = [f"{row.train_count:,}", f"{row.test_count:,}", percent(row.recall[comparison.baseline])]
        rows.append([row.name, *numbers, *gains])
    return [header, *rows]


def balance_of_classes(comparison: "Comparison") -> list[str]:
    """Say for each objective how many classes won, how many paid, and which most."""
    lines = []
    for name in (each for each in comparison.objectives if each != comparison.baseline):
        won = [row for row in comparison.per_class if name in row.won]
        paid = [row for row in comparison.per_class if name in row.paid]
        sides = []
        for classes, verb, most in ((won, "won", max), (paid, "paid", min)):
            sides.append(f"{len(classes)} {'class' if len(classes) == 1 else 'classes'} {verb}")
            if classes:
                extreme = most(classes, key=lambda row: row.difference[name] or 0)
                sides[-1] += f" (most: {_shown(extreme.name, 40)}, {_signed(extreme.difference[name])})"
        lines.append(f"{name} against {comparison.baseline}: {', '.join(sides)}")
    return lines


def percent(share: float | None) -> str:
    """Write a share as percent with one decimal; nothing for None."""
    return "" if share is None else f"{100 * share:.1f}"


def _heading(comparison: "Comparison") -> str:
    seeds = f"{len(comparison.seeds)} seed{'s' * (len(comparison.seeds) != 1)}"
    return (
        f"{comparison.source}, imbalance {comparison.imbalance}, {comparison.model}: "
        f"{', '.join(comparison.objectives)}; {seeds}, {comparison.test_images:,} test images"
    )


def _explained(comparison: "Comparison") -> str:
    means = ", means over seeds; ± is the standard deviation over seeds" if len(comparison.seeds) > 1 else ""
    text = (
        f"Percent{means}. many, medium, few: mean recall of classes by training images ({comparison.shot_rule}). Worst "
        "class: that of lowest mean recall. By class: the baseline's recall, and what the others add to it in points, "
        "untested."
    )
    if all(row.picked for row in comparison.rows):
        return text
    return (
        f"{text} Validation: balanced accuracy, by which one of so many settings that were tried was picked (1/n). Not "
        "picked: another setting did better there; its test result is not read."
    )


def _class_table(comparison: "Comparison", width: int) -> list[str]:
    """Return the table of classes, or nothing where many objectives make it too wide: per_class.csv has it."""
    classes = comparison.per_class
    hidden = len(classes) - 2 * ENDS if len(classes) > MOST_LISTED else 0
    shown = [*classes[:ENDS], *classes[-ENDS:]] if hidden else classes
    cells = class_cells(comparison, shown)
    lines = text_table([[_shown(row[0], 2 * LONGEST_NAME), *row[1:]] for row in cells], left=(0,))
    if max(map(cell_len, lines)) > width:
        return []
    if hidden:
        lines.insert(ENDS + 1, f"... {hidden} more")
    return ["\n".join(lines)]


def _filled(lines: Sequence[str], width: int) -> str:
    """Break long lines between words, never inside `gamma=-2`."""
    return "\n".join(textwrap.fill(each, width, subsequent_indent="  ", break_on_hyphens=False) for each in lines)


def _shown(name: str, longest: int) -> str:
    """Return a name without what could disturb a terminal, cut where it is too long (0: not cut)."""
    clean = visible(name)
    return f"{clean[: longest - 3]}..." if longest and len(clean) > longest else clean


def _signed(share: float | None) -> str:
    points = round(100 * (share or 0), 1)
    return f"{points:+.1f}" if points else "0.0"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _markdown_table(cells: Cells) -> str:
    return markdown_table(cells[0], cells[1:])


def _figures_for_csv(row: ObjectiveRow, differences: Sequence[Difference]) -> dict[str, Any]:
    own = {each.metric: each for each in differences if each.objective == row.objective}
    content = asdict(row)
    for metric in dict.fromkeys(each.metric for each in differences):
        for key in ("mean", "low", "high", "p", "level", "outcome"):
            content[f"{metric}_difference_{key}"] = getattr(own[metric], key) if metric in own else None
    return content


def _class_for_csv(row: ClassRow) -> dict[str, Any]:
    return {
        **{key: getattr(row, key) for key in ("name", "group", "train_count", "test_count")},
        **{f"recall {name}": value for name, value in row.recall.items()},
        **{f"difference {name}": value for name, value in row.difference.items()},
        "won": " ".join(row.won),
        "paid": " ".join(row.paid),
    }
