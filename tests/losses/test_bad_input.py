"""Invalid input raises an error of one sentence that shows the value."""

import re
from functools import partial

import pytest
import torch

from evenhand import ComplementCrossEntropyLoss, FocalLoss
from evenhand.losses import BalancedSoftmaxLoss, LDAMLoss, LogitAdjustedLoss, VSLoss, set_backend
from evenhand.losses.functional import (
    adjust_logits,
    adjusted_cross_entropy,
    balanced_softmax_loss,
    complement_cross_entropy,
    complement_entropy,
    focal_loss,
    ldam_loss,
    logit_adjusted_cross_entropy,
    vs_loss,
)

LOGITS = torch.zeros(3, 4)
TARGET = torch.tensor([0, 1, 3])


def refused(call, exception: type[Exception], *shown: str) -> None:
    with pytest.raises(exception) as caught:
        call()
    message = str(caught.value)
    for value in shown:
        assert value in message, message
    assert re.fullmatch(r"[^\n]+\.", message), "one line that ends in a full stop"
    assert len(re.findall(r"\.( |$)", message)) == 1, "one sentence"


def eager_cce(*args, **kwargs):
    """CCE by torch's operations; the others of the table below use the default backend, which is a kernel for CCE."""
    set_backend("eager")
    try:
        return complement_cross_entropy(*args, **kwargs)
    finally:
        set_backend("auto")


LOSSES = {
    "complement entropy": complement_entropy,
    "cce": complement_cross_entropy,
    "cce, eager": eager_cce,
    "focal": focal_loss,
    "adjusted": adjusted_cross_entropy,
}
losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


@pytest.mark.parametrize("loss", [logit_adjusted_cross_entropy, ldam_loss, vs_loss])
def test_losses_with_counts_check_their_input(loss):
    """They check it as the losses above do."""
    counts = [4, 3, 2, 1]
    refused(lambda: loss(LOGITS, TARGET[:2], counts), ValueError, "(3, 4)", "got (2,)")
    refused(lambda: loss(LOGITS, TARGET + 1, counts), IndexError, "4")
    refused(lambda: loss(LOGITS, TARGET, counts, reduction="average"), ValueError, "'average'")
    refused(lambda: loss(LOGITS, TARGET, counts, torch.ones(3)), ValueError, "weight", "(3,)")
    refused(lambda: loss(LOGITS, TARGET, counts, label_smoothing=2), ValueError, "2")


@losses
@pytest.mark.parametrize("shape", [(3, 1), (3, 0), (1,)])
def test_fewer_than_two_classes(loss, shape):
    rows = () if len(shape) == 1 else (shape[0], *shape[2:])
    classes = shape[0] if len(shape) == 1 else shape[1]
    refused(lambda: loss(torch.zeros(shape), torch.zeros(rows).long()), ValueError, f"got {classes}", str(shape))


@losses
@pytest.mark.parametrize(
    ("logits", "target"),
    [
        ((3, 4), (2,)),
        ((3, 4), ()),
        ((4,), (1,)),
        ((3, 4, 2), (3, 3)),
        ((3, 4), (3, 5)),
    ],
)
def test_shapes_that_do_not_match(loss, logits, target):
    refused(lambda: loss(torch.zeros(logits), torch.zeros(target).long()), ValueError, str(logits), f"got {target}")


@losses
def test_logits_of_no_dimension_or_integers(loss):
    refused(lambda: loss(torch.tensor(1.0), torch.tensor(0)), ValueError, "()")
    refused(lambda: loss(torch.zeros(3, 4).long(), TARGET), ValueError, "torch.int64")


@losses
@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float32], ids=str)
def test_class_indices_of_another_dtype(loss, dtype):
    refused(lambda: loss(LOGITS, TARGET.to(dtype)), ValueError, str(dtype))


@losses
@pytest.mark.parametrize("wrong", [4, -1])
@pytest.mark.parametrize("ignore_index", [-100, 1, 7])
def test_targets_that_are_no_class(loss, wrong, ignore_index):
    for target in (torch.tensor([0, wrong, 1]), torch.tensor([wrong, ignore_index, 2])):
        refused(lambda t=target: loss(LOGITS, t, ignore_index=ignore_index), IndexError, str(wrong), str(ignore_index))


@losses
def test_byte_targets_that_are_no_class(loss):
    refused(lambda: loss(LOGITS, torch.tensor([0, 200, 1], dtype=torch.uint8)), IndexError, "200")


@losses
def test_ignoring_a_class_of_probabilities(loss):
    refused(lambda: loss(LOGITS, LOGITS.softmax(1), ignore_index=2), ValueError, "2")


@losses
def test_numpy_lists_and_nothing_for_tensors(loss):
    for wrong, shown in ((LOGITS.numpy(), "ndarray"), (LOGITS.tolist(), "list"), (None, "NoneType"), ("text", "str")):
        refused(lambda x=wrong: loss(x, TARGET), ValueError, "input", shown)
    for wrong, shown in ((TARGET.numpy(), "ndarray"), (TARGET.tolist(), "list"), (3, "int")):
        refused(lambda x=wrong: loss(LOGITS, x), ValueError, "target", shown)


@losses
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex64, torch.int64], ids=str)
def test_unsupported_dtypes(loss, dtype):
    refused(lambda: loss(LOGITS.to(dtype), TARGET), ValueError, str(dtype))
    refused(lambda: loss(LOGITS, LOGITS.to(dtype)), ValueError, str(dtype))


@pytest.mark.parametrize(
    "gamma", [float("nan"), float("inf"), -float("inf"), 10**400], ids=lambda gamma: str(gamma)[:4]
)
def test_gamma_that_is_not_finite(gamma):
    for call in (
        lambda: complement_cross_entropy(LOGITS, TARGET, gamma=gamma),
        lambda: focal_loss(LOGITS, TARGET, gamma=gamma),
        lambda: ComplementCrossEntropyLoss(gamma=gamma),
        lambda: FocalLoss(gamma=gamma),
    ):
        refused(call, ValueError, f"got {gamma}")


@pytest.mark.parametrize("gamma", ["-1", "release", "", [1.0], {}, 1j], ids=repr)
def test_gamma_that_is_no_number(gamma):
    for call in (
        lambda: complement_cross_entropy(LOGITS, TARGET, gamma=gamma),
        lambda: focal_loss(LOGITS, TARGET, gamma=gamma),
        lambda: ComplementCrossEntropyLoss(gamma=gamma),
        lambda: FocalLoss(gamma=gamma),
    ):
        refused(call, ValueError, "gamma", repr(gamma))


COUNTS = [40, 30, 20, 10]


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"gamma": -1, "share": 0.3}, ["gamma -1", "share 0.3"]),
        ({"share": -0.3}, ["-0.3"]),
        ({"share": float("nan")}, ["nan"]),
        ({"share": "0.3"}, ["'0.3'"]),
        ({"share": [0.1, -0.2, 0.3, 0.4]}, ["-0.2"]),
        ({"share": [[0.1]]}, ["share"]),
        ({"share": ["a"]}, ["'a'"]),
        ({"spare": -1}, ["-1"]),
        ({"spare": 1.5}, ["1.5"]),
        ({"spare": "1"}, ["'1'"]),
        ({"spare": True}, ["True"]),
        ({"rivals": torch.ones(4, 4, dtype=torch.bool), "spare": 1}, ["spare=1"]),
        ({"rivals": torch.ones(4, 3, dtype=torch.bool)}, ["(4, 3)"]),
        ({"rivals": torch.ones(4, 4)}, ["float32"]),
        ({"rivals": "x"}, ["rivals", "str"]),
        ({"rivals": [[True] * 4] * 4}, ["rivals", "list"]),
        ({"rivals": torch.ones(4, 4, dtype=torch.bool).numpy()}, ["rivals", "ndarray"]),
        ({"rivals": 1}, ["rivals", "int"]),
        ({"rivals": True}, ["rivals", "bool"]),
        ({"rivals": {}}, ["rivals", "dict"]),
        ({"rivals": torch.tensor(True)}, ["rivals", "()"]),
        ({"tau": 2.0}, ["2.0", "counts"]),
        ({"counts": COUNTS, "tau": -1.0}, ["-1.0"]),
        ({"counts": COUNTS, "tau": "auto"}, ["'auto'"]),
        ({"counts": [1, 2, -3, 4]}, ["-3"]),
        ({"counts": [0, 0, 0, 0]}, ["0.0"]),
        ({"counts": COUNTS, "complement_on": "both"}, ["'both'"]),
        ({"complement_on": "adjusted"}, ["counts"]),
        ({"label_smoothing": "0.1"}, ["'0.1'"]),
    ],
    ids=str,
)
def test_invalid_settings_of_cce(settings, shown):
    refused(lambda: complement_cross_entropy(LOGITS, TARGET, **settings), ValueError, *shown)
    refused(lambda: ComplementCrossEntropyLoss(**settings)(LOGITS, TARGET), ValueError, *shown)


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"counts": COUNTS, "offset": torch.zeros(4)}, ["counts", "offset"]),
        ({"counts": [1, 2, 3]}, ["counts", "4", "3"]),
        ({"share": [0.1, 0.2]}, ["share", "(2,)"]),
        ({"offset": torch.zeros(3)}, ["offset", "(3,)"]),
        ({"offset": [0.0] * 4}, ["offset", "list"]),
        ({"margin": torch.zeros(4, 1)}, ["margin", "(4, 1)"]),
        ({"margin": torch.zeros(4).long()}, ["margin", "torch.int64"]),
    ],
    ids=str,
)
def test_vectors_of_the_wrong_length(settings, shown):
    refused(lambda: complement_cross_entropy(LOGITS, TARGET, **settings), ValueError, *shown)


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda: logit_adjusted_cross_entropy(LOGITS, TARGET, [1, 2, 3]), "got 3"),
        (lambda: logit_adjusted_cross_entropy(LOGITS, TARGET, COUNTS, tau=-0.5), "-0.5"),
        (lambda: balanced_softmax_loss(LOGITS, TARGET, "many"), "'many'"),
        (lambda: ldam_loss(LOGITS, TARGET, [1, 2, 3, 4, 5]), "got 5"),
        (lambda: ldam_loss(LOGITS, TARGET, COUNTS, scale=0.0), "0.0"),
        (lambda: ldam_loss(LOGITS, TARGET, COUNTS, max_margin=-1), "-1"),
        (lambda: LogitAdjustedLoss([0, 0]), "0.0"),
        (lambda: LogitAdjustedLoss(COUNTS, tau=float("inf")), "inf"),
        (lambda: BalancedSoftmaxLoss(COUNTS, reduction="average"), "'average'"),
        (lambda: BalancedSoftmaxLoss(COUNTS, label_smoothing=2), "2"),
        (lambda: BalancedSoftmaxLoss([1, 2])(LOGITS, TARGET), "counts must be 4 numbers, one per class, got 2."),
        (lambda: LDAMLoss([1, 2, 3])(LOGITS[0], TARGET[0]), "counts must be 4 numbers, one per class, got 3."),
        (lambda: ComplementCrossEntropyLoss(counts=[1, 2])(LOGITS, TARGET), "counts must be 4 numbers"),
        (lambda: LogitAdjustedLoss(COUNTS)(LOGITS, TARGET[:1]), "target for an input of shape"),
        (lambda: LDAMLoss(COUNTS, scale=-1), "-1"),
        (lambda: LDAMLoss(COUNTS, scale=0.0), "0.0"),
        (lambda: LDAMLoss(COUNTS, max_margin="wide"), "'wide'"),
        (lambda: vs_loss(LOGITS, TARGET, [1, 2, 3]), "got 3"),
        (lambda: vs_loss(LOGITS, TARGET, COUNTS, gamma=-1), "-1"),
        (lambda: VSLoss(COUNTS, tau=-1), "-1"),
        (lambda: VSLoss([1, 2])(LOGITS, TARGET), "counts must be 4 numbers, one per class, got 2."),
    ],
)
def test_counts_and_settings_of_losses_with_counts(call, shown):
    refused(call, ValueError, shown)


def test_negative_gamma_of_the_focal_loss():
    refused(lambda: focal_loss(LOGITS, TARGET, gamma=-0.5), ValueError, "-0.5")
    refused(lambda: FocalLoss(gamma=-0.5), ValueError, "-0.5")


@pytest.mark.parametrize("loss", [complement_entropy, complement_cross_entropy])
@pytest.mark.parametrize("length", [1, 3, 5])
def test_weights_of_the_wrong_length(loss, length):
    refused(lambda: loss(LOGITS, TARGET, torch.ones(length)), ValueError, "4", f"({length},)")
    refused(lambda: loss(LOGITS, LOGITS.softmax(1), torch.ones(length)), ValueError, "4", f"({length},)")


@pytest.mark.parametrize("loss", [complement_entropy, complement_cross_entropy])
def test_weights_of_the_wrong_kind(loss):
    refused(lambda: loss(LOGITS, TARGET, torch.ones(4, 1)), ValueError, "(4, 1)")
    refused(lambda: loss(LOGITS, TARGET, torch.ones(4).long()), ValueError, "torch.int64")


@pytest.mark.parametrize("length", [1, 3, 5])
def test_alpha_of_the_wrong_length(length):
    refused(lambda: focal_loss(LOGITS, TARGET, alpha=[0.5] * length), ValueError, "4", f"({length},)")


@pytest.mark.parametrize("reduction", ["average", "batchmean", "", "Mean", None, ["mean"], {}, 1])
def test_unknown_reduction(reduction):
    for call in (
        lambda: complement_entropy(LOGITS, TARGET, reduction=reduction),
        lambda: complement_cross_entropy(LOGITS, TARGET, reduction=reduction),
        lambda: focal_loss(LOGITS, TARGET, reduction=reduction),
        lambda: ComplementCrossEntropyLoss(reduction=reduction),
        lambda: FocalLoss(reduction=reduction),
    ):
        refused(call, ValueError, repr(reduction))


@pytest.mark.parametrize("smoothing", [-0.1, 1.5, float("nan")])
def test_label_smoothing_outside_zero_to_one(smoothing):
    refused(lambda: complement_cross_entropy(LOGITS, TARGET, label_smoothing=smoothing), ValueError, str(smoothing))


def test_nothing_is_refused_that_cross_entropy_takes():
    """gamma=0 hands over to cross entropy, so its own checks must agree with ours."""
    for gamma in (0.0, -1.0):
        complement_cross_entropy(LOGITS, TARGET.byte(), gamma=gamma)
        complement_cross_entropy(LOGITS, torch.tensor([9, 9, 0]), gamma=gamma, ignore_index=9)
        complement_cross_entropy(LOGITS, torch.zeros(3, 4).half(), gamma=gamma)
        complement_cross_entropy(torch.zeros(4), torch.tensor(3), gamma=gamma)


UNUSUAL = {
    "sparse": lambda x: x.to_sparse(),
    "CSR": lambda x: x.to_sparse_csr() if x.dim() == 2 else x.to_sparse(),
    "MKL-DNN": lambda x: x.float().to_mkldnn(),
    "nested": lambda x: torch.nested.nested_tensor(list(x)),
    "quantised": lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
    "float8": lambda x: x.to(torch.float8_e5m2),
    "complex": lambda x: x + 0j,
    "meta": lambda x: x.to("meta"),
}
VECTOR = torch.linspace(0.1, 1, 4)
TAKING_TENSORS = {
    "cce": (complement_cross_entropy, ("input", "target", "weight", "offset", "margin", "share")),
    "cce, spare": (partial(complement_cross_entropy, spare=1), ("input", "target", "weight", "offset", "margin")),
    "adjusted": (adjusted_cross_entropy, ("input", "target", "weight", "offset", "margin", "scale")),
    "focal": (focal_loss, ("input", "target", "weight", "alpha")),
    "ldam": (ldam_loss, ("input", "target", "counts", "weight")),
    "adjusted logits": (adjust_logits, ("logits", "target", "offset", "margin")),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("kind", UNUSUAL)
def test_tensors_without_plain_numbers(kind, backend):
    """A vector on the device meta was once read as memory, and torch's own words are thousands of characters."""
    set_backend(backend)
    for loss, names in TAKING_TENSORS.values():
        plain = {
            name: LOGITS if name in ("input", "logits") else TARGET if name == "target" else VECTOR for name in names
        }
        loss(**plain)
        for name in names:
            if kind == "meta" and name in ("counts", "share"):  # torch refuses to copy it to the logits
                continue
            if kind == "nested" and plain[name].dim() == 1:  # of numbers, it is an odd name for a vector
                continue
            with pytest.raises(ValueError, match=r"must|needs") as caught:
                loss(**plain | {name: UNUSUAL[kind](plain[name])})
            assert len(str(caught.value)) < 250
    set_backend("auto")


@pytest.mark.parametrize("wrong", [3, [[0.0, 1.0]], None, LOGITS.numpy(), "text", LOGITS.long()], ids=str)
def test_logits_to_adjust(wrong):
    refused(lambda: adjust_logits(wrong, TARGET, offset=VECTOR), ValueError, "input must be")


@pytest.mark.parametrize("target", [TARGET[:2], TARGET[0], TARGET.repeat(2), TARGET[:, None], TARGET.int()], ids=str)
def test_targets_of_logits_to_adjust(target):
    """Of fewer targets than rows, only the first rows got their margin."""
    with pytest.raises(ValueError, match=r"target for an input|class indices must"):
        adjust_logits(LOGITS, target, margin=VECTOR)
    with pytest.raises(ValueError, match=r"shape \(N, K, ...\), got shape"):
        adjust_logits(LOGITS[0], TARGET[0], margin=VECTOR)


@pytest.mark.parametrize("wrong", ["x", [0.1, "a"], {}, [[0.1], [0.2, 0.3]], object], ids=str)
def test_alpha_that_is_no_number(wrong):
    with pytest.raises(ValueError, match="alpha must be a number"):
        focal_loss(LOGITS, TARGET, alpha=wrong)


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_negated_targets(backend):
    """Torch looks up `vector[index]` without the sign of a negated index."""
    set_backend(backend)
    negated = torch._neg_view(-TARGET)
    for loss in (complement_cross_entropy, focal_loss, adjusted_cross_entropy, complement_entropy):
        assert loss(LOGITS + VECTOR, negated, VECTOR) == loss(LOGITS + VECTOR, TARGET, VECTOR)
    set_backend("auto")
