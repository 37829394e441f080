"""Without the complement, the loss is F.cross_entropy in every respect.

`gamma=0` must give it exactly. `gamma=1e-13` is computed like every other gamma and must give it to 1e-11 in float64.
"""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from evenhand.losses.functional import complement_cross_entropy

from .cases import every_backend

ALMOST = 1e-13
K = 5
SHAPES = [(K,), (4, K), (3, K, 4), (2, K, 3, 2)]
EMPTY = [(0, K), (0, K, 3), (2, K, 0)]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def rows_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    return () if len(shape) == 1 else (shape[0], *shape[2:])


def check(logits: Tensor, target: Tensor, gamma: float, **settings) -> None:
    """Compare value, dtype, shape and gradient, the latter under an upstream gradient of all sorts of numbers."""
    results = []
    for loss in (F.cross_entropy, complement_cross_entropy):
        # A leaf that is laid out in memory just as the given logits are.
        leaf = logits.detach().as_strided(logits.shape, logits.stride(), logits.storage_offset()).requires_grad_()
        extra = {} if loss is F.cross_entropy else {"gamma": gamma}
        value = loss(leaf, target, **settings, **extra)
        upstream = torch.linspace(-1, 2, value.numel(), dtype=value.dtype).reshape(value.shape) + 0.1
        (gradient,) = torch.autograd.grad(value, leaf, upstream)
        results.append((value.detach(), gradient))
    tolerance = {"rtol": 0, "atol": 0} if gamma == 0 else {"rtol": 1e-11, "atol": 1e-12}
    assert_close(results[1], results[0], equal_nan=True, msg=lambda text: f"{settings}: {text}", **tolerance)


REDUCTIONS, SMOOTHINGS = ("none", "mean", "sum"), (0.0, 0.1, 1.0)
WEIGHTS = (None, torch.tensor([0.5, 2.0, 0.0, 1.5, 0.1], dtype=torch.float64))


def check_all(logits: Tensor, target: Tensor, gamma: float, weights=WEIGHTS, **settings) -> None:
    """Compare with every weight, reduction and smoothing."""
    for weight, reduction, smoothing in product(weights, REDUCTIONS, SMOOTHINGS):
        check(logits, target, gamma, weight=weight, reduction=reduction, label_smoothing=smoothing, **settings)


gammas = pytest.mark.parametrize("gamma", [0.0, ALMOST])


@gammas
@pytest.mark.parametrize(
    ("shape", "ignored"), [*product(SHAPES, ["none", "none, index in range", "some", "all"]), *product(EMPTY, ["none"])]
)
def test_class_indices(shape, ignored, gamma):
    logits = torch.randn(shape, dtype=torch.float64)
    target = torch.randint(K, rows_of(shape))
    ignore_index = -100 if ignored == "none" else 2
    if ignored == "none, index in range":
        target[target == 2] = 3
    elif ignored == "some":
        target[torch.rand(target.shape) < 0.5] = ignore_index
    elif ignored == "all":
        target[...] = ignore_index
    check_all(logits, target, gamma, ignore_index=ignore_index)


@gammas
@pytest.mark.parametrize("shape", [*SHAPES, *EMPTY], ids=str)
def test_class_probabilities(shape, gamma):
    logits = torch.randn(shape, dtype=torch.float64)
    target = torch.randn(shape, dtype=torch.float64).softmax(0 if len(shape) == 1 else 1)
    check_all(logits, target, gamma)


@gammas
@pytest.mark.parametrize("ignore_index", [-100, 2, 255])
def test_class_indices_as_bytes(ignore_index, gamma):
    logits = torch.randn(6, K, dtype=torch.float64)
    target = torch.tensor([0, 4, 2, 1, 2, 3], dtype=torch.uint8)
    if ignore_index == 255:
        target[1] = 255
    check_all(logits, target, gamma, weights=[None], ignore_index=ignore_index)


def layouts() -> dict[str, Tensor]:
    torch.manual_seed(1)
    image = torch.randn(2, K, 4, 6, dtype=torch.float64)
    return {
        "channels last": image.to(memory_format=torch.channels_last),
        "every other pixel": image[:, :, ::2, ::3],
        "transposed image": image.transpose(2, 3),
        "classes last in memory": torch.randn(4, 3, K, dtype=torch.float64).movedim(-1, 1),
        "transposed": torch.randn(K, 7, dtype=torch.float64).T,
        "sliced classes": torch.randn(7, 2 * K, dtype=torch.float64)[:, ::2],
        "one row expanded": torch.randn(1, K, dtype=torch.float64).expand(6, K),
        "one logit expanded": torch.randn(6, 1, dtype=torch.float64).expand(6, K),
        "one pixel expanded": torch.randn(2, K, 1, dtype=torch.float64).expand(2, K, 3),
    }


@gammas
@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_any_layout_in_memory(layout, kind, gamma):
    logits = layouts()[layout]
    target = torch.randint(K, rows_of(logits.shape)) if kind == "indices" else torch.randn_like(logits).softmax(1)
    for reduction in REDUCTIONS:
        check(logits, target, gamma, reduction=reduction)


@gammas
def test_targets_of_any_layout(gamma):
    logits = torch.randn(4, K, 3, dtype=torch.float64)
    check(logits, torch.randint(K, (3, 4)).T, gamma)
    check(logits, torch.randint(K, (4, 1)).expand(4, 3), gamma)
    check(logits, torch.randn(4, 3, K, dtype=torch.float64).softmax(-1).movedim(-1, 1), gamma)


@every_backend
@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_result_of_a_kernel_has_the_same_precision(dtype, autocast):
    for reduction in REDUCTIONS:
        check_precision("indices", dtype, autocast, reduction)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_result_of_class_probabilities_has_the_same_precision(dtype, autocast):
    for reduction in REDUCTIONS:
        check_precision("probabilities", dtype, autocast, reduction)


def check_precision(kind: str, dtype: torch.dtype, autocast: torch.dtype | None, reduction: str) -> None:
    leaf = torch.randn(6, K, dtype=dtype, requires_grad=True)
    target = torch.arange(6) % K if kind == "indices" else torch.randn(6, K, dtype=dtype).softmax(1)
    results = []
    for gamma in (None, 0.0, 1e-6, -1.0):
        loss = F.cross_entropy if gamma is None else complement_cross_entropy
        with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
            value = loss(leaf, target, reduction=reduction, **({} if gamma is None else {"gamma": gamma}))
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        assert gradient.dtype == dtype
        results.append((value.detach(), gradient))
    plain, zero, tiny, paper = results
    assert_close(zero, plain, rtol=0, atol=0)
    # Half precision: cross entropy rounds more often than we do.
    digits = {torch.float16: 5e-3, torch.bfloat16: 4e-2, torch.float32: 1e-5, torch.float64: 1e-5}[dtype]
    assert_close(tiny, plain, rtol=digits, atol=digits)
    assert paper[0].dtype == plain[0].dtype


def test_all_rows_ignored_is_nan_with_no_gradient():
    """What the comparison above finds cross entropy to give, in numbers."""
    logits = torch.randn(3, K, requires_grad=True)
    loss = complement_cross_entropy(logits, torch.full((3,), -100))
    loss.backward()
    assert loss.isnan()
    assert (logits.grad == 0).all()
    assert complement_cross_entropy(logits, torch.full((3,), -100), reduction="sum") == 0


def test_masked_logits_give_what_cross_entropy_gives():
    logits = torch.randn(4, K, dtype=torch.float64)
    logits[0, 1] = logits[1, 4] = logits[2, 0] = -torch.inf
    for target in ([0, 1, 2, 3], [1, 0, 1, 0]):
        check(logits, torch.tensor(target), ALMOST, reduction="none")


def test_whatever_an_ignored_row_holds_does_not_matter_to_the_value():
    logits = torch.randn(3, K, dtype=torch.float64)
    target = torch.tensor([0, -100, 2])
    clean = complement_cross_entropy(logits, target)
    for junk in (torch.inf, -torch.inf, torch.nan):
        logits[1] = junk
        assert complement_cross_entropy(logits, target) == clean
