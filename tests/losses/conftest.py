"""The tests of the losses run with the backend that is chosen by default, or with each one (`every_backend`)."""

import pytest

from evenhand.losses import set_backend


@pytest.fixture(scope="module", autouse=True)
def on_backend(request):
    set_backend(getattr(request, "param", "auto"))
    yield
    set_backend("auto")
