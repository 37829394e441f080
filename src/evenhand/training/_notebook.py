"""Progress of a training run in a notebook."""

from evenhand.core.notebook import NotebookBar, in_notebook
from evenhand.runs.schemas import EpochRow
from evenhand.training.loop import Callback


class NotebookProgress(Callback):
    """Shows the progress of a run under the cell of a notebook.

    Args:
        epochs: of the run.
    """

    def __init__(self, epochs: int) -> None:
        self.epochs, self.state, self.bar = epochs, "", NotebookBar()

    def step(self, epoch: int, done: int, total: int) -> None:
        """Move the bar."""
        self.bar.show(epoch - 1 + done / total, self.epochs, f"epoch {epoch}/{self.epochs}{self.state}")

    def epoch(self, row: EpochRow) -> None:
        """Show the loss and the validation score of an epoch."""
        epoch, validation = int(row["epoch"]), row.get("val_balanced_accuracy")
        reached = "" if validation is None else f", validation balanced accuracy {validation:.1%}"
        self.state = f", loss {row['train_loss']:.3f}{reached}"
        self.bar.show(epoch, self.epochs, f"epoch {epoch}/{self.epochs}{self.state}", now=epoch == self.epochs)


def notebook_callback(epochs: int) -> Callback | None:
    """Return the progress callback of a run where the code runs in a notebook; else None."""
    return NotebookProgress(epochs) if in_notebook() else None
