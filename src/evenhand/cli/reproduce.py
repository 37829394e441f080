"""`evenhand reproduce`: what the paper shows, measured beside what it printed."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli.options import DataRoot, Engine, Jobs, Quiet, RayAddress, Status

if TYPE_CHECKING:
    from evenhand.experiments.grid.jobs import Job
    from evenhand.paper.planning import StudyOptions
    from evenhand.paper.reproducing import Reproduction
    from evenhand.paper.studies import Study


def reproduce(
    study: Annotated[
        str | None, typer.Argument(help="A table or figure, speed or claims; all are listed if none.")
    ] = None,
    protocol: Annotated[str, typer.Option(help="small, or paper: its recipe to the letter.")] = "small",
    seeds: Annotated[int, typer.Option(help="Runs of each cell.")] = 3,
    epochs: Annotated[int | None, typer.Option(help="Train shorter than the protocol; said in every result.")] = None,
    released: Annotated[bool, typer.Option("--released", help="Add CCE with the released code's sign.")] = False,
    source: Annotated[
        str | None, typer.Option(help="Other data in place of the study's, such as fashion-mnist for table-gamma.")
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
    from evenhand.paper.figures import draw_paper_figure
    from evenhand.paper.pages import write_reproduction
    from evenhand.paper.planning import StudyOptions, jobs_of, plan
    from evenhand.paper.reproducing import check_sources, read_reproduction
    from evenhand.paper.studies import find_study

    chosen, command = find_study(study), shlex.join(["evenhand", *sys.argv[1:]])
    if engine not in ("local", "ray"):  # before data are fetched
        raise EvenhandError(f"The engine is local or ray, got {engine!r}.")
    if ray_address is not None and engine != "ray":
        raise EvenhandError(f"--ray-address {ray_address} needs --engine ray.")
    root = None if data_root is None else str(data_root)
    options = StudyOptions(protocol, seeds, released, epochs, source, root)  # type: ignore[arg-type]
    if chosen.id in ("speed", "claims") and not (dry_run or status):
        _without_runs(chosen.id, out, command, quiet)
        return
    cells = plan(chosen, options)
    grid = jobs_of(cells, out / "runs")
    if dry_run or (status and not grid):
        _show_plan(chosen, options, grid, jobs)
        return
    if status:
        show_status(grid, workers=jobs)
        return
    check_sources(cells)
    if not quiet:
        _echo(_title(chosen, options))
    failures = run_grid(grid, workers=jobs, engine=engine, address=ray_address, command=command, quiet=quiet)
    folder = out / _folder_name(chosen, options)
    written: list[Path] = []
    try:
        if chosen.id.startswith("figure-") and not runs_only:
            lost = {failure.job.folder for failure in failures}
            written = draw_paper_figure(chosen.id, [job.folder for job in grid if job.folder not in lost], folder)
        elif not runs_only:
            result = read_reproduction(chosen, options, out / "runs", command=command)
            written = write_reproduction(result, folder)
            if not quiet:
                _show(result)
    except EvenhandError:
        show_failures(failures)  # what failed may be why
        raise
    show_failures(failures)
    if not quiet:
        for path in written:
            typer.echo(f"evenhand: wrote {path}", err=True)
    if failures:
        raise typer.Exit(1)


def _folder_name(study: "Study", options: "StudyOptions") -> str:
    """Name the folder of the results, so that a study cut short or on other data replaces no whole one."""
    from evenhand.core.text import slug

    parts = [study.id, options.protocol]
    parts += [] if options.epochs is None else [f"{options.epochs}epochs"]
    parts += [] if options.source is None else [slug(Path(options.source).name)]
    return "-".join(parts)


def _list_studies() -> None:
    from evenhand.paper.studies import STUDIES

    width = max(map(len, STUDIES))
    for study in STUDIES.values():
        typer.echo(f"{study.id:<{width}}  {study.shows} (needs {study.needs})")
    typer.echo("\nevenhand reproduce STUDY --dry-run says how long a study takes here.")


def _title(study: "Study", options: "StudyOptions") -> list[str]:
    from evenhand.paper.planning import deviations

    return [
        f"{study.id}, protocol {options.protocol}: {study.shows}",
        *(f"  {each}" for each in deviations(study, options)),
    ]


def _show_plan(study: "Study", options: "StudyOptions", grid: "Sequence[Job]", jobs: int | None) -> None:
    from evenhand.experiments.grid.estimating import estimate, size_of
    from evenhand.experiments.grid.local import default_workers
    from evenhand.runs.folder import Run

    _echo(_title(study, options))
    if not grid:
        typer.echo("It needs no runs and takes a minute at most.")
        return
    for job in grid:
        done = "done" if Run(job.folder).finished else f"{size_of(job.config.data).train * job.config.epochs:,} images"
        typer.echo(f"  {job.folder.name}: {job.config.epochs} epochs, {done}")
    left = [job.config for job in grid if not Run(job.folder).finished]
    workers = jobs or default_workers(grid)
    work = estimate(left, workers=workers)
    typer.echo(
        f"{len(grid)} runs, {len(grid) - len(left)} of them done; {work.trained:,} images to train on (all epochs) and "
        f"{work.judged:,} to test on"
    )
    for kind, speed in work.speeds.items():
        typer.echo(f"measured here: {speed:,.0f} images/s with {kind}")
    typer.echo(f"about {_duration(work.seconds)} on this machine with {workers} runs at a time")


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


def _without_runs(name: str, out: Path, command: str, quiet: bool) -> None:
    from evenhand.paper import claims, speed
    from evenhand.paper.pages import write_pages
    from evenhand.paper.reproducing import how_made
    from evenhand.runs.folder import runs_in

    shown: list[str] = []
    pages: tuple[dict[str, Any], list[dict[str, Any]], str]
    if name == "claims":
        checked = claims.check_claims(out)
        made = how_made([run.path for run in runs_in(out / "runs") if run.finished])
        pages = (
            claims.claims_json(checked, command, made),
            claims.claims_rows(checked),
            claims.claims_markdown(checked, command, made),
        )
        for each in checked:
            shown += [each.claim.text, *(f"  {line}" for line in each.lines())]
    else:
        times, made = speed.measure_speed(), speed.here()
        pages = (
            speed.speed_json(times, command, made),
            speed.speed_rows(times),
            speed.speed_markdown(times, command, made),
        )
        shown = pages[2].splitlines()
    written = write_pages(out / name, *pages)
    if not quiet:
        _echo(shown)
        for path in written:
            typer.echo(f"evenhand: wrote {path}", err=True)


def _echo(lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(line)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
