"""What is told to the numerical libraries before they are loaded."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from evenhand.core import processor
from evenhand.core.processor import announces_amx, has_tiles, prepare_processor

WITH_AMX = "processor : 0\nflags : fpu vme avx512f avx512_bf16 amx_bf16 amx_tile amx_int8\n"
WITHOUT = "processor : 0\nflags : fpu vme avx2\n"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "ONEDNN_MAX_CPU_ISA"):
        monkeypatch.setenv(name, "")  # so that whatever is set in the test is undone after it
        monkeypatch.delenv(name)


def announce(monkeypatch: pytest.MonkeyPatch, text: str, *, tiles: bool) -> None:
    real = Path.read_text

    def read(path: Path, *args: str, **options: str) -> str:
        return text if path == Path("/proc/cpuinfo") else real(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(processor, "has_tiles", lambda: tiles)


@pytest.mark.parametrize(("text", "expected"), [(WITH_AMX, True), (WITHOUT, False), ("", False)])
def test_amx_is_read_from_the_flags(monkeypatch: pytest.MonkeyPatch, text: str, expected: bool) -> None:
    announce(monkeypatch, text, tiles=True)
    assert announces_amx() is expected


def test_a_system_without_cpuinfo_announces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert announces_amx() is False


@pytest.mark.parametrize(
    ("text", "tiles", "expected"),
    [(WITH_AMX, False, "AVX512_CORE_BF16"), (WITH_AMX, True, None), (WITHOUT, False, None), (WITHOUT, True, None)],
)
def test_amx_that_cannot_run_is_not_used(
    monkeypatch: pytest.MonkeyPatch, text: str, tiles: bool, expected: str | None
) -> None:
    announce(monkeypatch, text, tiles=tiles)
    prepare_processor()
    assert os.environ.get("ONEDNN_MAX_CPU_ISA") == expected


@pytest.mark.parametrize(
    ("name", "value"), [("OMP_WAIT_POLICY", "ACTIVE"), ("OMP_WAIT_POLICY", ""), ("ONEDNN_MAX_CPU_ISA", "AVX2")]
)
def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    announce(monkeypatch, WITH_AMX, tiles=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv(name, value)
    prepare_processor()
    assert os.environ[name] == value


def test_threads_wait_asleep_unless_torch_is_loaded_already(monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, WITHOUT, tiles=True)
    monkeypatch.setitem(sys.modules, "torch", sys)
    prepare_processor()
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.delitem(sys.modules, "torch")
    prepare_processor()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


# Tells what is set at the moment when torch is looked for, and ends.
TELLING = """
import os, sys

class Telling:
    def find_spec(self, name, *_):
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Telling())
"""


@pytest.mark.parametrize("first", ["import evenhand", "import evenhand.cli", "from evenhand.losses import functional"])
def test_it_is_set_in_a_new_process_before_torch_is_loaded(first: str) -> None:
    code = f"{TELLING}\n{first}\nimport torch"
    clean = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=clean)
    assert done.stdout.strip() == "PASSIVE"


@pytest.mark.parametrize("machine", ["aarch64", "arm64", "ppc64le"])
def test_other_processors_are_not_asked(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(processor.mmap, "mmap", lambda *_, **__: pytest.fail("no code of x86 may run here"))
    assert has_tiles() is True


def test_a_system_that_forbids_new_code_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(processor.mmap, "mmap", refuse)
    assert has_tiles() is True


def test_tiles_are_asked_for_without_harm() -> None:
    """Ask in a process of its own: a wrong instruction would end it."""
    code = "from evenhand.core.processor import has_tiles; print(has_tiles(), has_tiles())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() in (["True", "True"], ["False", "False"])
    assert done.stdout.split()[0] == str(has_tiles())


def test_bfloat16_ends_no_process() -> None:
    """Where AMX is announced and missing, this died of an illegal instruction."""
    code = (
        "import evenhand, torch\n"
        "with torch.autocast('cpu', torch.bfloat16):\n"
        "    torch.nn.Conv2d(32, 32, 3)(torch.zeros(2, 32, 8, 8))\n"
        "print('alive')"
    )
    clean = {key: value for key, value in os.environ.items() if key != "ONEDNN_MAX_CPU_ISA"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=clean)
    assert done.stdout.strip() == "alive"
