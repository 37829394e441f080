"""`evenhand reproduce`: tables, figures and claims of the paper, measured against the published numbers."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli.options import DataRoot, Engine, Jobs, Quiet, RayAddress, Slurm, Status
from evenhand.cli.output import echo, remark

if TYPE_CHECKING:
    from evenhand.paper.results import Reproduction


def reproduce(
    study: Annotated[str | None, typer.Argument(help="Table, figure, speed or claims; omit to list all.")] = None,
    protocol: Annotated[str, typer.Option(help="small (quick check), fair (all images) or paper.")] = "small",
    seeds: Annotated[str, typer.Option(help="Number of seeds (3), or a range (100-104).")] = "3",
    epochs: Annotated[int | None, typer.Option(help="Number of epochs; the schedule is scaled.")] = None,
    model: Annotated[str | None, typer.Option(help="Network to train instead of the study's.")] = None,
    released: Annotated[bool, typer.Option("--released", help="Add CCE with the released code's sign.")] = False,
    source: Annotated[str | None, typer.Option(help="Data set to use instead of the study's.")] = None,
    only: Annotated[
        str | None, typer.Option(help="Networks, methods, data sets or imbalances to run, such as CCE,ERM,exp:100.")
    ] = None,
    jobs: Jobs = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    slurm: Slurm = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs and results.")] = Path("runs/reproduce"),
    records: Annotated[
        Path | None, typer.Option(help="Folder of run records; their runs are not trained again.")
    ] = None,
    comparisons: Annotated[
        Path | None, typer.Option(help="Folder of kept comparisons that claims are tested on, too.")
    ] = None,
    data_root: DataRoot = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and estimate the time.")] = False,
    status: Status = False,
    runs_only: Annotated[bool, typer.Option("--runs-only", help="Train, but write no table or figure.")] = False,
    no_train: Annotated[bool, typer.Option("--no-train", help="Use finished runs only; list the others.")] = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce a table or figure of the paper."""
    if study is None:
        _list_studies()
        return
    from evenhand.cli.grid_progress import show_failures, show_status, watching_grid
    from evenhand.core.errors import EvenhandError
    from evenhand.experiments.grid.running import check_engine
    from evenhand.paper import api
    from evenhand.paper.planning import StudyOptions, parse_seeds
    from evenhand.paper.studies import find_study

    chosen, command = find_study(study), shlex.join(["evenhand", *sys.argv[1:]])
    if no_train and runs_only:
        raise EvenhandError("--no-train and --runs-only leave nothing to do; use one of them.")
    check_engine(engine, workers=jobs, address=ray_address, slurm=slurm)  # before data are downloaded
    options = StudyOptions(
        protocol=protocol,  # type: ignore[arg-type]
        seeds=parse_seeds(seeds),
        released=released,
        epochs=epochs,
        source=source,
        data_root=None if data_root is None else str(data_root),
        only=tuple(only.split(",")) if only else (),
        model=model,
    )
    if status and (grid := api.study_jobs(chosen, options, out, records)):
        show_status(grid, workers=jobs)
        return
    if dry_run or status:
        _echo(api.describe_plan(chosen, options, out=out, records=records, workers=jobs))
        return
    with watching_grid(workers=jobs, engine=engine, heading=api.title(chosen, options), quiet=quiet) as progress:
        try:
            result = api.reproduce(
                chosen.id,
                options,
                out=out,
                train=not no_train,
                runs_only=runs_only,
                records=records,
                comparisons=comparisons,
                engine=engine,
                workers=jobs,
                address=ray_address,
                slurm=slurm,
                command=command,
                callback=progress,
            )
        except EvenhandError:
            show_failures(progress.failures)  # a failed run may be the cause
            raise
    if not quiet:
        _echo(result.lines)
        if result.table is not None:
            _show(result.table)
    show_failures(progress.failures)
    if not quiet:
        for path in result.written:
            remark(f"wrote {path}")
    if progress.failures:
        raise typer.Exit(1)


def _list_studies() -> None:
    from evenhand.paper.studies import STUDIES

    width = max(map(len, STUDIES))
    for study in STUDIES.values():
        echo(f"{study.id:<{width}}  {study.shows} (needs {study.needs})")
    echo("\nevenhand reproduce STUDY --dry-run estimates the time that a study takes.")


def _show(result: "Reproduction") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from evenhand.paper.render import column_sentences, column_table, explanation

    console = Console(highlight=False)
    for column in result.columns:
        if not column.finished:
            continue
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
    not_run = [f"Not run: {each}" for each in result.not_run()]
    for sentence in (
        *not_run,
        *result.conclusions(),
        *filter(None, [result.options.settings.caveat]),
        explanation(result),
    ):
        console.print(Text(sentence), soft_wrap=True)


def _echo(lines: Sequence[str]) -> None:
    for line in lines:
        echo(line)
