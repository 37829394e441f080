"""`evenhand evaluate`: evaluate a finished run, on its own test set or on other images."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli.decisions import show_decisions
from evenhand.cli.options import Costs, Coverage, DataRoot, MinPrecision, Prior
from evenhand.cli.output import (
    COLOURS,
    begin,
    cell,
    class_table,
    echo_json,
    interval,
    named,
    percent,
    remark,
    show_chosen_model,
)
from evenhand.core.text import some
from evenhand.runs.filenames import ADJUSTMENT

if TYPE_CHECKING:
    from rich.console import RenderableType

    from evenhand.training.posthoc import AdjustmentRequest
    from evenhand.training.results import Evaluation


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run or a comparison.")],
    source: Annotated[
        str | None, typer.Argument(help="Other images: data set, folder, .csv, .npz, .parquet or hf:NAME.")
    ] = None,
    data_root: DataRoot = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip unreadable images of SOURCE.")] = False,
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="Follow links that lead outside SOURCE.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for predictions and summary.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    adjust: Annotated[str | None, typer.Option(help="Post-hoc logit adjustment with this TAU, or auto.")] = None,
    prior: Prior = None,
    normalise: Annotated[str | None, typer.Option(help="Tau-normalise the last layer with this TAU, or auto.")] = None,
    costs: Costs = None,
    coverage: Coverage = None,
    min_precision: MinPrecision = None,
) -> None:
    """Evaluate a run on a test set.

    By default on its own, else on SOURCE (its test split if it has one). For a comparison, the recommended objective's
    run that is best on validation is used. What --adjust, --prior and --normalise do is saved in the run and applied by
    predict, export and load.

    TAU auto: the one with the best validation balanced accuracy.

    With --costs, decisions of least expected cost are evaluated for the class shares of --prior (default: uniform), and
    nothing is saved. --coverage and --min-precision need calibration images, see `evenhand guide unsure-and-costs`.
    """
    from evenhand.core.errors import EvenhandError
    from evenhand.core.files import check_folder, refuse_linked
    from evenhand.runs.run import Run

    if out is not None and os.path.exists(out) and (not os.path.isdir(out) or any(out.iterdir())):
        raise EvenhandError(f"{out} exists and is not overwritten; choose another folder.")
    if out is not None:
        refuse_linked(out, [run])
        check_folder(out)
    if not as_json:
        begin(f"evaluating {named(run)} on {'its own test set' if source is None else named(source)}")
    from evenhand.runs.comparison import is_comparison, read_recommended
    from evenhand.training.decisions import check_decisions, evaluate_decisions
    from evenhand.training.posthoc import AdjustmentRequest

    if is_comparison(run):
        show_chosen_model(run, ensemble=False)
        run = read_recommended(run).runs[0].path
    request = AdjustmentRequest(adjust, prior if costs is None else None, normalise)
    wanted = {"--costs": costs, "--coverage": coverage, "--min-precision": min_precision}
    asked = [name for name, value in wanted.items() if value is not None]
    decisions: dict[str, Any] = {"costs": costs, "prior": prior, "coverage": coverage, "min_precision": min_precision}
    if asked:
        check_decisions(Run(run), **decisions)
    if asked and request != AdjustmentRequest():
        raise EvenhandError(f"{asked[0]} cannot be combined with an adjustment; give it first, on its own.")
    result, written = _evaluate(
        run, source, request, data_root=data_root, skip_bad=skip_bad, allow_outside=allow_outside
    )
    if asked:
        added = evaluate_decisions(Run(run), result.predictions, **decisions)
        result = replace(result, summary={**result.summary, **added})
    if out is not None:
        into = Run(out)
        written += [into.write_predictions(result.predictions), into.write_summary(result.summary)]
    if as_json:
        echo_json(result.summary, indent=2)
    else:
        show(result.summary)
        if asked:
            show_decisions(result.summary)
    for line in result.remarks:
        remark(line)
    for path in written:
        remark(f"wrote {path}")


def _evaluate(
    run: Path,
    source: str | None,
    request: "AdjustmentRequest",
    *,
    data_root: Path | None,
    skip_bad: bool,
    allow_outside: bool,
) -> "tuple[Evaluation, list[Path]]":
    """Return the evaluation that is asked for, and the files of the run that it wrote."""
    from evenhand.core.errors import EvenhandError
    from evenhand.runs.run import Run
    from evenhand.training.evaluate import evaluate_on, evaluate_run, keep_missing
    from evenhand.training.posthoc import AdjustmentRequest, evaluate_adjusted

    options = {"--data-root": data_root is not None, "--skip-bad": skip_bad, "--allow-outside": allow_outside}
    given = [name for name, is_given in options.items() if is_given]
    if request != AdjustmentRequest():
        if source is not None:
            raise EvenhandError("--adjust, --prior and --normalise are for a run's own test set; leave SOURCE out.")
        if request.normalise is None and given:
            raise EvenhandError(f"{given[0]} is for reading images, which --adjust and --prior do not; leave it out.")
        result = evaluate_adjusted(run, request, data_root=data_root, skip_bad=skip_bad, allow_outside=allow_outside)
        return result, [Run(run).path / ADJUSTMENT] if "adjustment" in result.summary else []
    if source is not None:
        result = evaluate_on(run, source, data_root=data_root, skip_bad=skip_bad, allow_outside=allow_outside)
        return result, []
    if skip_bad or allow_outside:
        raise EvenhandError(f"{given[-1]} is for the images of SOURCE; leave it out, or name a SOURCE.")
    result = evaluate_run(run, data_root=data_root)
    return result, keep_missing(run, result)


def show(summary: dict[str, Any]) -> None:
    """Print a summary as tables."""
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
    lines = [f"Shots: {summary['shot_rule']}.", f"Intervals: {summary['intervals']}."]
    if "adjustment" in summary:
        from evenhand.runs.schemas import Adjustment

        adjustment = Adjustment.model_validate(summary["adjustment"], strict=False).describe()
        before = summary["unadjusted"]["balanced_accuracy"]
        lines.insert(0, f"Adjusted after training: {adjustment}; unadjusted balanced accuracy: {before:.1%}.")
    if absent := summary["absent_classes"]:
        lines.append(f"Without a test image, and so in no mean: {some(absent)}.")
    for line in [*lines, *summary["notes"]]:
        console.print(cell(line), soft_wrap=True)


def _headline(summary: dict[str, Any]) -> "RenderableType":
    from rich.table import Table

    from evenhand.metrics.registry import METRICS

    table = Table(box=None, pad_edge=False, show_header=False)
    for metric in METRICS.values():
        if "evaluate" in metric.shown:
            value = metric.format(summary[metric.name]) + metric.unit
            table.add_row(metric.title, value, interval(summary.get(f"{metric.name}_interval")))
    for name in ("many", "medium", "few"):
        group = summary["groups"][name]
        if group is not None:
            count = f"{group['tested']} {'class' if group['tested'] == 1 else 'classes'}"
            title, ends = cell(f"{name}-shot recall", COLOURS[name]), interval(group["interval"])
            table.add_row(title, percent(group["recall"]), ends, cell(count, "dim"))
    worst = summary["worst_class"]
    table.add_row("worst class", f"{worst['recall']:.1%}", "", cell(worst["name"]))
    return table


def _class_table(per_class: list[dict[str, Any]]) -> "RenderableType":
    rows = [
        (
            cell(row["name"]),
            f"{row['train_count']:,}",
            f"{row['test_count']:,}",
            percent(row["recall"]),
            interval(row["recall_interval"]),
            percent(row["precision"]),
            percent(row["f1"]),
            cell(row["group"], COLOURS[row["group"]]),
        )
        for row in sorted(per_class, key=lambda row: -row["train_count"])
    ]
    return class_table(("training", "test", "recall", "95%", "precision", "F1", "shots"), rows)
