"""Check that the images of a source are still those that finished runs were trained on."""

from collections.abc import Sequence

from evenhand.core.errors import EvenhandError
from evenhand.data.splits import drop_small_classes
from evenhand.data.table import SampleTable
from evenhand.experiments.grid.jobs import Job
from evenhand.experiments.grid.naming import is_benchmark
from evenhand.runs.run import Run
from evenhand.training.prepare import split


def refuse_changed_source(jobs: Sequence[Job], table: SampleTable) -> None:
    """Refuse to add runs to finished ones whose images have changed, before hours are spent on them.

    Names and labels are compared, not pixels. Benchmarks do not change and are not checked.

    Args:
        jobs: runs on one source; nothing is read if none of them is finished.
        table: the source as it is now.

    Raises:
        EvenhandError: images were added, removed or moved to another class.
    """
    done = [job for job in jobs if not is_benchmark(job.config.data.source) and Run(job.folder).finished]
    if not done or _is_as_trained(done[0], table):  # the others were compared with the first when they were added
        return
    runs, what = f"{done[0].folder} was", "that folder"
    if len(done) > 1:
        runs, what = f"{done[0].folder} and {len(done) - 1} more were", "those folders"
    source = done[0].config.data.source
    raise EvenhandError(f"{source} has changed since {runs} trained; use another --out, or remove {what}.")


def _is_as_trained(job: Job, table: SampleTable) -> bool:
    try:
        named = Run(job.folder).splits
        before = [list(ids) for ids in (named.train, named.val, named.test)]
    except EvenhandError:
        return True  # nothing to compare with
    if job.config.data.skip_bad:  # which images were skipped is not known without reading all of them
        return {each for ids in before for each in ids} <= set(table.ids.tolist())
    if job.config.data.drop_small:
        table = drop_small_classes(table)
    now = split(job.config, table)
    return before == [table.ids[rows].tolist() for rows in (now.train, now.val, now.test)]
