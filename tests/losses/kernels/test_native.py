"""The C kernel alone: every instruction set of this processor against the formula in float64."""

import math
import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from evenhand.losses._formula import differentiable
from evenhand.losses.kernels import native

from ..cases import repeatable, seeds

LEVELS = range(1, native.level + 1)
pytestmark = pytest.mark.skipif(not native.level, reason=f"no native kernel: {native.why_not}")


@pytest.fixture(params=LEVELS, ids=[native.LEVELS[level] for level in LEVELS], scope="module", autouse=True)
def level(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "level", request.param)
        yield request.param


def run(logits: Tensor, target: Tensor, **settings):
    usual = {"weight": None, "offset": None, "margin": None, "share": -0.1, "with_cross_entropy": True}
    usual |= {"ignore_index": -100, "reduction": "none", "with_gradient": True}
    return native.run(logits, target, **(usual | settings))


def expected(logits: Tensor, target: Tensor, **settings) -> tuple[Tensor, Tensor]:
    """Return loss and gradient by the closed form in float64; `test_numerics` holds that against the equations."""
    offset, margin, weight, share = (settings.get(name) for name in ("offset", "margin", "weight", "share"))
    valid = target != settings.get("ignore_index", -100)
    index = torch.where(valid, target, 0)
    rows, gradient = differentiable(
        logits.double(),
        index,
        share.double()[index] if isinstance(share, Tensor) else -0.1 if share is None else share,
        settings.get("with_cross_entropy", True),
        None if offset is None else offset.double()[None],
        None if margin is None else margin.double()[index],
        0,
    )
    factor = valid.double() if weight is None else valid * weight.double()[index]
    reduction = settings.get("reduction", "none")
    rows = torch.where(valid, rows * factor, 0.0)
    gradient = torch.where(valid[:, None], gradient * factor[:, None], 0.0)
    if reduction == "mean":
        return rows.sum() / factor.sum(), gradient / factor.sum() if valid.any() else gradient
    return rows if reduction == "none" else rows.sum(), gradient


def check(got: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> None:
    loss, gradient = got
    assert_close(loss.double(), wanted[0], rtol=2e-6, atol=2e-6, equal_nan=True)
    size = wanted[1].abs().amax(1, keepdim=True) + 1e-30
    if gradient.dtype is torch.float32:
        assert ((gradient - wanted[1]).abs() <= 3e-6 * size).all()
    else:  # rounded once, to the nearest bfloat16 of nearly the exact number
        assert ((gradient - wanted[1]).abs() <= 2**-8 * wanted[1].abs() + 3e-6 * size).all()


@st.composite
def calls(draw: st.DrawFn) -> tuple[Tensor, Tensor, dict]:
    k = draw(st.one_of(st.integers(2, 70), st.sampled_from([511, 512, 513, 1000, 1040, 4097])))
    n = draw(st.integers(0, 40))
    random = torch.Generator().manual_seed(draw(seeds))
    logits = draw(st.floats(0.01, 30)) * torch.randn(n, k, generator=random)
    if draw(st.booleans()):
        logits = logits.bfloat16()
    target = torch.randint(k, (n,), generator=random)
    settings: dict = {"reduction": draw(st.sampled_from(["none", "mean", "sum"]))}
    vectors = {
        "weight": torch.rand(k, generator=random),
        "offset": torch.randn(k, generator=random) * 3,
        "margin": torch.rand(k, generator=random),
        "share": -torch.rand(k, generator=random),
    }
    settings |= {name: values for name, values in vectors.items() if draw(st.booleans())}
    settings["with_cross_entropy"] = draw(st.booleans())
    if draw(st.booleans()):
        settings["ignore_index"] = draw(st.sampled_from([-100, 0, k + 5]))
        target[torch.rand(n, generator=random) < 0.3] = settings["ignore_index"]
    return logits, target, settings


@settings(repeatable, max_examples=200)
@given(call=calls())
def test_everything_against_the_formula(call):
    logits, target, settings = call
    got = run(logits, target, **settings)
    check(got, expected(logits, target, **settings))
    only_loss, nothing = run(logits, target, **settings, with_gradient=False)
    assert nothing is None
    assert_close(only_loss, got[0], rtol=0, atol=0, equal_nan=True)
    in_place = logits.clone()
    _, gradient = run(in_place, target, **settings, in_place=True)
    assert gradient is in_place
    assert_close(in_place, got[1], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("k", [2, 100_000])
def test_few_and_many_classes(k):
    torch.manual_seed(0)
    logits, target = torch.randn(3, k), torch.tensor([0, 1, k - 1])
    for asked in ({"share": -1.0}, {"share": 1.0, "with_cross_entropy": False}):
        check(run(logits, target, **asked), expected(logits, target, **asked))


def test_logits_in_strange_places():
    torch.manual_seed(0)
    wide, target = torch.randn(6, 40), torch.randint(20, (6,))
    for logits in (wide[:, 3:23], wide[:, ::2], wide[:1, :20].expand(6, 20), torch.randn(20, 6).t(), wide[::2, :20]):
        labels = target[: len(logits)]
        check(run(logits, labels), expected(logits, labels))
    logits, strided = wide[:, :20], torch.stack([target, target + 50], 1)[:, 0]
    check(run(logits, strided), expected(logits, target))
    doubled = torch.rand(40)
    settings = {"weight": doubled[::2], "offset": doubled[1::2], "margin": doubled[::2], "share": doubled[::2]}
    check(run(logits, target, **settings), expected(logits, target, **settings))


@pytest.mark.parametrize("wrong", [-1, 5, 2**40, -(2**62)])
def test_a_target_that_is_no_class_is_never_used(wrong):
    assert run(torch.randn(3, 5), torch.tensor([0, wrong, 2])) is None


@pytest.mark.parametrize("ignore_index", [2**63, -(2**63) - 1, -100.0, None])
def test_an_ignore_index_no_target_can_be(ignore_index):
    assert run(torch.randn(3, 5), torch.tensor([0, 1, 2]), ignore_index=ignore_index) is None


def test_zeros_that_have_no_memory_are_not_read():
    assert run(torch._efficientzerotensor((3, 5)), torch.tensor([0, 1, 2])) is None


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("k", [3, 21])
def test_infinite_and_undefined_logits(half, k):
    """One case a row; the others must not notice."""
    inf, nan = math.inf, math.nan
    logits = torch.zeros(9, k)
    for row, (own, second, rest) in enumerate(
        [
            (0.0, -inf, 1.0),
            (-inf, 1.0, 2.0),
            (3.0, -inf, -inf),
            (3e38, -3e38, 1e38),
            (-3e38, 3e38, 3e38),
            (inf, 0.0, 1.0),
            (nan, 0.0, 1.0),
            (0.0, nan, 1.0),
            (0.0, inf, 1.0),
        ]
    ):
        logits[row] = rest
        logits[row, 0], logits[row, 1] = own, second
    logits = logits.bfloat16() if half else logits
    loss, gradient = run(logits, torch.zeros(9, dtype=torch.long))
    wanted, wanted_gradient = expected(logits, torch.zeros(9, dtype=torch.long))
    assert loss.isnan().tolist() == [False] * 5 + [True] * 4
    assert_close(loss[:5].double(), wanted[:5].float().double(), rtol=1e-6, atol=1e-6)  # as float32 holds it: inf
    assert_close(gradient[:5].double(), wanted_gradient[:5], rtol=2**-8, atol=1e-7)
    only = run(logits, torch.zeros(9, dtype=torch.long), with_cross_entropy=False)[0]
    assert only.isnan().tolist() == [False] * 5 + [True] * 4
    assert_close(only[:5].double(), expected(logits[:5], torch.zeros(5).long(), with_cross_entropy=False)[0])


def test_a_nan_of_any_payload_is_kept():
    logits = torch.zeros(2, 40)
    logits.view(torch.int32)[0, 7] = 0x7FFFFFFF
    logits.view(torch.int32)[1, 39] = 0x7F800001
    for with_cross_entropy in (True, False):
        loss, gradient = run(logits, torch.zeros(2, dtype=torch.long), with_cross_entropy=with_cross_entropy)
        assert loss.isnan().all()
        assert gradient.isnan().all()


@pytest.mark.parametrize(
    "offset",
    [[0.0, -60.0, 1.0], [math.nan, 0.0, 0.0], [math.inf, 0.0, 0.0], [-math.inf] * 3, [0.5, -math.inf, 1.0]],
)
def test_an_offset_one_exponential_cannot_serve(offset):
    assert run(torch.zeros(2, 3), torch.tensor([0, 1]), offset=torch.tensor(offset)) is None


def test_more_threads_change_no_bit():
    torch.manual_seed(0)
    logits, target = torch.randn(700, 300), torch.randint(300, (700,))
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(run(logits, target, reduction="mean"))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert torch.equal(other[0], results[0][0])
        assert torch.equal(other[1], results[0][1])


def test_more_threads_than_rows():
    torch.manual_seed(0)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(8)
        for n, k in ((1, 100_000), (3, 40_000)):
            logits, target = torch.randn(n, k), torch.randint(k, (n,))
            check(run(logits, target), expected(logits, target))
    finally:
        torch.set_num_threads(before)


def test_several_callers_at_once():
    torch.manual_seed(0)
    batches = [(torch.randn(300, 500), torch.randint(500, (300,))) for _ in range(4)]
    alone = [run(*batch, reduction="mean") for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            for got, wanted in zip(pool.map(lambda batch: run(*batch, reduction="mean"), batches), alone, strict=True):
                assert torch.equal(got[0], wanted[0])
                assert torch.equal(got[1], wanted[1])


def test_a_process_forked_after_use(level):
    """Only the caller lives on in it, as with every operation of torch that has used threads."""
    logits, target = torch.randn(500, 1000), torch.randint(1000, (500,))
    loss, _ = run(logits, target, reduction="mean")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_loss_in_a_fork, (logits, target, level)).get(60) == loss.item()


def _loss_in_a_fork(logits: Tensor, target: Tensor, level: int) -> float:
    torch.set_num_threads(1)
    assert native.level == level
    return run(logits, target, reduction="mean")[0].item()


def test_torch_lends_its_threads():
    """Torch has had `torch_parallel_for` since 2.10; before that, one thread works."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    assert native.threads or version < (2, 10)


def test_float16_and_float64_defaults_change_nothing():
    torch.set_default_dtype(torch.float64)
    try:
        loss, gradient = run(torch.zeros(2, 3, dtype=torch.float32), torch.tensor([0, 1]))
    finally:
        torch.set_default_dtype(torch.float32)
    assert loss.dtype == gradient.dtype == torch.float32
