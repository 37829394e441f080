"""Each test of the losses runs on every backend that can run here."""

import pytest

from evenhand.losses import set_backend
from evenhand.losses.kernels.backend import why_not

BACKENDS = [name for name in ("eager", "native") if not why_not(name)]


@pytest.fixture(scope="module", autouse=True, params=BACKENDS)
def on_backend(request):
    set_backend(request.param)
    yield request.param
    set_backend("auto")
