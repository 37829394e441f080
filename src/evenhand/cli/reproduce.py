"""`evenhand reproduce`: what the paper shows, measured beside what it printed."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli.options import DataRoot, Engine, Jobs, Quiet, RayAddress, Status
from evenhand.cli.output import echo, remark

if TYPE_CHECKING:
    from evenhand.experiments.grid.jobs import Failure, Job
    from evenhand.paper.reproducing import Reproduction


def reproduce(
    study: Annotated[
        str | None, typer.Argument(help="A table or figure, speed or claims; all are listed if none.")
    ] = None,
    protocol: Annotated[str, typer.Option(help="small, or paper: by its recipe.")] = "small",
    seeds: Annotated[int, typer.Option(help="Runs of each cell.")] = 3,
    epochs: Annotated[int | None, typer.Option(help="Train shorter than the protocol; said in every result.")] = None,
    released: Annotated[bool, typer.Option("--released", help="Add CCE with the released code's sign.")] = False,
    source: Annotated[
        str | None, typer.Option(help="Other data in place of the study's, such as fashion-mnist for table-gamma.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Some cells: networks, methods, data sets, imbalances, such as CCE,ERM,exp:100.")
    ] = None,
    jobs: Jobs = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    out: Annotated[Path, typer.Option(help="Runs go to runs/ in it, results to folders of their own.")] = Path(
        "runs/reproduce"
    ),
    data_root: DataRoot = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be run, and how long it takes.")
    ] = False,
    status: Status = False,
    runs_only: Annotated[bool, typer.Option("--runs-only", help="Make the runs, and no table or figure.")] = False,
    quiet: Quiet = False,
) -> None:
    """Make a table or figure of the paper again; without STUDY, list them all with what each needs."""
    if study is None:
        _list_studies()
        return
    from evenhand.cli.grid_progress import run_grid, show_failures, show_status
    from evenhand.core.errors import EvenhandError
    from evenhand.experiments.grid.running import check_engine
    from evenhand.paper import api
    from evenhand.paper.planning import StudyOptions
    from evenhand.paper.studies import find_study

    chosen, command = find_study(study), shlex.join(["evenhand", *sys.argv[1:]])
    check_engine(engine, workers=jobs, address=ray_address)  # before data are fetched
    root = None if data_root is None else str(data_root)
    cells = tuple(only.split(",")) if only else ()
    options = StudyOptions(protocol, seeds, released, epochs, source, root, cells)  # type: ignore[arg-type]
    if dry_run or status:
        grid = api.study_jobs(chosen, options, out)
        if status and grid:
            show_status(grid, workers=jobs)
        else:
            _echo(api.describe_plan(chosen, options, grid, jobs))
        return
    failures: list[Failure] = []

    def run(grid: "Sequence[Job]") -> "list[Failure]":
        if not quiet:
            _echo(api.title(chosen, options))
        failures[:] = run_grid(grid, workers=jobs, engine=engine, address=ray_address, command=command, quiet=quiet)
        return failures

    try:
        made = api.reproduce(chosen.id, options, out=out, run=run, runs_only=runs_only, command=command)
    except EvenhandError:
        show_failures(failures)  # what failed may be why
        raise
    if not quiet:
        _echo(made.lines)
        if made.result is not None:
            _show(made.result)
    show_failures(failures)
    if not quiet:
        for path in made.written:
            remark(f"wrote {path}")
    if failures:
        raise typer.Exit(1)


def _list_studies() -> None:
    from evenhand.paper.studies import STUDIES

    width = max(map(len, STUDIES))
    for study in STUDIES.values():
        echo(f"{study.id:<{width}}  {study.shows} (needs {study.needs})")
    echo("\nevenhand reproduce STUDY --dry-run says how long a study takes here.")


def _show(result: "Reproduction") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from evenhand.paper.pages import column_sentences, column_table, explanation

    console = Console(highlight=False)
    for column in result.columns:
        heading, rows = column_table(column, result.measures)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in heading:
            table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(Text(f"\n{column.title}", style="bold"), soft_wrap=True)
        console.print(table)
        for sentence in column_sentences(column, result.measures):
            console.print(Text(sentence), soft_wrap=True)
    console.print()
    for sentence in (*result.conclusions(), explanation(result)):
        console.print(Text(sentence), soft_wrap=True)


def _echo(lines: Sequence[str]) -> None:
    for line in lines:
        echo(line)
