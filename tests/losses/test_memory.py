"""How much memory the loss takes, and that working in pieces changes nothing."""

import json
from itertools import accumulate

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.testing import assert_close

from evenhand.losses import functional as ours

from .cases import every_backend

K = 40


@pytest.fixture
def peak_memory(tmp_path):
    """Give a function that measures the most bytes allocated during a call, beyond those before, in float32 numbers."""

    def measure(work) -> float:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            work()
        trace = tmp_path / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
        changes = sorted((e for e in events if e.get("name") == "[memory]"), key=lambda e: e["ts"])
        return max(accumulate(e["args"]["Bytes"] for e in changes)) / 4

    return measure


LOSSES = {
    "complement entropy": ours.complement_entropy,
    "cce": ours.complement_cross_entropy,
    "cce, weighted": lambda z, t: ours.complement_cross_entropy(z, t, torch.ones(K), ignore_index=3),
    "cce, offset": lambda z, t: ours.complement_cross_entropy(z, t, offset=torch.linspace(-5, 0, K), share=0.3),
    "cce, far offset": lambda z, t: ours.complement_cross_entropy(z, t, offset=torch.linspace(-50, 0, K)),
    "cce, spare": lambda z, t: ours.complement_cross_entropy(z, t, spare=2),
}


@every_backend
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_two_buffers_with_gradient_and_none_without(loss, peak_memory):
    check_memory(loss, (100_000, K), peak_memory)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_two_buffers_for_one_large_image(loss, peak_memory):
    check_memory(loss, (1, K, 400, 250), peak_memory)


def check_memory(loss, shape: tuple[int, ...], peak_memory) -> None:
    torch.manual_seed(0)
    logits, target = torch.randn(shape, requires_grad=True), torch.randint(K, (shape[0], *shape[2:]))

    def step() -> None:
        loss(logits, target).backward()

    step()  # torch allocates some memory once
    logits.grad = None
    buffers = peak_memory(step) / logits.numel()
    assert 1 <= buffers <= 2.2  # at least the gradient that is returned, or nothing was measured
    with torch.no_grad():
        assert peak_memory(lambda: loss(logits, target)) < 0.6 * logits.numel()
    assert peak_memory(lambda: loss(logits.detach(), target)) < 0.6 * logits.numel()


# Several rows per piece, one row per piece, a row longer than a piece; the same of images, which are cut along d1.
CUT = [(40, 7), (3, 50), (1, 130), (9, 5, 4), (3, 5, 40), (2, 5, 9, 3)]


@pytest.mark.parametrize("shape", CUT, ids=str)
@pytest.mark.parametrize("layout", ["plain", "classes last"])
@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_pieces_make_the_whole(shape, layout, kind, monkeypatch):
    """Large batches are processed in pieces; here a piece has 64 numbers, fewer than some single samples."""
    check_pieces(shape, torch.float64, layout, kind, monkeypatch)


@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_pieces_in_half_precision(kind, monkeypatch):
    check_pieces((3, 5, 40), torch.bfloat16, "plain", kind, monkeypatch)


def check_pieces(shape: tuple[int, ...], dtype: torch.dtype, layout: str, kind: str, monkeypatch) -> None:
    torch.manual_seed(0)
    logits = torch.randn(shape).to(dtype)
    if layout == "classes last":
        logits = logits.movedim(1, -1).contiguous().movedim(-1, 1)
    target = torch.randint(shape[1], (shape[0], *shape[2:]))
    if kind == "probabilities":
        target = torch.nn.functional.one_hot(target, shape[1]).movedim(-1, 1).to(dtype)

    def results() -> list[Tensor]:
        found = []
        for loss in (ours.complement_entropy, ours.complement_cross_entropy):
            leaf = logits.detach().requires_grad_()
            rows = loss(leaf, target, reduction="none")
            found += [
                rows.detach(),
                *torch.autograd.grad(rows, leaf, torch.linspace(-1, 1, rows.numel()).view_as(rows)),
            ]
            with torch.no_grad():
                found.append(loss(leaf, target, reduction="none"))
        return found

    whole = results()
    monkeypatch.setattr("evenhand.losses._formula.CHUNK", 64)
    assert_close(results(), whole, rtol=1e-12 if dtype == torch.float64 else 1e-2, atol=1e-14)
