"""`evenhand evaluate`: a finished run judged again, on its own test set or on other images."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.runs.names import PREDICTIONS, SUMMARY

if TYPE_CHECKING:
    from rich.console import RenderableType

# So many classes are listed whole; of more, the largest and the smallest.
MOST_LISTED, ENDS = 40, 12
COLOURS = {"many": "blue", "medium": "green", "few": "red"}


def evaluate(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    source: Annotated[
        str | None, typer.Argument(help="Other images: a data set's name, a folder, a .csv or a .npz.")
    ] = None,
    data_root: Annotated[Path | None, typer.Option(help="Where data sets lie.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out unreadable images of SOURCE.")] = False,
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="Follow links and paths of SOURCE to elsewhere.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help=f"Write {PREDICTIONS} and {SUMMARY} to this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Judge a run on its own test set, or on SOURCE: its test split if it has one, else all of it."""
    from evenhand.core.errors import EvenhandError
    from evenhand.runs.folder import Run
    from evenhand.training.evaluation import evaluate_on, evaluate_run, keep_missing

    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise EvenhandError(f"{out} exists and is not overwritten; choose another folder.")
    if source is None:
        judged = evaluate_run(run, data_root=data_root)
        written = keep_missing(run, judged)
    else:
        judged = evaluate_on(run, source, data_root=data_root, skip_bad=skip_bad, allow_outside=allow_outside)
        written = []
    if out is not None:
        into = Run(out)
        written += [into.write_predictions(judged.predictions), into.write_summary(judged.summary)]
    if as_json:
        typer.echo(json.dumps(judged.summary, ensure_ascii=False, indent=2, allow_nan=False))
    else:
        show(judged.summary)
    for remark in judged.remarks:
        typer.echo(f"evenhand: {remark}", err=True)
    for path in written:
        typer.echo(f"evenhand: wrote {path}", err=True)


def show(summary: dict[str, Any]) -> None:
    """Print a summary for a person."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    part = " (all of it)" if summary.get("split") == "all" else ""
    images = f"{summary['images']:,} {'image' if summary['images'] == 1 else 'images'}"
    heading = f"{summary['objective']}, {summary['model']}, on {summary['source']}{part}: {images}"
    console.print(Text(heading, style="bold"), soft_wrap=True)
    console.print(_headline(summary))
    console.print()
    console.print(_class_table(summary["per_class"]))
    console.print()
    lines = [f"Shots: {summary['shot_rule']}.", f"Intervals: {summary['intervals']}."]
    absent = summary["absent_classes"]
    if absent:
        named = ", ".join(absent[:5]) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
        lines.append(f"Without a test image, and so in no mean: {named}.")
    for line in [*lines, *summary["notes"]]:
        console.print(Text(line), soft_wrap=True)


def _headline(summary: dict[str, Any]) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("balanced accuracy", *_share(summary["balanced_accuracy"], summary["balanced_accuracy_interval"]))
    table.add_row("accuracy", *_share(summary["accuracy"], summary["accuracy_interval"]))
    for name in ("many", "medium", "few"):
        group = summary["groups"][name]
        if group is not None:
            count = f"{group['tested']} {'class' if group['tested'] == 1 else 'classes'}"
            found = _share(group["recall"], group["interval"])
            table.add_row(Text(f"{name}-shot recall", style=COLOURS[name]), *found, Text(count, style="dim"))
    worst = summary["worst_class"]
    table.add_row("worst class", f"{worst['recall']:.1%}", "", Text(worst["name"]))
    for key, name in (("macro_f1", "macro F1"), ("nll", "NLL"), ("ece", "calibration error")):
        table.add_row(name, f"{summary[key]:.3f}")
    return table


def _class_table(per_class: list[dict[str, Any]]) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("class", overflow="fold", max_width=40)
    for column in ("training", "test", "recall", "95%", "precision", "F1", "shots"):
        table.add_column(column, justify="left" if column in ("95%", "shots") else "right", no_wrap=True)
    rows = sorted(per_class, key=lambda row: -row["train_count"])
    hidden = len(rows) - 2 * ENDS if len(rows) > MOST_LISTED else 0
    for position, row in enumerate(rows):
        if hidden and ENDS <= position < len(rows) - ENDS:
            if position == ENDS:
                table.add_row(Text(f"... {hidden} more (--json lists all)", style="dim"))
            continue
        table.add_row(
            Text(row["name"]),
            f"{row['train_count']:,}",
            f"{row['test_count']:,}",
            *_share(row["recall"], row["recall_interval"]),
            *("" if row[key] is None else f"{row[key]:.1%}" for key in ("precision", "f1")),
            Text(row["group"], style=COLOURS[row["group"]]),
        )
    return table


def _share(value: float | None, interval: list[float] | None) -> tuple[str, "RenderableType"]:
    from rich.text import Text

    between = "" if interval is None else f"{interval[0]:.1%} to {interval[1]:.1%}"
    return "" if value is None else f"{value:.1%}", Text(between, style="dim")
