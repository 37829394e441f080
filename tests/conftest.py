"""What all tests share: a cache folder of their own, and pages without pictures where those do not matter."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

# A shell without a terminal starts what runs in the background with Ctrl-C ignored; processes of tests inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the tests out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the seconds that the pictures of a page take, t-SNE above all: the tests of reports have them drawn."""
    for module in ("_embed_figures", "figures.style"):
        monkeypatch.setattr(f"evenhand.report.{module}.figure_bytes", lambda *_: b"<svg></svg>")
    monkeypatch.setattr("evenhand.report.figures.embedding.embed", lambda features, **_: features[:, :2])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among the tests and what they import, neither while they are made nor in every run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish() -> None:
    """Let the extensions that count what they leave behind find nothing."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that skips for want of the usual real data, where `make test-all` promises that they are there."""
    report = yield
    if report.skipped and os.environ.get("EVENHAND_COMPLETE") and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if "EVENHAND_DATA" in reason or "EVENHAND_PAPER" in reason:
            report.outcome, report.longrepr = "failed", f"{reason}; `make test-all` needs it where EVENHAND_DATA is set"
    return report
