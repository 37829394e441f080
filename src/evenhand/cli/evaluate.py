"""`evenhand evaluate`: a finished run judged again, on its own test set or on other images."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli.output import COLOURS, begin, cell, echo_json, ends_of, remark
from evenhand.runs.filenames import ADJUSTMENT, PREDICTIONS, SUMMARY

if TYPE_CHECKING:
    from rich.console import RenderableType


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
    adjust: Annotated[
        str | None,
        typer.Option(help="Take TAU times the log of the class shares off the logits; auto: the best on validation."),
    ] = None,
    prior: Annotated[
        str | None, typer.Option(help="Class shares where the model is used: train, balanced or a file of shares.")
    ] = None,
    normalise: Annotated[
        str | None,
        typer.Option(help="Even out the last layer's weights by TAU, without its bias; auto: the best on validation."),
    ] = None,
) -> None:
    """Judge a run on its own test set, or on SOURCE: its test split if it has one, else all of it."""
    from evenhand.core.errors import EvenhandError
    from evenhand.core.files import check_folder
    from evenhand.runs.run import Run

    if out is not None and os.path.exists(out) and (not os.path.isdir(out) or any(out.iterdir())):
        raise EvenhandError(f"{out} exists and is not overwritten; choose another folder.")
    if out is not None:
        check_folder(out)
    if not as_json:
        begin(f"judging {run} on {'its own test set' if source is None else source}")
    from evenhand.training.evaluate import evaluate_on, evaluate_run, keep_missing
    from evenhand.training.posthoc import AdjustmentRequest, evaluate_adjusted

    wish = AdjustmentRequest(adjust, prior, normalise)
    options = {"--data-root": data_root is not None, "--skip-bad": skip_bad, "--allow-outside": allow_outside}
    reading = [name for name, given in options.items() if given]
    if wish != AdjustmentRequest():
        if source is not None:
            raise EvenhandError("--adjust, --prior and --normalise are for a run's own test set; leave SOURCE out.")
        if normalise is None and reading:
            raise EvenhandError(f"{reading[0]} is for reading images, which --adjust and --prior do not; leave it out.")
        judged = evaluate_adjusted(run, wish, data_root=data_root, skip_bad=skip_bad, allow_outside=allow_outside)
        written = [Run(run).path / ADJUSTMENT]
    elif source is None:
        if skip_bad or allow_outside:
            raise EvenhandError(f"{reading[-1]} is for the images of SOURCE; leave it out, or name a SOURCE.")
        judged = evaluate_run(run, data_root=data_root)
        written = keep_missing(run, judged)
    else:
        judged = evaluate_on(run, source, data_root=data_root, skip_bad=skip_bad, allow_outside=allow_outside)
        written = []
    if out is not None:
        into = Run(out)
        written += [into.write_predictions(judged.predictions), into.write_summary(judged.summary)]
    if as_json:
        echo_json(judged.summary, indent=2)
    else:
        show(judged.summary)
    for line in judged.remarks:
        remark(line)
    for path in written:
        remark(f"wrote {path}")


def show(summary: dict[str, Any]) -> None:
    """Print a summary for a person."""
    from rich.console import Console

    console = Console(highlight=False)
    part = " (all of it)" if summary.get("split") == "all" else ""
    images = f"{summary['images']:,} {'image' if summary['images'] == 1 else 'images'}"
    heading = f"{summary['objective']}, {summary['model']}, on {summary['source']}{part}: {images}"
    console.print(cell(heading, "bold"), soft_wrap=True)
    for failure in summary.get("failures", ()):
        console.print(cell(f"{summary['objective']} {failure}"), soft_wrap=True)
    console.print(_headline(summary))
    console.print()
    console.print(_class_table(summary["per_class"]))
    console.print()
    if "adjustment" in summary:
        console.print(cell(_adjusted(summary)), soft_wrap=True)
    lines = [f"Shots: {summary['shot_rule']}.", f"Intervals: {summary['intervals']}."]
    absent = summary["absent_classes"]
    if absent:
        named = ", ".join(absent[:5]) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
        lines.append(f"Without a test image, and so in no mean: {named}.")
    for line in [*lines, *summary["notes"]]:
        console.print(cell(line), soft_wrap=True)


def _adjusted(summary: dict[str, Any]) -> str:
    from evenhand.runs.schemas import Adjustment

    done, before = summary["adjustment"], summary["unadjusted"]["balanced_accuracy"]
    told = Adjustment.model_validate(done, strict=False).told()
    return f"Adjusted after training: {told}; unadjusted, balanced accuracy is {before:.1%}."


def _headline(summary: dict[str, Any]) -> "RenderableType":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("balanced accuracy", *_share(summary["balanced_accuracy"], summary["balanced_accuracy_interval"]))
    table.add_row("accuracy", *_share(summary["accuracy"], summary["accuracy_interval"]))
    for name in ("many", "medium", "few"):
        group = summary["groups"][name]
        if group is not None:
            count = f"{group['tested']} {'class' if group['tested'] == 1 else 'classes'}"
            found = _share(group["recall"], group["interval"])
            table.add_row(cell(f"{name}-shot recall", COLOURS[name]), *found, cell(count, "dim"))
    worst = summary["worst_class"]
    table.add_row("worst class", f"{worst['recall']:.1%}", "", cell(worst["name"]))
    table.add_row("macro F1", f"{summary['macro_f1']:.1%}")
    table.add_row("calibration error", f"{summary['ece']:.1%}")
    table.add_row("NLL", f"{summary['nll']:.3f}", "", cell("nats", "dim"))
    return table


def _class_table(per_class: list[dict[str, Any]]) -> "RenderableType":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("class", overflow="fold", max_width=40)
    for column in ("training", "test", "recall", "95%", "precision", "F1", "shots"):
        table.add_column(column, justify="left" if column in ("95%", "shots") else "right", no_wrap=True)
    first, hidden, last = ends_of(sorted(per_class, key=lambda row: -row["train_count"]))
    for position, row in enumerate([*first, *last]):
        if hidden and position == len(first):
            table.add_row(cell(f"... {hidden} more (--json lists all)", "dim"))
        table.add_row(
            cell(row["name"]),
            f"{row['train_count']:,}",
            f"{row['test_count']:,}",
            *_share(row["recall"], row["recall_interval"]),
            *("" if row[key] is None else f"{row[key]:.1%}" for key in ("precision", "f1")),
            cell(row["group"], COLOURS[row["group"]]),
        )
    return table


def _share(value: float | None, interval: list[float] | None) -> tuple[str, "RenderableType"]:
    between = "" if interval is None else f"{interval[0]:.1%} to {interval[1]:.1%}"
    return "" if value is None else f"{value:.1%}", cell(between, "dim")
