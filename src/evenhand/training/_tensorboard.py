"""The history of a run for TensorBoard, behind the extra of that name."""

import importlib.util
import math
from pathlib import Path

from evenhand.core.errors import EvenhandError
from evenhand.core.extras import how_to_install


def require_tensorboard() -> None:
    """Say what to install if TensorBoard is not there."""
    if importlib.util.find_spec("tensorboard") is None:
        raise EvenhandError(f"--tensorboard needs an extra: {how_to_install('tensorboard')}.")


class Board:
    """Writes each epoch of a run for TensorBoard.

    Args:
        folder: where to.
    """

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def write(self, row: dict[str, float]) -> None:
        """Write an epoch; it can be seen at once."""
        for name, value in row.items():
            if name != "epoch" and not math.isnan(value):
                self._writer.add_scalar(name, value, int(row["epoch"]))
        self._writer.flush()
