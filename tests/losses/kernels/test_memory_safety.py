"""The C kernel reads and writes nothing but what it was given: watched by sanitizers and by valgrind."""

import shutil
import subprocess
from pathlib import Path

import pytest

from evenhand.losses.kernels import native

HERE = Path(__file__).parent
SOURCE = Path(native.__file__).parent
COMPILER = shutil.which("cc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
    pytest.mark.skipif(native.level == 0, reason=f"no native kernel: {native.why_not}"),
]


def build(folder: Path, *options: str) -> Path:
    program = folder / "driver"
    command = [COMPILER, "-std=c11", "-g", "-pthread", *options, f"-I{SOURCE}", HERE / "driver.c", "-o", program, "-lm"]
    subprocess.run(command, check=True)
    return program


def run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "calls at each of" in done.stdout


@pytest.mark.parametrize("optimised", ["-O1", "-O3"])
def test_address_and_undefined_behaviour_sanitizers(tmp_path, optimised):
    run(build(tmp_path, optimised, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"), 2000)


def test_thread_sanitizer(tmp_path):
    """The driver changes the targets from another thread."""
    run(build(tmp_path, "-O2", "-fsanitize=thread"), 200)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_valgrind(tmp_path):
    """Valgrind knows no AVX-512, and tells the kernel so: this is the AVX2 code."""
    run("valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", build(tmp_path, "-O2"), 300)
