"""`evenhand predict`: classify images, any number of them."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from evenhand.cli.options import Costs, Coverage, EnsembleOfRuns, MinPrecision, Prior
from evenhand.cli.output import remark, show_chosen_model

if TYPE_CHECKING:
    from evenhand.training.decisions import UnsureBatch, UnsureModel
    from evenhand.training.predict import BatchPrediction, TrainedModel

MOST_LISTED = 5
"""Classes per image."""
STDIN = "-"
UNSURE = "unsure"
SEPARATOR = "|"
"""Between the classes of a prediction set, in a CSV."""

Top: TypeAlias = list[tuple[str, float]]
Extra: TypeAlias = dict[str, Any]
"""What is answered next to the probabilities, by the name of its column."""
Write: TypeAlias = Callable[[str, Extra, Top], object]


def predict(
    run: Annotated[Path, typer.Argument(help="A run, a comparison or a checkpoint.")],
    paths: Annotated[
        list[str], typer.Argument(metavar="PATHS...", help="Images, folders of images, or - for a list on stdin.")
    ],
    out: Annotated[Path | None, typer.Option(help="File to write; default: stdout.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object per line, not CSV.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Do not escape formulas and control characters.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out unreadable images.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 64,
    ensemble: EnsembleOfRuns = False,
    costs: Costs = None,
    prior: Prior = None,
    coverage: Coverage = None,
    min_precision: MinPrecision = None,
) -> None:
    """Classify images.

    Writes the five most probable classes of each.

    For a comparison, the recommended objective's run that is best on validation is used, or all its seeds.

    Also written: with --costs, the class of least expected cost for the class shares of --prior (default: uniform);
    with --coverage, a set of classes; with --min-precision, the class or "unsure". More:
    `evenhand guide unsure-and-costs`.
    """
    from evenhand.core.errors import EvenhandError
    from evenhand.core.text import clipped
    from evenhand.runs.model_folder import exported_with
    from evenhand.training.decisions import refuse_combined
    from evenhand.training.predict import TrainedModel

    lost = [path for path in paths if path != STDIN and not os.path.exists(path)]
    if lost:
        raise EvenhandError(f"There is no file or folder {clipped(lost[0])}.")
    if (costs, prior, coverage, min_precision) == (None,) * 4:
        coverage, min_precision = exported_with(run)
    if coverage is None and min_precision is None:
        answering: TrainedModel | UnsureModel = _load(run, ensemble=ensemble, costs=costs, prior=prior)
    else:
        refuse_combined(coverage, min_precision, ensemble=ensemble, costs=costs, prior=prior)
        answering = _load_unsure(run, coverage=coverage, min_precision=min_precision)
    model = answering if isinstance(answering, TrainedModel) else answering.model
    batches: Iterable[BatchPrediction | UnsureBatch] = answering.stream(
        find_images(paths), batch_size, skip_bad=skip_bad
    )
    listed = min(MOST_LISTED, len(model.class_names))
    done, bad = 0, 0
    with _output(out, run) as target, _counting(hidden=out is None and sys.stdout.isatty()) as count:
        write: Write | None = None  # the heading is written with the first batch
        for answer in batches:
            extras = _extras(model, answer)
            write = write or (_json_writer(target, raw) if as_json else _csv_writer(target, listed, raw))
            for item, extra, row in zip(answer.items, extras, answer.probabilities, strict=True):
                order = (-row).argsort(kind="stable")[:listed]
                top = [(model.class_names[k], float(f"{row[k]:.6g}")) for k in order]
                write(_printable(str(item)), extra, top)
            for item, reason in answer.bad:
                remark(f"left out {_printable(str(item))}: {reason}")
            done, bad = done + len(answer.items), bad + len(answer.bad)
            count(len(answer.items) + len(answer.bad))
        if out is not None and done:
            written = "replaced" if os.path.isfile(out) else "wrote"  # the file gets its name when it is complete
        if not done:
            named = "the list on stdin" if paths == [STDIN] else ", ".join(paths)
            raise EvenhandError(f"None of the {bad} images can be read." if bad else f"There are no images in {named}.")
    if out is not None:
        remark(f"{written} {out}, {done:,} image{'s' * (done != 1)}")


def _load(run: Path, *, ensemble: bool, costs: Path | None, prior: str | None) -> "TrainedModel":
    """Load a model that answers with the most probable class, or that of least expected cost."""
    from evenhand.training.predict import load

    model = load(run, ensemble=ensemble, prior=prior, costs=costs)
    show_chosen_model(run, ensemble=ensemble, prior=prior or (None if costs is None else "uniform"))
    if costs is None and model.costs is not None:
        remark("deciding by the costs that the model was exported with")
    return model


def _load_unsure(run: Path, *, coverage: float | None, min_precision: float | None) -> "UnsureModel":
    """Load a model that answers with sets of classes, or may be unsure."""
    from evenhand.training.decisions import load_unsure

    unsure = load_unsure(run, coverage=coverage, min_precision=min_precision)
    show_chosen_model(run, ensemble=unsure.sets is not None and unsure.sets.calibration.folds > 1)
    for line in unsure.describe():
        remark(line)
    return unsure


def _extras(model: "TrainedModel", answer: "BatchPrediction | UnsureBatch") -> list[Extra]:
    """Return what is answered for each image of a batch, next to the probabilities."""
    from evenhand.metrics.costs import expected_costs
    from evenhand.training.decisions import UnsureBatch

    names, rows = model.class_names, answer.probabilities
    if not isinstance(answer, UnsureBatch):
        if model.costs is None:
            return [{} for _ in rows]
        least = expected_costs(rows, model.costs).min(1)
        return [
            {"answer": names[k], "expected_cost": float(f"{cost:.6g}")}
            for k, cost in zip(model.decide(rows), least, strict=True)
        ]
    extras: list[Extra] = [{} for _ in rows]
    for place, extra in enumerate(extras):
        if answer.answered is not None:
            extra["answer"] = names[int(rows[place].argmax())] if answer.answered[place] else UNSURE
        if answer.sets is not None:
            order = [int(k) for k in (-rows[place]).argsort(kind="stable") if answer.sets[place, k]]
            extra |= {"set_size": len(order), "set": [names[k] for k in order]}
    return extras


def find_images(paths: Iterable[str]) -> Iterator[str]:
    """Yield image files one by one: those named, those listed on stdin, and those in folders, at any depth.

    Hidden files and folders are skipped, and links to folders are not followed.
    """
    for path in paths:
        if path == STDIN:
            lines = (os.fsdecode(line).rstrip("\r\n") for line in sys.stdin.buffer)
            yield from find_images(line for line in lines if line and line != STDIN)
        elif os.path.isdir(path):
            yield from _in_folder(path)
        else:
            yield path


def _in_folder(folder: str) -> Iterator[str]:
    from evenhand.core.errors import EvenhandError
    from evenhand.data.folders import IMAGE_SUFFIXES

    def refuse(error: OSError) -> None:
        raise EvenhandError(f"Cannot read {error.filename}: {error.strerror}.") from error

    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:
                yield os.path.join(place, name)


def _csv_writer(target: IO[str], listed: int, raw: bool) -> Write:
    from evenhand.core.files import csv_writer
    from evenhand.core.text import plain_cell, visible

    write_row = csv_writer(target)
    heading = ["class", "probability"]
    for place in range(2, listed + 1):
        heading += [f"class_{place}", f"probability_{place}"]
    begun = False

    def write(file: str, extra: Extra, top: Top) -> None:
        nonlocal begun
        if not begun:
            write_row(["file", *extra, *heading])
            begun = True
        added = [SEPARATOR.join(value) if isinstance(value, list) else value for value in extra.values()]
        cells: list[object] = [file, *added, *(field for pair in top for field in pair)]
        if target.isatty() and not raw:
            cells = [visible(each) if isinstance(each, str) else each for each in cells]
        write_row(cells if raw else [plain_cell(cell) for cell in cells])

    return write


def _json_writer(target: IO[str], raw: bool) -> Write:
    from evenhand.core.text import json_line

    def write(file: str, extra: Extra, top: Top) -> None:
        listed = [{"class": name, "probability": probability} for name, probability in top]
        row = {"file": file, **extra, **listed[0], "top": listed}
        target.write((json.dumps(row, ensure_ascii=False) if raw else json_line(row)) + "\n")

    return write


def _printable(name: str) -> str:
    r"""Return a name that can be encoded: bytes that are not UTF-8 become \udcXX."""
    return name.encode("utf-8", "backslashreplace").decode()


@contextmanager
def _output(path: Path | None, run: Path) -> Iterator[IO[str]]:
    """Open the output in UTF-8; a file gets its name when it is complete."""
    from evenhand.core.files import enclosing, replacing
    from evenhand.runs.run import run_of

    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        yield sys.stdout
        return
    with (
        replacing(path, within=enclosing(path, [run_of(run)])) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        yield file


@contextmanager
def _counting(*, hidden: bool) -> Iterator[Callable[[int], None]]:
    """Show the number of images on stderr, in a terminal only; yields a function that adds to it."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.completed:,.0f} images"), TimeElapsedColumn()
    hidden = hidden or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("predicting", total=None)
        yield lambda count: bar.advance(task, count)
