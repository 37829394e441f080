"""Whether a source of pictures is still what finished runs were trained on."""

from collections.abc import Sequence

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.data.splits import drop_small_classes
from evenhand.data.table import SampleTable
from evenhand.experiments.grid.jobs import Job
from evenhand.experiments.grid.naming import is_benchmark
from evenhand.runs.run import Run
from evenhand.training.prepare import split


def refuse_changed_source(jobs: Sequence[Job]) -> None:
    """Refuse to add runs to finished ones whose pictures are no longer the same, before hours are spent on them.

    Names and labels are compared, not pixels. The data sets of the paper do not change and are not looked at.

    Args:
        jobs: a grid; nothing is read if none of its runs is finished.

    Raises:
        EvenhandError: pictures came, went or changed their class since.
    """
    finished: dict[str, list[Job]] = {}
    for job in jobs:
        if not is_benchmark(job.config.data.source) and Run(job.folder).finished:
            finished.setdefault(job.config.data.source, []).append(job)
    for source, done in finished.items():
        first = done[0]  # the others were compared with it when they were added
        data = first.config.data
        if not _is_as_trained(first, load_source(source, data_root=data.root, allow_outside=data.allow_outside)):
            runs, what = f"{first.folder} was", "that folder"
            if len(done) > 1:
                runs, what = f"{first.folder} and {len(done) - 1} more were", "those folders"
            raise EvenhandError(f"{source} has changed since {runs} trained; use another --out, or remove {what}.")


def _is_as_trained(job: Job, table: SampleTable) -> bool:
    try:
        named = Run(job.folder).splits
        before = [list(ids) for ids in (named.train, named.val, named.test)]
    except EvenhandError:
        return True  # nothing to tell by
    if job.config.data.skip_bad:  # which pictures were left out is not known without reading all of them
        return {each for ids in before for each in ids} <= set(table.ids.tolist())
    if job.config.data.drop_small:
        table = drop_small_classes(table)
    now = split(job.config, table)
    return before == [table.ids[rows].tolist() for rows in (now.train, now.val, now.test)]
