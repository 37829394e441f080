"""The numeric tests of the losses run on every backend that can run here; the others on the one that is chosen."""

import pytest

from evenhand.losses import set_backend
from evenhand.losses.kernels.backend import interpreting, why_not

NUMERIC = ("bad_input", "composed", "gradients", "memory", "numerics", "parity", "values")
BACKENDS = ["triton"] if interpreting() else [name for name in ("eager", "native") if not why_not(name)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "on_backend" in metafunc.fixturenames and "kernels" not in metafunc.module.__name__:
        numeric = metafunc.module.__name__.rpartition("test_")[2] in NUMERIC
        metafunc.parametrize("on_backend", BACKENDS if numeric else ["auto"], indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def on_backend(request):
    set_backend(request.param)
    yield request.param
    set_backend("auto")
