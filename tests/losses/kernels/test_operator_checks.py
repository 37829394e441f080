"""Operators of torch can be called with anything: shapes, dtypes and devices are checked before a kernel reads them."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.testing import assert_close
from torch.testing._internal.two_tensor import TwoTensor

from evenhand.losses import linear_complement_cross_entropy, set_backend
from evenhand.losses.functional import complement_cross_entropy
from evenhand.losses.kernels import linear_operator, native, operators  # noqa: F401, they register themselves

from .isolated import outcome

needs_kernel = pytest.mark.skipif(native.level == 0, reason=f"no native kernel: {native.why_not}")
N, D, K = 6, 4, 5
VECTOR = torch.linspace(0.1, 1, K)
LOGITS, TARGET = torch.linspace(-1, 2, N * K).view(N, K), torch.arange(N) % K
FEATURES, WEIGHT = torch.linspace(-1, 2, N * D).view(N, D), torch.linspace(-2, 2, K * D).view(K, D)


@pytest.fixture(params=["eager", pytest.param("native", marks=needs_kernel)], autouse=True)
def backend(request):
    set_backend(request.param)
    yield request.param
    set_backend("auto")


def loss(**changes) -> tuple[Tensor, Tensor]:
    usual = {"logits": LOGITS, "target": TARGET, "weight": None, "offset": None, "margin": None, "shares": None}
    usual |= {"share": -0.25, "with_cross_entropy": True, "ignore_index": -100, "reduction": "mean"}
    usual |= {"with_gradient": True}
    return torch.ops.evenhand.complement_cross_entropy(**(usual | changes))


def linear_loss(**changes) -> list[Tensor]:
    usual = {"features": FEATURES, "weight": WEIGHT, "bias": None, "target": TARGET, "class_weight": None}
    usual |= {"offset": None, "margin": None, "shares": None, "share": -0.25, "ignore_index": -100}
    usual |= {"reduction": "mean", "wanted": [True, True, False]}
    return torch.ops.evenhand.linear_complement_cross_entropy(**(usual | changes))


WRONG_VECTORS = {
    "short": VECTOR[:2],
    "long": VECTOR.repeat(2),
    "one": VECTOR[:1],
    "empty": VECTOR[:0],
    "number": VECTOR[0],
    "two dimensions": VECTOR[None],
    "column": VECTOR[:, None],
    "int64": VECTOR.long(),
    "bool": VECTOR > 0,
    "complex": VECTOR + 0j,
    "meta": VECTOR.to("meta"),
    "sparse": VECTOR.to_sparse(),
}
OTHER_DTYPES = {"float64": VECTOR.double(), "float16": VECTOR.half(), "bfloat16": VECTOR.bfloat16()}
WRONG_TARGETS = {
    "short": TARGET[:3],
    "long": TARGET.repeat(9),
    "empty": TARGET[:0],
    "number": TARGET[0],
    "two dimensions": TARGET[:, None],
    "int32": TARGET.int(),
    "int8": TARGET.to(torch.int8),
    "bool": TARGET > 0,
    "float": TARGET.float(),
    "meta": TARGET.to("meta"),
    "sparse": TARGET.to_sparse(),
    "uint64": TARGET.to(torch.uint64),
    "one-hot": torch.eye(K, dtype=torch.int64)[TARGET],
}
WRONG_LOGITS = {
    "one dimension": LOGITS[0],
    "three dimensions": LOGITS[..., None],
    "one class": LOGITS[:, :1],
    "no class": LOGITS[:, :0],
    "other rows": LOGITS[1:],
    "int64": LOGITS.long(),
    "complex": LOGITS + 0j,
    "float64": LOGITS.double(),
    "float16": LOGITS.half(),
    "sparse": LOGITS.to_sparse(),
    "of MKL-DNN": LOGITS.to_mkldnn(),
    "float8": LOGITS.to(torch.float8_e4m3fn),
    "nothing": None,
}


def cases(wrong: dict[str, Tensor], *names: str) -> dict[str, dict[str, object]]:
    return {f"{name}, {kind}": {name: x} for name in names for kind, x in wrong.items()}


CALLS = {
    **cases(WRONG_VECTORS | OTHER_DTYPES, "weight", "offset", "margin", "shares"),
    **cases(WRONG_TARGETS | {"uint8": TARGET.byte(), "probabilities": LOGITS.softmax(1)}, "target"),
    **cases(WRONG_LOGITS, "logits"),
    "one class": {"logits": LOGITS[:, :1], "target": TARGET * 0},
    "no batch": {"logits": LOGITS[0], "target": TARGET[0]},
    "images": {"logits": LOGITS[..., None], "target": TARGET[:, None]},
    "reduction": {"reduction": "average"},
    "no reduction": {"reduction": ""},
    "share is NaN": {"share": float("nan")},
    "share is infinite": {"share": float("-inf")},
    "one share is infinite": {"shares": torch.where(VECTOR > 0.5, torch.inf, VECTOR)},
    "one share is NaN": {"shares": torch.where(VECTOR > 0.5, torch.nan, VECTOR)},
}
LINEAR_CALLS = {
    **cases(WRONG_VECTORS, "bias", "class_weight", "offset", "margin", "shares"),
    **cases(WRONG_TARGETS | {"probabilities": LOGITS.softmax(1)}, "target"),
    **cases({"one dimension": FEATURES[0], "D": FEATURES[:, :3], "rows": FEATURES[1:]}, "features"),
    **cases({"three dimensions": FEATURES[None], "int64": FEATURES.long(), "meta": FEATURES.to("meta")}, "features"),
    **cases({"one dimension": WEIGHT[0], "D": WEIGHT[:, :3], "one class": WEIGHT[:1]}, "weight"),
    **cases({"no class": WEIGHT[:0], "int64": WEIGHT.long(), "complex": WEIGHT + 0j}, "weight"),
    **cases({"meta": WEIGHT.to("meta")}, "weight"),
    "reduction": {"reduction": "none"},
    "share is NaN": {"share": float("nan")},
    "share is infinite": {"share": float("-inf")},
    "one share is infinite": {"shares": torch.where(VECTOR > 0.5, torch.inf, VECTOR)},
    "sparse features": {"features": FEATURES.to_sparse()},
    "sparse weight": {"weight": WEIGHT.to_sparse()},
    "wanted, one": {"wanted": [True]},
    "wanted, four": {"wanted": [True] * 4},
}
# What torch refuses itself, and what is refused as cross entropy does: a storage that is gone or was cut.
NO_VALUES = {
    "ignore_index of float": {"ignore_index": 1.5},
    "ignore_index beyond int64": {"ignore_index": 2**63},
    "no ignore_index": {"ignore_index": None},
    "share of text": {"share": "1"},
    "reduction of nothing": {"reduction": None},
    "a list": {"target": [0] * N},
}
NO_CLASSES = cases({str(x): torch.where(TARGET == 1, x, TARGET) for x in (K, -1, 10**12, -(2**62))}, "target")


def answer(call: Callable[..., object], changes: dict[str, object]) -> str:
    try:
        return f"value {call(**changes)}"
    except NotImplementedError as error:
        # torch 2.5 asks a sparse tensor for its storage before it calls an operator, and refuses it itself.
        without = any(isinstance(x, Tensor) and x.layout != torch.strided for x in changes.values())
        refused = without and str(error).startswith("Cannot access storage of")
        return "ValueError" if refused and torch.__version__.startswith("2.5.") else "NotImplementedError"
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize(
    ("call", "calls", "error"),
    [
        (loss, CALLS, "ValueError"),
        (linear_loss, LINEAR_CALLS, "ValueError"),
        (loss, NO_CLASSES, "IndexError"),
        (linear_loss, NO_CLASSES, "IndexError"),
        (loss, NO_VALUES, "RuntimeError"),
        (linear_loss, NO_VALUES, "RuntimeError"),
    ],
    ids=["loss", "linear loss", "targets", "targets of the linear loss", "types", "types of the linear loss"],
)
def test_what_is_refused(call, calls, error):
    """All calls in one process, since to start one takes longer."""
    answers = outcome(lambda: {name: answer(call, changes) for name, changes in calls.items()})
    assert answers == f"value {dict.fromkeys(calls, error)}"


def cut(x: Tensor, share: int) -> Tensor:
    x = x.clone()
    x.untyped_storage().resize_(x.untyped_storage().nbytes() // 2 * share)
    return x


@pytest.mark.parametrize("share", [0, 1], ids=["freed", "cut"])
def test_storages_that_are_gone(share):
    """Asked before anything is read, in every argument."""
    tensors = {"logits": LOGITS, "target": TARGET} | dict.fromkeys(("weight", "offset", "margin", "shares"), VECTOR)
    linear = {"features": FEATURES, "weight": WEIGHT, "target": TARGET}
    linear |= dict.fromkeys(("bias", "class_weight", "offset", "margin", "shares"), VECTOR)
    for call, given in ((loss, tensors), (linear_loss, linear)):
        answers = outcome(lambda c=call, g=given: {name: answer(c, {name: cut(x, share)}) for name, x in g.items()})
        assert answers == f"value {dict.fromkeys(given, 'RuntimeError')}"


@pytest.mark.parametrize("name", ["weight", "offset", "margin", "shares"])
def test_vectors_that_would_be_learned(name):
    """The operators return no gradient for them, so they must not be taken for constants silently."""
    learned = VECTOR.clone().requires_grad_()
    logits = LOGITS.clone().requires_grad_()
    with pytest.raises(ValueError, match="not differentiated"):
        loss(logits=logits, **{name: learned})
    changes = {"class_weight" if name == "weight" else name: learned}
    features = FEATURES.clone().requires_grad_()
    with pytest.raises(ValueError, match="not differentiated"):
        linear_loss(features=features, **changes)
    changes = {"share" if key == "shares" else key: x for key, x in changes.items()}
    with pytest.raises(ValueError, match="not differentiated"):
        linear_complement_cross_entropy(features, TARGET, WEIGHT, **changes)
    with torch.no_grad():
        assert_close(loss(**{name: learned})[0], loss(**{name: VECTOR})[0])
        linear_complement_cross_entropy(features, TARGET, WEIGHT, **changes)


def test_a_gradient_that_is_needed_must_be_wanted():
    with pytest.raises(ValueError, match="must be wanted"):
        linear_loss(features=FEATURES.clone().requires_grad_(), wanted=[False, True, False])
    logits = LOGITS.clone().requires_grad_()
    gradients = [torch.autograd.grad(loss(logits=logits, with_gradient=kept)[0], logits)[0] for kept in (True, False)]
    assert_close(*gradients)  # without one that was kept, it is worked out again


@pytest.mark.parametrize("chunk", [1, 10**6], ids=["in pieces", "at once"])
@pytest.mark.parametrize("frozen", [True, False])
def test_vectors_of_the_linear_loss_in_other_dtypes(chunk, frozen, monkeypatch):
    """The kernel reads float32, so they are converted first."""
    monkeypatch.setattr("evenhand.losses.kernels.linear.CHUNK", chunk)
    for name, vector in itertools.product(["offset", "margin", "share", "class_weight"], OTHER_DTYPES.values()):
        check_converted(name, vector, frozen)


def check_converted(name: str, vector: Tensor, frozen: bool) -> None:
    features, weight = torch.randn(3, 4), torch.randn(K, 4, requires_grad=not frozen)
    got = linear_complement_cross_entropy(features, TARGET[:3], weight, **{name: vector})
    key = "weight" if name == "class_weight" else name
    expected = complement_cross_entropy((features @ weight.t()).double(), TARGET[:3], **{key: vector.double()})
    assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def test_fake_and_meta_tensors_are_checked_as_well():
    assert loss(logits=LOGITS.to("meta"), target=TARGET.to("meta"))[1].shape == (N, K)
    for mode in (FakeTensorMode(), torch.device("meta")):
        with mode:
            logits, target, features = torch.empty(N, K), torch.empty(N, dtype=torch.int64), torch.empty(N, D)
            weight, vector = torch.empty(K, D), torch.empty(K)
            assert loss(logits=logits, target=target, offset=vector)[1].shape == (N, K)
            assert linear_loss(features=features, weight=weight, target=target)[2].shape == (K, D)
            for changes in ({"target": target[:2]}, {"offset": vector[:2]}, {"reduction": "average"}):
                with pytest.raises(ValueError, match=r"must|needs"):
                    loss(**({"logits": logits, "target": target} | changes))
            for changes in ({"target": target[:2]}, {"offset": vector[:2]}, {"weight": weight[:, :2]}):
                with pytest.raises(ValueError, match=r"must|needs"):
                    linear_loss(**({"features": features, "weight": weight, "target": target} | changes))


def test_views_are_taken_as_they_are():
    """Expanded, strided and negated views mean what they mean to torch."""
    expected = loss(weight=VECTOR, offset=-VECTOR, margin=-VECTOR, shares=-VECTOR, reduction="none")
    wide = torch.stack([LOGITS, -LOGITS], -1)[..., 0]
    negated = torch.complex(VECTOR, VECTOR).conj().imag
    got = loss(
        logits=wide,
        target=torch.stack([TARGET, TARGET + 70])[0],
        weight=torch._neg_view(-VECTOR),
        offset=negated,
        margin=torch._neg_view(VECTOR),
        shares=torch._neg_view(VECTOR),
        reduction="none",
    )
    assert_close(got, expected)
    one = VECTOR[:1]
    assert_close(loss(weight=one.expand(K), offset=one.expand(K))[0], loss()[0], rtol=1e-6, atol=1e-6)
    assert_close(
        loss(logits=LOGITS[:1].expand(N, K), target=TARGET[:1].expand(N))[0],
        loss(logits=LOGITS[:1], target=TARGET[:1])[0],
    )


def test_no_rows():
    value, gradient = loss(logits=LOGITS[:0], target=TARGET[:0])
    assert value.isnan()
    assert gradient.shape == (0, K)
    assert loss(logits=LOGITS[:0], target=TARGET[:0], reduction="sum")[0] == 0


@pytest.mark.parametrize("name", ["target", "weight", "offset", "share"])
def test_a_tensor_around_two_others(name):
    """A kernel would find no memory in it, as if it were not given; and nothing of a plain tensor may be changed."""
    given = {"input": LOGITS, "target": TARGET, "weight": VECTOR, "offset": -VECTOR, "share": VECTOR}
    other = given[name].flip(0)
    both = complement_cross_entropy(**(given | {name: TwoTensor(given[name], other)}))
    assert_close(both.a, complement_cross_entropy(**given))
    assert_close(both.b, complement_cross_entropy(**(given | {name: other})))
