"""Targets that another thread changes while the kernel works: each is read once, checked, and only then used."""

import contextlib
import ctypes
import itertools
import threading
import time
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from evenhand.losses import (
    ComplementCrossEntropyHead,
    ComplementCrossEntropyLoss,
    linear_complement_cross_entropy,
    set_backend,
)
from evenhand.losses.functional import (
    adjusted_cross_entropy,
    complement_cross_entropy,
    complement_entropy,
    focal_loss,
)
from evenhand.losses.kernels import linear, native, operators  # noqa: F401, it registers itself

from .isolated import outcomes

needs_kernel = pytest.mark.skipif(native.level == 0, reason=f"no native kernel: {native.why_not}")

ROWS, CLASSES = 8000, 10  # enough for the kernel to hand its rows out
WORK = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
SPLIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
WRONG = [CLASSES, -1, 10**9, 2**61, -(2**63)]


def batch(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(ROWS, CLASSES).to(dtype), torch.randint(CLASSES, (ROWS,))


def run(logits: Tensor, target: Tensor, **settings):
    usual = {"weight": None, "offset": None, "margin": None, "share": -0.1, "with_cross_entropy": True}
    usual |= {"ignore_index": -100, "reduction": "none", "with_gradient": True}
    return native.run(logits, target, **(usual | settings))


VECTOR = torch.linspace(0.1, 1, CLASSES)
SETTINGS = {
    "usual": {},
    "mean": {"reduction": "mean"},
    "weight": {"weight": VECTOR, "reduction": "mean"},
    "every vector": {"weight": VECTOR, "offset": VECTOR, "margin": VECTOR, "share": VECTOR},
    "no gradient": {"with_gradient": False},
    "in place": {"in_place": True},
    "a class is ignored": {"ignore_index": 3},
}


@needs_kernel
@pytest.mark.parametrize("level", range(1, native.level + 1), ids=lambda level: native.LEVELS[level])
def test_targets_that_change_after_they_were_checked(level, monkeypatch):
    """The kernel asks for threads after it has checked: here, that changes the targets."""
    monkeypatch.setattr(native, "level", level)
    pairs = itertools.product([torch.float32, torch.bfloat16], SETTINGS)
    calls = {f"{dtype}, {name}": partial(changed, dtype, SETTINGS[name]) for dtype, name in pairs}
    assert outcomes(calls) == dict.fromkeys(calls, f"value {WRONG}")


def changed(dtype: torch.dtype, settings: dict[str, object]) -> list[int]:
    """Return the targets after each call; the loss and the gradient are those of the targets before."""
    logits, target = batch(dtype)
    expected = run(logits.clone(), target, **settings)
    contested = torch.empty_like(target)
    wrong = iter(WRONG)

    def change(begin: int, end: int, _: int, work: int, context: int) -> int:
        contested.fill_(next(wrong))
        WORK(work)(begin, end, context)
        return 0

    callback = SPLIT(change)
    usual, native.threads = native.threads, ctypes.cast(callback, ctypes.c_void_p).value
    seen = []
    for _ in WRONG:
        contested.copy_(target)
        assert_close(run(logits.clone(), contested, **settings), expected, rtol=0, atol=0)
        seen.append(contested[0].item())
    native.threads = usual
    return seen


LOSSES = {
    "cce": complement_cross_entropy,
    "complement entropy": complement_entropy,
    "weight and offset": lambda z, t: complement_cross_entropy(z, t, VECTOR, offset=VECTOR),
    "none": lambda z, t: complement_cross_entropy(z, t, reduction="none").amax(),
    "linear": lambda z, t: linear_complement_cross_entropy(z, t, torch.eye(CLASSES)),
    "linear, in blocks of classes": lambda z, t: linear_complement_cross_entropy(
        z[:8], t[:8], torch.eye(CLASSES, requires_grad=True)
    ),
    "focal": focal_loss,
    "margin": lambda z, t: adjusted_cross_entropy(z, t, VECTOR, margin=VECTOR),
    "counts": lambda z, t: complement_cross_entropy(z, t, counts=range(1, CLASSES + 1), tau=0.5),
    "spare": lambda z, t: complement_cross_entropy(z, t, spare=1, share=VECTOR),
    "smoothed": lambda z, t: complement_cross_entropy(z, t, VECTOR, label_smoothing=0.1),
    "rivals": lambda z, t: complement_cross_entropy(z, t, rivals=torch.ones(CLASSES, CLASSES, dtype=torch.bool)),
    "module": lambda z, t: ComplementCrossEntropyLoss(weight=VECTOR)(z, t),
    "head": lambda z, t: ComplementCrossEntropyHead(CLASSES, CLASSES)(z, t),
    "operator": lambda z, t: torch.ops.evenhand.complement_cross_entropy(
        z, t, VECTOR, VECTOR, VECTOR, VECTOR, 0.0, True, -100, "sum", True
    )[1].amax(),
    "a view of the target": lambda z, t: complement_cross_entropy(z[::2], t[::2]),
    "bfloat16": lambda z, t: complement_cross_entropy(z.bfloat16(), t, offset=VECTOR),
    "float64": lambda z, t: complement_cross_entropy(z.double(), t, offset=VECTOR),
}


def race(loss, backend: str, seconds: float) -> set[bool]:
    """Call a loss while another thread sets targets to what is no class, and back."""
    set_backend(backend)
    linear.CHUNK = 20
    logits, target = batch()
    finished = threading.Event()

    def disturb() -> None:
        while not finished.is_set():
            target.fill_(10**9)
            target.fill_(1)

    thread = threading.Thread(target=disturb)
    thread.start()
    seen = {True}
    stop = time.monotonic() + seconds
    try:
        while time.monotonic() < stop:
            with contextlib.suppress(IndexError, RuntimeError):
                seen.add(bool(loss(logits, target) < 100))
    finally:
        finished.set()
        thread.join()
    return seen


@pytest.mark.parametrize("backend", ["eager", pytest.param("native", marks=needs_kernel)])
@pytest.mark.parametrize("seconds", [0.1, pytest.param(0.5, marks=pytest.mark.slow)])
def test_targets_that_change_at_any_time(backend, seconds):
    calls = {name: partial(race, loss, backend, seconds) for name, loss in LOSSES.items()}
    assert outcomes(calls) == dict.fromkeys(calls, "value {True}")
