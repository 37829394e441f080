"""What the tests of training share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from evenhand.training.run import train_run
from tests.training.runs import tiny


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Sums that several threads share come out in another order, so equality to the last bit needs equal threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed; tests only read it."""
    return train_run(tiny(), tmp_path_factory.mktemp("runs") / "whole", command="evenhand train digits").path
