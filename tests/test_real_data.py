"""`make test-all` demands the real data that CONTRIBUTING.md lists, and nothing else."""

from typing import Any

import pytest

from tests.conftest import pytest_runtest_makereport
from tests.real_data import needs, needs_cifar10


def outcome(mark: pytest.MarkDecorator) -> tuple[str, str]:
    """Return how a test that this mark skips is reported."""
    reason = mark.kwargs["reason"]
    report = pytest.TestReport(
        "test", ("test.py", 1, "test"), {}, "skipped", ("test.py", 1, f"Skipped: {reason}"), "setup"
    )
    hook: Any = pytest_runtest_makereport()
    next(hook)
    with pytest.raises(StopIteration) as returned:
        hook.send(report)
    assert returned.value.value is report
    return report.outcome, str(report.longrepr)


def test_only_the_listed_data_are_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENHAND_COMPLETE", "folder")
    assert outcome(needs_cifar10)[0] == "skipped"
    found, text = outcome(needs("photos"))
    assert found == "failed"
    assert "EVENHAND_DATA does not hold photos; `make test-all` needs it" in text


@pytest.mark.parametrize("folder", ["", None])
def test_elsewhere_nothing_is(monkeypatch: pytest.MonkeyPatch, folder: str | None) -> None:
    monkeypatch.delenv("EVENHAND_COMPLETE", raising=False)
    if folder is not None:
        monkeypatch.setenv("EVENHAND_COMPLETE", folder)
    assert outcome(needs("photos"))[0] == outcome(needs_cifar10)[0] == "skipped"
