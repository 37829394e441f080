"""What a study would run, and how long that takes on this machine."""

import math
import os
import re
from collections.abc import Sequence

from evenhand.core.errors import EvenhandError, reason
from evenhand.data.download import MissingData
from evenhand.data.sources import load_source
from evenhand.experiments.grid.jobs import Job
from evenhand.experiments.grid.local import default_workers
from evenhand.experiments.grid.runtime_estimate import estimate, size_of
from evenhand.experiments.grid.threads import count_processors
from evenhand.paper._run_store import RunStore
from evenhand.runs.config import Config


def describe_runs(jobs: Sequence[Job], store: RunStore, workers: int | None = None) -> list[str]:
    """Return the runs of a study, their number of images, and the estimated time.

    Args:
        jobs: all runs of the study.
        store: the finished ones.
        workers: runs at a time; None: the default of a grid.
    """
    if not jobs:
        return ["No runs are needed; it takes a minute at most."]
    busy = busy_warning()  # before the measurement adds its own load
    rows: dict[str, list[bool]] = {}
    left = []
    trained = tested = 0
    for job in jobs:
        config, size = job.config, size_of(job.config.data)
        done = store.find(job) is not None
        name = re.sub(r"_seed\d+-\w+$", "", job.folder.name)
        rows.setdefault(f"{name}: {config.epochs} epochs x {size.train:,} images", []).append(done)
        if not done:
            left.append(config)
            trained += size.train * config.epochs
            tested += size.test * (config.epochs if config.track_test else 1)
    lines = [f"Runs ({len(jobs)}):"]
    for row, done_runs in rows.items():
        seeds = f"{len(done_runs)} seed{'s' * (len(done_runs) != 1)}"
        lines.append(f"  {row}, {seeds}{f', {sum(done_runs)} done' * any(done_runs)}")
    lines.append(
        f"{len(jobs)} runs, {len(jobs) - len(left)} of them done; {trained:,} images to train on (all epochs) and "
        f"{tested:,} to test on"
    )
    lines += _time_lines(left, workers or default_workers(jobs)) if left else []
    lines += [f"warning: {busy}"] if busy and left else []
    sources = dict.fromkeys((config.data.source, config.data.root) for config in left)
    return lines + [f"data are missing: {why}" for source in sources if (why := _missing(*source))]


def _time_lines(configs: Sequence[Config], workers: int) -> list[str]:
    try:
        work = estimate(configs, workers=workers)
    except (RuntimeError, MemoryError) as error:  # such as a network that does not fit into memory
        return [f"the speed could not be measured here: {reason(error)}"]
    lines = [f"speed of {kind}: {speed_words(speed)}" for kind, speed in work.speeds.items()]
    return [
        *lines,
        f"estimated time: {duration_words(work.seconds)} with {workers} run{'s' * (workers != 1)} at a time",
    ]


def busy_warning(load: float | None = None, processors: int | None = None) -> str:
    """Return a sentence if other processes use a good part of the processors, else an empty text.

    Args:
        load: the load average; None: that of the last minute.
        processors: None: those of this machine.

    Example:
        >>> from evenhand.paper._dry_run import busy_warning
        >>> busy_warning(load=1.9, processors=2)
        'The machine is busy (load average 1.9 on 2 processors); the estimated time is probably too long.'
        >>> busy_warning(load=0.2, processors=2)
        ''
    """
    processors = processors or count_processors()
    if load is None:
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load < 0.5 * processors:
        return ""
    seen = f"load average {load:.1f} on {processors} processor{'s' * (processors != 1)}"
    return f"The machine is busy ({seen}); the estimated time is probably too long."


def speed_words(speed: float) -> str:
    """Return a speed in images per second; slow ones keep two digits instead of being rounded to 0.

    Example:
        >>> from evenhand.paper._dry_run import speed_words
        >>> [speed_words(speed) for speed in (2593.4, 9.27, 0.31, 0.0)]
        ['2,593 images/s', '9.3 images/s', '0.31 images/s', 'not measured']
    """
    if not math.isfinite(speed) or speed <= 0:
        return "not measured"
    return f"{speed:,.0f} images/s" if speed >= 10 else f"{speed:.2g} images/s"


def duration_words(seconds: float) -> str:
    """Return a duration in a unit that suits it.

    Example:
        >>> from evenhand.paper._dry_run import duration_words
        >>> [duration_words(seconds) for seconds in (42, 600, 1e5)]
        ['42 s', '10 min', '27.8 h']
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def _missing(source: str, root: str | None) -> str:
    """Return why a data set would have to be downloaded first, empty if it is there."""
    try:
        load_source(source, data_root=root, download=False)
    except MissingData as error:
        return f"{str(error).rstrip('.')}; or name other data with --source. The study itself downloads what it can."
    except EvenhandError as error:
        return str(error)
    return ""
