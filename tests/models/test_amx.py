"""AMX that is announced but missing is not used; the environment is set early enough, and never over the user's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evenhand.models import amx
from evenhand.models.amx import avoid_missing_amx, lacks_amx, tile_palettes
from evenhand.models.build import build_model
from evenhand.training import fabric

WITH_AMX = "processor : 0\nflags : fpu vme avx512f avx512_bf16 amx_bf16 amx_tile amx_int8\n"
WITHOUT = "processor : 0\nflags : fpu vme avx512f avx512_bf16\n"
LIMIT = "ONEDNN_MAX_CPU_ISA"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "")  # so that whatever is set in the test is undone after it
    monkeypatch.delenv(LIMIT)


def announce(monkeypatch: pytest.MonkeyPatch, text: str, *, palettes: int | None) -> None:
    real = Path.read_text

    def read(path: Path, *args: str, **options: str) -> str:
        return text if path == Path("/proc/cpuinfo") else real(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(amx, "tile_palettes", lambda: palettes)


@pytest.mark.parametrize(
    ("text", "palettes", "lacking"),
    [(WITH_AMX, 0, True), (WITH_AMX, None, True), (WITH_AMX, 1, False), (WITHOUT, 0, False), ("", None, False)],
)
def test_missing_amx_is_not_used(
    monkeypatch: pytest.MonkeyPatch, text: str, palettes: int | None, lacking: bool
) -> None:
    announce(monkeypatch, text, palettes=palettes)
    assert lacks_amx() is lacking
    avoid_missing_amx()
    assert os.environ.get(LIMIT) == ("AVX512_CORE_BF16" if lacking else None)


def test_a_limit_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, WITH_AMX, palettes=0)
    monkeypatch.setenv(LIMIT, "AVX2")
    avoid_missing_amx()
    assert os.environ[LIMIT] == "AVX2"


def test_every_network_is_built_after_the_limit_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, WITH_AMX, palettes=0)
    build_model("resnet8", num_classes=2)
    assert os.environ[LIMIT] == "AVX512_CORE_BF16"


@pytest.mark.parametrize(
    ("text", "palettes", "expected"),
    [(WITH_AMX, 0, "32-true"), (WITH_AMX, 1, "bf16-mixed"), (WITHOUT, 0, "bf16-mixed"), ("", 0, "32-true")],
)
def test_automatic_precision(monkeypatch: pytest.MonkeyPatch, text: str, palettes: int | None, expected: str) -> None:
    announce(monkeypatch, text, palettes=palettes)
    monkeypatch.setattr(fabric.torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True, raising=False)
    assert fabric.choose_precision("auto", "cpu") == expected
    assert fabric.choose_precision("bfloat16", "cpu") == "bf16-mixed"


def test_a_system_without_cpuinfo_announces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert lacks_amx() is False


def test_without_the_extension_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "find_spec", lambda _: None)
    assert tile_palettes() is None


def test_bfloat16_ends_no_process() -> None:
    """Where AMX is announced and missing, this died of an illegal instruction."""
    code = (
        "import torch\nfrom evenhand.models import build_model\nmodel = build_model('resnet8', num_classes=2)\n"
        "with torch.autocast('cpu', torch.bfloat16):\n    model(torch.zeros(2, 3, 32, 32))\nprint('alive')"
    )
    clean = {key: value for key, value in os.environ.items() if key != LIMIT}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=clean)
    assert done.stdout.strip() == "alive", done.stderr
