"""A grid of runs: objectives x seeds x imbalances x networks x sources, each in a folder named by its config."""

import itertools
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from evenhand.core.errors import EvenhandError
from evenhand.core.files import read_json, write_json
from evenhand.core.locks import LOCK, is_locked
from evenhand.core.spec import parse
from evenhand.data.benchmarks import BENCHMARKS
from evenhand.data.imbalance import Imbalance
from evenhand.data.sources import load_source
from evenhand.experiments.grid.naming import canonical_source, is_benchmark, run_folder
from evenhand.models.build import require_model
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.runs.config import Config, validate
from evenhand.runs.run import Run
from evenhand.training.derived_run import shares_training
from evenhand.training.second_stage import with_stage

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Job:
    """One run of a grid."""

    config: Config
    folder: Path
    """Named by the config."""
    after: "Job | None" = None
    """The run whose weights it starts from or whose training it shares: it waits for that one, and fails with it."""

    @property
    def lock(self) -> Path:
        """Held by the process that works on the run."""
        return self.folder / LOCK

    @property
    def failure(self) -> Path:
        """Why the last attempt failed; no file if it did not."""
        return self._grid_file("failure.json")

    @property
    def log(self) -> Path:
        """What the run's processes printed."""
        return self._grid_file("log")

    @property
    def submission(self) -> Path:
        """The id of the cluster's job that does the run."""
        return self._grid_file("job.json")

    @property
    def submissions(self) -> Path:
        """The folder of what is submitted to a cluster, with the logs of its jobs."""
        return self.folder.parent / ".grid" / "submitted"

    def _grid_file(self, ending: str) -> Path:
        return self.folder.parent / ".grid" / f"{self.folder.name}.{ending}"


@dataclass(frozen=True)
class Failure:
    """A run that could not be finished."""

    job: Job
    reason: str
    """One sentence."""


class Status(str, Enum):
    """The progress of a run."""

    DONE = "done"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    MISSING = "missing"


def status(job: Job) -> Status:
    """Read the status of a run from disk; it is running while a living process holds its lock."""
    run = Run(job.folder)
    if run.finished:
        return Status.DONE
    if is_locked(job.lock):
        return Status.RUNNING
    if job.failure.is_file():
        return Status.FAILED
    return Status.INTERRUPTED if run.begun else Status.MISSING


def write_failure(failure: Failure, trace: str = "") -> None:
    """Write why a run failed; the file is removed when the run is tried again."""
    content = {"reason": failure.reason, "traceback": trace}
    write_json(failure.job.failure, content, within=failure.job.folder.parent)


def read_failure(job: Job) -> Failure | None:
    """Return why the last attempt at a run failed, or None."""
    try:
        if not os.path.lexists(job.failure):
            return None
        return Failure(job, str(read_json(job.failure, within=job.folder.parent)["reason"]))
    except (EvenhandError, OSError, LookupError):
        return Failure(job, f"It failed, but {job.failure} cannot be read.")


def make_grid(
    root: Path | str,
    base: Config,
    *,
    objectives: Sequence[str],
    seeds: Sequence[int],
    imbalances: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
) -> list[Job]:
    """Return the runs of all combinations; those of a seed come together, so that the first ones can be compared.

    Args:
        root: the folder of the run folders.
        base: everything that the runs share; its own imbalance, network and source where none are given.
        objectives: specs, such as `ce` and `cce:gamma=-2`.
        seeds: 0 or more each.
        imbalances: specs, such as `exp:100` and `none`.
        models: names of networks.
        sources: data sets, folders, `.csv` or `.npz` files.

    Raises:
        EvenhandError: an entry is unknown, missing or given twice.

    Example:
        >>> from evenhand.experiments.grid.jobs import make_grid
        >>> from evenhand.runs.config import Config
        >>> jobs = make_grid("runs", Config(), objectives=["erm", "cce:gamma=-1"], seeds=range(3))
        >>> [(job.config.seed, job.config.objective) for job in jobs]
        [(0, 'ce'), (0, 'cce'), (1, 'ce'), (1, 'cce'), (2, 'ce'), (2, 'cce')]
    """
    if base.compute.devices not in ("auto", 1) or base.compute.nodes != 1:
        asked = f"{base.compute.nodes} x {base.compute.devices}"
        raise EvenhandError(f"Each run of a grid takes one device; leave compute.devices and nodes, got {asked}.")
    chosen = (
        _distinct("source", [base.data.source] if sources is None else sources, _known_source),
        _distinct(
            "imbalance",
            [base.data.imbalance] if imbalances is None else imbalances,
            lambda text: str(Imbalance.parse(text)),
        ),
        _distinct("network", [base.model.name] if models is None else models, require_model),
        _distinct("seed", seeds, lambda seed: seed),
        _distinct("objective", objectives, ObjectiveSpec),
    )
    content = base.model_dump()
    jobs = []
    for source, imbalance, model, seed, objective in itertools.product(*chosen):
        content["data"] |= {"source": source, "imbalance": imbalance}
        content["model"] |= {"name": model}
        jobs.append(_job(Path(root), validate(content | {"seed": seed, "objective": objective})))
    return jobs


def _job(root: Path, config: Config) -> Job:
    """Return a run, with the one it waits for: whose training it shares, or whose weights it starts from."""
    shared = shares_training(config)
    if shared is not None:
        return Job(config, run_folder(root, config), after=_job(root, shared))
    if config.objective.stage is not None:
        first = _job(root, config.model_copy(update={"objective": config.objective.first_stage}))
        return job_after(first, with_stage(config))
    return Job(config, run_folder(root, config))


def with_dependencies(jobs: Sequence[Job]) -> list[Job]:
    """Return runs and those that they wait for, each once, dependencies first.

    Example:
        >>> from evenhand.experiments.grid.jobs import make_grid, with_dependencies
        >>> from evenhand.runs.config import make_config
        >>> jobs = make_grid("runs", make_config(), objectives=["ce+post-hoc", "cce"], seeds=[0])
        >>> [job.config.objective for job in with_dependencies(jobs)]
        ['ce', 'ce+post-hoc', 'cce']
    """
    found: dict[Path, Job] = {}
    for job in jobs:
        for each in [*(with_dependencies([job.after]) if job.after else []), job]:
            found.setdefault(each.folder, each)
    return list(found.values())


def job_after(first: Job, config: Config) -> Job:
    """Return a run that starts from the weights of another one, in the same folder, once that is finished.

    Args:
        first: the run it waits for.
        config: of the second stage; `start.weights` is set to the first run.

    Example:
        >>> from evenhand.experiments.grid.jobs import job_after, make_grid
        >>> from evenhand.runs.config import make_config
        >>> (first,) = make_grid("runs", make_config(), objectives=["ce"], seeds=[0])
        >>> second = job_after(first, make_config(objective="ce", epochs=5))
        >>> second.after == first, second.config.start.weights == str(first.folder)
        (True, True)
    """
    started = config.model_copy(update={"start": config.start.model_copy(update={"weights": str(first.folder)})})
    return Job(started, run_folder(first.folder.parent, started), after=first)


def _known_source(source: str) -> str:
    """Refuse a source that does not exist, without reading it."""
    if is_benchmark(source):
        part, *others = parse(source)
        known = not others and part.value is None and set(part.options) <= set(BENCHMARKS[part.name].options)
    else:
        known = bool(source.strip()) and os.path.exists(os.path.expanduser(source))
    if not known:
        load_source(source, download=False)  # raises the error
    return canonical_source(source)


def _distinct(what: str, given: Sequence[_Value], canonical: Callable[[_Value], Any]) -> list[Any]:
    """Return the canonical form of each entry; refuse an empty list and duplicates."""
    if not given:
        raise EvenhandError(f"A grid needs at least one {what}, got none.")
    seen: dict[Hashable, _Value] = {}
    for entry in given:
        value = canonical(entry)
        if value in seen:
            same = "" if seen[value] == entry else f", first as {seen[value]!r}"
            raise EvenhandError(f"The {what} {entry!r} is given twice{same}; leave one out.")
        seen[value] = entry
    return list(seen)
