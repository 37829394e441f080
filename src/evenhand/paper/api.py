"""A study of the paper from its plan to its pages: what `evenhand reproduce` and Python users call."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evenhand.core.errors import EvenhandError
from evenhand.core.files import check_folder, refuse_linked
from evenhand.core.text import slug
from evenhand.data.download import MissingData
from evenhand.data.sources import load_source
from evenhand.data.table import SampleTable
from evenhand.experiments.grid.jobs import Job
from evenhand.experiments.grid.progress import GridCallback
from evenhand.experiments.grid.running import run_on_engine
from evenhand.paper import _claims as claims
from evenhand.paper import _speed as speed
from evenhand.paper._deviations import deviations
from evenhand.paper._dry_run import describe_runs
from evenhand.paper._figures import draw_paper_figure
from evenhand.paper._open_choices import open_choices
from evenhand.paper._provenance import provenance
from evenhand.paper._run_store import RunStore
from evenhand.paper.planning import StudyOptions, jobs_of, plan
from evenhand.paper.render import write_pages, write_reproduction
from evenhand.paper.results import Reproduction, read_reproduction
from evenhand.paper.studies import Study, find_study
from evenhand.runs.comparison import Comparison
from evenhand.runs.record import RunRecord, records_in
from evenhand.runs.run import Run

OUT = Path("runs/reproduce")


@dataclass(frozen=True)
class ReproductionResult:
    """The result of a study."""

    written: list[Path] = field(default_factory=list)
    """The files."""
    table: Reproduction | None = None
    """None unless the study is a table."""
    lines: list[str] = field(default_factory=list)
    """The result as text, unless the study is a table or a figure."""


def reproduce(
    study: str,
    options: StudyOptions | None = None,
    *,
    out: Path | str = OUT,
    train: bool = True,
    runs_only: bool = False,
    records: Path | str | None = None,
    comparisons: Path | str | None = None,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    slurm: str | None = None,
    command: str = "",
    callback: GridCallback | None = None,
) -> ReproductionResult:
    """Reproduce a table or figure of the paper: train the runs that are missing, then write its files.

    Args:
        study: the id of a table or figure, `speed` or `claims`.
        options: how it is run; None: protocol small, 3 seeds.
        out: runs are stored in `runs/` of this folder, results in folders of their own.
        train: False: use the runs that are finished.
        runs_only: write no table or figure.
        records: a folder of compact records; the runs they are of are not trained again.
        comparisons: a folder of kept comparisons (`comparison.json` of any name), for `claims`.
        engine: `local`, `ray` or `slurm`, see :func:`~evenhand.experiments.grid.running.run_on_engine`.
        workers: runs at a time; None: as the engine chooses.
        address: of a Ray cluster; None: one on this machine.
        slurm: what each job of SLURM asks for.
        command: the command line, for the page and at the top of each config.
        callback: progress callback.

    Example:
        >>> import tempfile
        >>> from evenhand.paper.api import reproduce
        >>> result = reproduce("figure-distributions", out=tempfile.mkdtemp())
        >>> sorted(path.suffix for path in result.written)
        ['.pdf', '.png', '.svg']
    """
    chosen, options, out = find_study(study), options or StudyOptions(), Path(out)
    check_folder(out)
    for name in ("runs", folder_name(chosen, options), chosen.id):
        refuse_linked(out / name / "any", [out])
    _check_records(chosen, records)
    kept = [] if records is None else records_in(records)
    if comparisons is not None and chosen.id != "claims":
        raise EvenhandError(f"{chosen.id} is made from runs; --comparisons is for claims.")
    if chosen.id == "claims":
        return _write_claims(out, kept, [] if comparisons is None else comparisons_in(comparisons), command)
    if chosen.id == "speed":
        return _write_speed(out / chosen.id, command)
    jobs = study_jobs(chosen, options, out)
    missing = _unrecorded(jobs, RunStore(out / "runs", kept)) if train else []
    check_sources(job for job in missing if not Run(job.folder).finished)
    failures = (
        run_on_engine(
            missing, engine, workers=workers, address=address, slurm=slurm, command=command, callback=callback
        )
        if missing
        else []
    )
    if runs_only:
        return ReproductionResult()
    folder = out / folder_name(chosen, options)
    if chosen.id.startswith("figure-"):
        failed = {failure.job.folder for failure in failures}
        folders = [job.folder for job in jobs if job.folder not in failed and Run(job.folder).finished]
        return ReproductionResult(draw_paper_figure(chosen.id, folders, folder))
    table = read_reproduction(chosen, options, out / "runs", records=kept, command=command)
    return ReproductionResult(write_reproduction(table, folder), table)


def study_jobs(study: Study, options: StudyOptions, out: Path, records: Path | str | None = None) -> list[Job]:
    """Return the runs of a study, without those that are recorded in a folder."""
    jobs = jobs_of(plan(study, options), out / "runs")
    return jobs if records is None else _unrecorded(jobs, RunStore(out / "runs", records_in(records)))


def _unrecorded(jobs: Sequence[Job], store: RunStore) -> list[Job]:
    return [job for job in jobs if not isinstance(store.find(job), RunRecord)]


def _check_records(study: Study, records: Path | str | None) -> None:
    if records is not None and study.id.startswith("figure-"):
        raise EvenhandError(f"{study.id} is drawn from run folders, which --records does not replace; leave it out.")


def check_sources(jobs: Iterable[Job]) -> None:
    """Load every data set once before any run starts, so that missing data are reported, or downloaded, first."""
    for source, root in dict.fromkeys((job.config.data.source, job.config.data.root) for job in jobs):
        load_study_source(source, root)


def load_study_source(source: str, root: str | None) -> SampleTable:
    """Load the data set of a study; if it is missing, the error names the option that replaces it."""
    try:
        return load_source(source, data_root=root)
    except MissingData as error:
        raise EvenhandError(f"{str(error).rstrip('.')}; or name other data with --source.") from error


def title(study: Study, options: StudyOptions) -> list[str]:
    """Return what a study shows, and where it differs from what the paper did."""
    first = f"{study.id}, protocol {options.protocol}: {study.shows}"
    return [first, *_indented("Differs from the paper:", deviations(study, options))]


def describe_plan(
    study: Study,
    options: StudyOptions,
    *,
    out: Path | str = OUT,
    records: Path | str | None = None,
    workers: int | None = None,
) -> list[str]:
    """Return what would be run, what the paper leaves open, and how long it takes on this machine.

    Args:
        study: the study.
        options: how it is run.
        out: the folder of its results.
        records: a folder of compact records of finished runs.
        workers: runs at a time; None: the default of a grid.
    """
    _check_records(study, records)
    store = RunStore(Path(out) / "runs", [] if records is None else records_in(records))
    choices = _indented("Open in the paper, and the choice here:", open_choices(plan(study, options)))
    return [*title(study, options), *choices, *describe_runs(study_jobs(study, options, Path(out)), store, workers)]


def folder_name(study: Study, options: StudyOptions) -> str:
    """Return the name of the folder of the results; whatever narrows a study is part of it.

    Example:
        >>> from evenhand.paper.api import folder_name
        >>> from evenhand.paper.planning import StudyOptions
        >>> from evenhand.paper.studies import STUDIES
        >>> folder_name(STUDIES["table-gamma"], StudyOptions("paper", range(100, 105), model="resnet8"))
        'table-gamma-paper-resnet8-seeds100-104'
    """
    seeds = options.seeds
    parts = [study.id, options.protocol]
    parts += [] if options.model is None else [slug(options.model)]
    parts += [] if options.epochs is None else [f"{options.epochs}epochs"]
    parts += [] if options.source is None else [slug(Path(options.source).name)]
    parts += [] if seeds[0] == 0 else [f"seeds{seeds[0]}-{seeds[-1]}"]
    parts += ["only", *map(slug, options.only)] if options.only else []
    return "-".join(parts)


def _indented(heading: str, lines: Sequence[str]) -> list[str]:
    return [heading, *(f"  {line}" for line in lines)] if lines else []


def comparisons_in(folder: Path | str) -> list[Comparison]:
    """Read all comparisons under a folder, recursively.

    Raises:
        EvenhandError: there is none, or one is damaged.
    """
    paths = sorted(Path(folder).rglob("*.json"))
    if not paths:
        raise EvenhandError(f"There is no comparison in {folder}.")
    return [Comparison.read(path) for path in paths]


def _write_claims(
    out: Path, records: Sequence[RunRecord], comparisons: Sequence[Comparison], command: str
) -> ReproductionResult:
    checked = claims.check_claims(out, records=records, comparisons=comparisons)
    found = provenance(RunStore(out / "runs", records).runs())
    content = claims.claims_json(checked, command, found)
    page = claims.claims_markdown(checked, command, found)
    lines = [line for each in checked for line in (each.claim.text, *(f"  {line}" for line in each.lines()))]
    return ReproductionResult(write_pages(out / "claims", content, claims.claims_rows(checked), page), lines=lines)


def _write_speed(folder: Path, command: str) -> ReproductionResult:
    times, found = speed.measure_speed(), speed.machine()
    content = speed.speed_json(times, command, found)
    page = speed.speed_markdown(times, command, found)
    return ReproductionResult(write_pages(folder, content, speed.speed_rows(times), page), lines=page.splitlines())
