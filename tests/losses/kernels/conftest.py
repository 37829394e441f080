"""The tests of the kernels choose their backends themselves."""

import pytest

from evenhand.losses import set_backend


@pytest.fixture(scope="module", autouse=True)
def on_backend():
    yield
    set_backend("auto")
