"""The Triton kernel: interpreted on the CPU against the formula, and compiled for GPUs that are not here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", minversion="3.2", reason="ASTSource takes constexprs since Triton 3.2")

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_kernel

TESTS = Path(__file__).parents[1]
INTERPRETING = os.environ | {"TRITON_INTERPRET": "1", "EVENHAND_BACKEND": "triton"}


def run(*command: object) -> str:
    done = subprocess.run([sys.executable, *map(str, command)], env=INTERPRETING, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    ("options", "cases"), [((), 14), pytest.param(("--all",), 42, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_interpreted_against_the_formula(options, cases):
    assert f"{cases} cases agree" in run(Path(__file__).with_name("interpreted.py"), *options)


@pytest.mark.slow
def test_the_numeric_tests_of_the_losses_interpreted():
    files = [TESTS / f"test_{name}.py" for name in ("values", "numerics", "gradients", "bad_input")]
    assert "passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", *files)


POINTERS = ("weight", "offset", "margin", "shares")
TARGETS = [
    pytest.param(("cuda", 80, 32), marks=pytest.mark.slow),
    ("cuda", 90, 32),
    pytest.param(("cuda", 100, 32), marks=pytest.mark.slow),
    ("hip", "gfx942", 64),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target[0]}-{target[1]}")
@pytest.mark.parametrize("kind", ["everything in float32", "bfloat16 alone"])
def test_compiled(target, kind, tmp_path, monkeypatch):
    from evenhand.losses.kernels.gpu import cce_kernel

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    logits = "*fp32" if kind == "everything in float32" else "*bf16"
    signature = {"logits": logits, "target": "*i64"}
    signature |= dict.fromkeys((*POINTERS, "divisor", "loss"), "*fp32")
    signature |= {"gradient": logits, "classes": "i32", "stride": "i64", "ignore_index": "i64", "share": "fp32"}
    signature |= {"WITH_H": "constexpr", "BLOCK": "constexpr"}
    constants = {"WITH_H": True, "BLOCK": 1024}
    if kind == "bfloat16 alone":
        signature |= dict.fromkeys(POINTERS, "constexpr")
        constants |= dict.fromkeys(POINTERS)
    source = ASTSource(fn=cce_kernel, signature=signature, constexprs=constants)
    binary = compile_kernel(source, target=GPUTarget(*target), options={"num_warps": 4})
    assert len(binary.asm["cubin" if target[0] == "cuda" else "hsaco"]) > 1000
