"""Run a grid on the chosen engine."""

from collections.abc import Sequence

from evenhand.core.errors import EvenhandError
from evenhand.core.files import check_folder
from evenhand.experiments.grid._on_ray import run_on_ray
from evenhand.experiments.grid._on_slurm import run_on_slurm
from evenhand.experiments.grid._slurm_cluster import require_slurm
from evenhand.experiments.grid._slurm_options import parse_slurm_options
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.experiments.grid.local import run_jobs
from evenhand.experiments.grid.progress import GridCallback

ENGINES = ("local", "ray", "slurm")


def check_engine(
    engine: str, *, workers: int | None = None, address: str | None = None, slurm: str | None = None
) -> None:
    """Refuse options that do not fit the engine."""
    if engine not in ENGINES:
        raise EvenhandError(f"The engine is {', '.join(ENGINES[:-1])} or {ENGINES[-1]}, got {engine!r}.")
    if engine != "slurm" and slurm is not None:
        raise EvenhandError(f"--slurm {slurm} needs --engine slurm.")
    if engine != "ray" and address is not None:
        raise EvenhandError(f"--ray-address {address} needs --engine ray.")
    if engine == "ray" and workers is not None:
        raise EvenhandError(f"A Ray cluster decides how many runs it takes; leave out --jobs {workers}.")
    if workers is not None and workers < 1:
        raise EvenhandError(f"At least 1 run at a time is needed, got --jobs {workers}.")
    if engine == "slurm":
        parse_slurm_options(slurm or "")
        require_slurm()


def run_on_engine(
    jobs: Sequence[Job],
    engine: str = "local",
    *,
    workers: int | None = None,
    address: str | None = None,
    slurm: str | None = None,
    command: str = "",
    callback: GridCallback | None = None,
) -> list[Failure]:
    """Finish all runs of a grid; return those that could not be finished.

    Args:
        jobs: the runs.
        engine: one of `ENGINES`.
        workers: runs at a time on this machine, None: as `run_jobs` chooses; or jobs in the queue of SLURM at a time,
            None: all.
        address: of a Ray cluster; None: one on this machine.
        slurm: what jobs of SLURM ask for, such as `partition=gpu,time=2:00:00`.
        command: the command line, kept at the top of each config.
        callback: progress callback.
    """
    check_engine(engine, workers=workers, address=address, slurm=slurm)
    for folder in {job.folder.parent for job in jobs}:
        check_folder(folder, make=True)  # otherwise each run would fail by itself
    if engine == "ray":
        return run_on_ray(jobs, address=address, command=command, callback=callback)
    if engine == "slurm":
        options = parse_slurm_options(slurm or "")
        return run_on_slurm(jobs, options=options, workers=workers, command=command, callback=callback)
    return run_jobs(jobs, workers=workers, command=command, callback=callback)
