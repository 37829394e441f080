"""Logging to TensorBoard, an optional extra."""

import importlib.util
import math
from pathlib import Path

from evenhand.core.errors import EvenhandError
from evenhand.core.extras import how_to_install


def require_tensorboard() -> None:
    """Refuse if TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise EvenhandError(f"--tensorboard needs an extra: {how_to_install('tensorboard')}.")


class Board:
    """Logs each epoch of a run to TensorBoard.

    Args:
        folder: the log folder.
    """

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def write(self, row: dict[str, float]) -> None:
        """Log an epoch and flush."""
        for name, value in row.items():
            if name != "epoch" and not math.isnan(value):
                self._writer.add_scalar(name, value, int(row["epoch"]))
        self._writer.flush()
