"""Tables of costs, prediction sets and unsure answers, for `evenhand evaluate`."""

from typing import TYPE_CHECKING, Any

from evenhand.cli.output import COLOURS, cell, class_table, interval, percent

if TYPE_CHECKING:
    from rich.console import RenderableType


def show_decisions(summary: dict[str, Any]) -> None:
    """Print what `evaluate` found with --costs, --coverage and --min-precision."""
    from rich.console import Console

    console = Console(highlight=False)
    for key, show in (("cost", _cost), ("sets", _sets), ("answers", _answers)):
        if key in summary:
            console.print()
            for part in show(summary[key]):
                console.print(part, soft_wrap=True)


def _cost(found: dict[str, Any]) -> "list[RenderableType]":
    lines = [
        f"Cost per image for the class shares {found['prior']}: {found['realised']:.4g} ± {found['error']:.2g} "
        f"(standard error over test images); expected by the model: {found['expected']:.4g}; by deciding for the "
        f"most probable class: {found['most_probable']:.4g}."
    ]
    rows = [(cell(row["name"]), "" if row["cost"] is None else f"{row['cost']:.4g}") for row in found["per_class"]]
    return [cell(lines[0]), class_table(("cost",), rows)]


def _sets(found: dict[str, Any]) -> "list[RenderableType]":
    head = (
        f"Prediction sets at coverage {found['coverage']:.10g}: {found['mean_size']:.2f} classes in the mean; unsure "
        f"(more than one class): {found['unsure']:.1%}; all classes: {found['full']:.1%}."
    )
    rows = [
        (
            cell(row["name"]),
            f"{row['calibration_images']:,}",
            f"{row['images']:,}",
            percent(row["coverage"]),
            interval(row["interval"]),
            "" if row["mean_size"] is None else f"{row['mean_size']:.2f}",
            cell(row["group"], COLOURS[row["group"]]),
        )
        for row in found["per_class"]
    ]
    shots = [
        cell(f"{name}-shot coverage {group['coverage']:.1%} {_ends(group['interval'])} in {group['classes']} classes")
        for name, group in found["groups"].items()
        if group["coverage"] is not None
    ]
    table = class_table(("calibration", "test", "coverage", "95%", "mean size", "shots"), rows)
    return [cell(head), *shots, table, *map(cell, found["notes"])]


def _answers(found: dict[str, Any]) -> "list[RenderableType]":
    lines = [f"Answers at precision {found['min_precision']:.10g}: {_answered(found)}."]
    lines += [
        f"{name}-shot answers: {_answered(group)}"
        for name, group in found["groups"].items()
        if group["unsure"] is not None
    ]
    return [cell(line) for line in [*lines, *found["notes"]]]


def _answered(part: dict[str, Any]) -> str:
    if part["precision"] is None:
        return f"unsure {part['unsure']:.1%} of {part['images']:,} images"
    return (
        f"unsure {part['unsure']:.1%} of {part['images']:,} images, precision {part['precision']:.1%} "
        f"{_ends(part['interval'])} of the others"
    )


def _ends(ends: list[float] | None) -> str:
    return "" if ends is None else f"[{ends[0]:.1%}, {ends[1]:.1%}]"
