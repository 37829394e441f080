"""A limit on memory is looked at before anything is loaded that would hang under it."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evenhand.core import memory
from evenhand.core.errors import EvenhandError


def test_without_a_limit_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(memory.subprocess, "run", never)
    memory.require_memory()


@pytest.mark.parametrize(
    ("code", "fits"),
    [
        ("pass", True),
        ("exit(1)", False),
        ("while True: 1", False),
        ("raise MemoryError", False),
        ("import os; os.abort()", False),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", False),
        ("import nothing_of_this_name", False),
        ("import time; time.sleep(60)", False),
    ],
)
def test_with_a_limit_another_process_tries(monkeypatch: pytest.MonkeyPatch, code: str, fits: bool) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (7 * 2**29, 7 * 2**29))
    monkeypatch.setattr(memory, "EVERYTHING", code)
    monkeypatch.setattr(memory, "PATIENCE", 30.0 if fits else 2.0)
    if fits:
        memory.require_memory()
        return
    with pytest.raises(EvenhandError, match=r"^Memory is limited to 3\.5 GiB, which does not hold .* ulimit -v\.$"):
        memory.require_memory()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited as Linux does it")
def test_a_comparison_with_too_little_memory_ends_with_a_sentence(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "evenhand", "compare", "digits", "--seeds", "1", "--epochs", "1", "--out", "new"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)),
    )
    sentence = "evenhand: Memory is limited to 1.0 GiB, which does not hold what evenhand loads; raise ulimit -v.\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", sentence)
    assert time.monotonic() - began < 110
    assert not any(tmp_path.iterdir())
