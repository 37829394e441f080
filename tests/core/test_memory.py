"""A limit on memory is looked at before anything is loaded that would hang under it."""

import os
import platform
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
    monkeypatch.setattr(memory, "PATIENCE", 30.0 if fits else 0.5)
    if fits:
        memory.require_memory()
        return
    with pytest.raises(EvenhandError, match=r"^Memory is limited to 3\.5 GiB, too little for .* ulimit -v\.$"):
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
    sentence = "evenhand: Memory is limited to 1.0 GiB, too little for the libraries of evenhand; raise ulimit -v.\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", sentence)
    assert time.monotonic() - began < 110
    assert not any(tmp_path.iterdir())


STEPS = """
import resource
from evenhand.core.memory import keep_freed_memory
import torch
def step():
    blocks = [torch.zeros(2**20 + n) for n in range(12)]  # 4 MiB each
def faults():
    for _ in range(3):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20
print(faults(), keep_freed_memory(), faults())
"""


def faults() -> tuple[float, str, float]:
    """Return the pages of a step that the system had to clear before, what was answered, and those after."""
    left = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run([sys.executable, "-c", STEPS], env=left, capture_output=True, text=True, check=True)
    before, kept, after = done.stdout.split()
    return float(before), kept, float(after)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about the GNU C library")
def test_memory_that_a_step_frees_is_there_for_the_next() -> None:
    """A step takes 12,288 pages of 4 KiB."""
    before, kept, pages = faults()
    assert kept == "True"
    assert pages < 600
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if huge.exists() and "[always]" not in huge.read_text():  # else a page may be a whole block
        assert before > 3 * pages


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ("MALLOC_MMAP_THRESHOLD_", "131072"),
        ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072"),
    ],
)
def test_a_user_who_has_chosen_is_left_alone(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(memory.ctypes, "CDLL", None)  # calling it would raise
    assert memory.keep_freed_memory() is False


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(memory.ctypes, "CDLL", None)
    assert memory.keep_freed_memory() is False
