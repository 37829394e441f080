"""One run for all tests of verbs that use a trained model."""

import pytest

from tests import trained
from tests.trained import Trained


@pytest.fixture(scope="session")
def photos_run(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained.make(tmp_path_factory.mktemp("trained"))
