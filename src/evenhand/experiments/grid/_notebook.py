"""Progress of a grid of runs in a notebook."""

from collections.abc import Sequence

from evenhand.core.notebook import NotebookBar, in_notebook
from evenhand.experiments.grid.jobs import Failure, Job, Status
from evenhand.experiments.grid.progress import GridCallback, GridProgress
from evenhand.runs.schemas import EpochRow


class NotebookGrid(GridProgress):
    """Shows the progress of a grid under the cell of a notebook."""

    def __init__(self) -> None:
        super().__init__()
        self.bar = NotebookBar()

    def begin(self, jobs: Sequence[Job]) -> None:
        """Show how many runs there are to do."""
        super().begin(jobs)
        self._move(now=True)

    def progress(self, job: Job, row: EpochRow) -> None:
        """Move the bar."""
        super().progress(job, row)
        self._move()

    def done(self, job: Job) -> None:
        """Show that a run is finished."""
        super().done(job)
        self._move(now=True)

    def failed(self, failure: Failure) -> None:
        """Show that a run failed."""
        super().failed(failure)
        self._move(now=True)

    def message(self, text: str) -> None:
        """Print a sentence."""
        print(text)  # noqa: T201 - a cell has no other place for it

    def _move(self, *, now: bool = False) -> None:
        failed, left = self.count(Status.FAILED), self.seconds_left
        text = f"{self.count(Status.DONE)} of {len(self.jobs)} runs done" + (f", {failed} failed" if failed else "")
        text += f", {left:,.0f} s left" if left else ""
        self.bar.show(self.epochs_done, self.epochs, text, now=now)


def notebook_grid_callback() -> GridCallback | None:
    """Return the progress callback of a grid where the code runs in a notebook; else None."""
    return NotebookGrid() if in_notebook() else None
