"""The folder of real data that EVENHAND_DATA names, and the marks of tests that need something in it."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("EVENHAND_DATA", "/nowhere"))


def needs(path: str) -> pytest.MarkDecorator:
    """Skip a test without what CONTRIBUTING.md lists; as the reason names EVENHAND_DATA, `make test-all` fails it."""
    return pytest.mark.skipif(not (DATA / path).exists(), reason=f"EVENHAND_DATA does not hold {path}")


# Not in that list, so the reason names the way to it instead.
needs_cifar10 = pytest.mark.skipif(
    not any((DATA / name).exists() for name in ("cifar10.npz", "cifar-10-batches-py")),
    reason="no CIFAR-10 in the data folder; `evenhand inspect cifar10` downloads it",
)
