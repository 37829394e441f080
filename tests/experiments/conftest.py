"""What the tests of experiments share."""

from collections.abc import Iterator

import pytest
import torch

from evenhand.experiments.grid.jobs import Job
from tests.experiments.grids import undisturbed


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Sums that several threads share come out in another order, so equality to the last bit needs equal threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def whole(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> list[Job]:  # noqa: ARG001 - equal threads
    """The small grid that nothing disturbed, done without an engine; tests only read it."""
    return undisturbed(tmp_path_factory.mktemp("whole"))
