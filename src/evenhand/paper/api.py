"""A study of the paper from its plan to its pages: what `evenhand reproduce` and Python users call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.core.files import check_folder
from evenhand.core.text import slug
from evenhand.data.sources import load_source
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.experiments.grid.local import default_workers, run_jobs
from evenhand.experiments.grid.runtime_estimate import estimate, size_of
from evenhand.paper import _claims as claims
from evenhand.paper import _speed as speed
from evenhand.paper._figures import draw_paper_figure
from evenhand.paper.pages import write_pages, write_reproduction
from evenhand.paper.planning import StudyOptions, deviations, jobs_of, plan
from evenhand.paper.reproducing import Reproduction, check_sources, how_made, read_reproduction
from evenhand.paper.studies import Study, find_study
from evenhand.runs.config import Config
from evenhand.runs.run import Run, runs_in

OUT = Path("runs/reproduce")
WITHOUT_RUNS = ("speed", "claims")


@dataclass(frozen=True)
class Made:
    """What came of a study."""

    written: list[Path] = field(default_factory=list)
    result: Reproduction | None = None
    """Of a table."""
    lines: list[str] = field(default_factory=list)
    """To be read, where there is no table."""


def reproduce(
    study: str,
    options: StudyOptions | None = None,
    *,
    out: Path | str = OUT,
    run: Callable[[Sequence[Job]], list[Failure]] = run_jobs,
    runs_only: bool = False,
    command: str = "",
) -> Made:
    """Make a table or figure of the paper again, from the runs that are there and those that are missing.

    Args:
        study: the name of a table or figure, `speed` or `claims`.
        options: how it is made; None: the small protocol, 3 seeds.
        out: runs go to `runs/` in it, results to folders of their own.
        run: finishes runs, and returns those that failed.
        runs_only: make no table or figure.
        command: what was typed, for the record.

    Example:
        >>> import tempfile
        >>> from evenhand.paper.api import reproduce
        >>> made = reproduce("figure-distributions", out=tempfile.mkdtemp())
        >>> sorted(path.suffix for path in made.written)
        ['.pdf', '.png', '.svg']
    """
    chosen, options, out = find_study(study), options or StudyOptions(), Path(out)
    check_folder(out)
    if chosen.id in WITHOUT_RUNS:
        return _without_runs(chosen.id, out, command)
    cells = plan(chosen, options)
    check_sources(cells)
    jobs = jobs_of(cells, out / "runs")
    lost = {failure.job.folder for failure in run(jobs)}
    folder = out / folder_name(chosen, options)
    if runs_only:
        return Made()
    if chosen.id.startswith("figure-"):
        return Made(draw_paper_figure(chosen.id, [job.folder for job in jobs if job.folder not in lost], folder))
    result = read_reproduction(chosen, options, out / "runs", command=command)
    return Made(write_reproduction(result, folder), result)


def title(study: Study, options: StudyOptions) -> list[str]:
    """Say what a study shows, and where it differs from what the paper did."""
    first = f"{study.id}, protocol {options.protocol}: {study.shows}"
    return [first, *(f"  {each}" for each in deviations(study, options))]


def study_jobs(study: Study, options: StudyOptions, out: Path) -> list[Job]:
    """Return the runs of a study."""
    return jobs_of(plan(study, options), out / "runs")


def describe_plan(study: Study, options: StudyOptions, jobs: Sequence[Job], workers: int | None = None) -> list[str]:
    """Say what would be run, and how long that takes on this machine.

    Args:
        study: the study.
        options: how it is made.
        jobs: its runs.
        workers: runs at a time; None: as a grid chooses.
    """
    lines = title(study, options)
    if not jobs:
        return [*lines, "It needs no runs and takes a minute at most."]
    left = []
    for job in jobs:
        done = Run(job.folder).finished
        shown = "done" if done else f"{size_of(job.config.data).train * job.config.epochs:,} images"
        lines.append(f"  {job.folder.name}: {job.config.epochs} epochs, {shown}")
        left += [] if done else [job.config]
    workers = workers or default_workers(jobs)
    work = estimate(left, workers=workers)
    lines.append(
        f"{len(jobs)} runs, {len(jobs) - len(left)} of them done; {work.trained:,} images to train on (all epochs) and "
        f"{work.tested:,} to test on"
    )
    lines += [f"measured here: {speed:,.0f} images/s with {kind}" for kind, speed in work.speeds.items()]
    lines.append(f"about {_duration(work.seconds)} on this machine with {workers} runs at a time")
    return lines + [f"before that, data are needed that are not here: {each}" for each in _missing_data(left)]


def _missing_data(configs: Sequence[Config]) -> list[str]:
    """Return a sentence for each data set that would have to be fetched first."""
    sources = dict.fromkeys((config.data.source, config.data.root) for config in configs)
    return list(filter(None, (_missing(*source) for source in sources)))


def _missing(source: str, root: str | None) -> str:
    try:
        load_source(source, data_root=root, download=False)
    except EvenhandError as error:
        return str(error)
    return ""


def folder_name(study: Study, options: StudyOptions) -> str:
    """Name the folder of the results, so that a study cut short or on other data replaces no whole one."""
    parts = [study.id, options.protocol]
    parts += [] if options.epochs is None else [f"{options.epochs}epochs"]
    parts += [] if options.source is None else [slug(Path(options.source).name)]
    parts += ["only", *map(slug, options.only)] if options.only else []
    return "-".join(parts)


def _without_runs(name: str, out: Path, command: str) -> Made:
    pages: tuple[dict[str, Any], list[dict[str, Any]], str]
    if name == "claims":
        checked = claims.check_claims(out)
        made = how_made([run.path for run in runs_in(out / "runs") if run.finished])
        pages = (
            claims.claims_json(checked, command, made),
            claims.claims_rows(checked),
            claims.claims_markdown(checked, command, made),
        )
        lines = [line for each in checked for line in (each.claim.text, *(f"  {line}" for line in each.lines()))]
    else:
        times, made = speed.measure_speed(), speed.here()
        pages = (
            speed.speed_json(times, command, made),
            speed.speed_rows(times),
            speed.speed_markdown(times, command, made),
        )
        lines = pages[2].splitlines()
    return Made(write_pages(out / name, *pages), lines=lines)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
