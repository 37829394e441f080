"""Targets that another thread changes while the kernel works: each is read once, checked, and only then used."""

import contextlib
import ctypes
import threading
import time

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

from .isolated import outcome

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
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SETTINGS)
def test_targets_that_change_after_they_were_checked(name, dtype, level, monkeypatch):
    """The kernel asks for threads after it has checked: here, that changes the targets."""
    monkeypatch.setattr(native, "level", level)
    settings = SETTINGS[name]
    logits, target = batch(dtype)
    expected = run(logits.clone(), target, **settings)
    contested = torch.empty_like(target)
    wrong = iter(WRONG)

    def change(begin: int, end: int, _: int, work: int, context: int) -> int:
        contested.fill_(next(wrong))
        WORK(work)(begin, end, context)
        return 0

    callback = SPLIT(change)
    monkeypatch.setattr(native, "threads", ctypes.cast(callback, ctypes.c_void_p).value)

    def changed() -> list[int]:
        seen = []
        for _ in WRONG:
            contested.copy_(target)
            assert_close(run(logits.clone(), contested, **settings), expected, rtol=0, atol=0)
            seen.append(contested[0].item())
        return seen

    assert outcome(changed) == f"value {WRONG}"


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


def race(loss, backend: str) -> set[bool]:
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
    stop = time.monotonic() + 0.3
    try:
        while time.monotonic() < stop:
            with contextlib.suppress(IndexError, RuntimeError):
                seen.add(bool(loss(logits, target) < 100))
    finally:
        finished.set()
        thread.join()
    return seen


@pytest.mark.parametrize("backend", ["eager", pytest.param("native", marks=needs_kernel)])
@pytest.mark.parametrize("name", LOSSES)
def test_targets_that_change_at_any_time(name, backend):
    assert outcome(lambda: race(LOSSES[name], backend)) == "value {True}"
