"""The modules are their functions with a memory, and importing the package is cheap."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import evenhand
from evenhand import ComplementCrossEntropyLoss, FocalLoss, losses
from evenhand.losses import functional
from evenhand.losses.functional import complement_cross_entropy, focal_loss

K = 4
WEIGHT = torch.tensor([0.5, 2.0, 1.0, 3.5])
COUNTS = [40, 30, 20, 10]
# Every module, and the arguments before its weight.
MODULES = {
    "ComplementCrossEntropyLoss": (),
    "FocalLoss": (2.0, None),
    "LogitAdjustedLoss": (COUNTS,),
    "BalancedSoftmaxLoss": (COUNTS,),
    "LDAMLoss": (COUNTS,),
    "VSLoss": (COUNTS,),
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(6, K), torch.tensor([0, 1, 2, 3, 1, -100])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gamma": 2.0},
        {"weight": WEIGHT, "gamma": -0.5},
        {"ignore_index": 1, "reduction": "none"},
        {"reduction": "sum", "label_smoothing": 0.1},
    ],
    ids=str,
)
def test_cce_forward_is_its_function(settings):
    logits, target = batch()
    if settings.get("ignore_index") == 1:
        target[-1] = 0
    assert_close(
        ComplementCrossEntropyLoss(**settings)(logits, target), complement_cross_entropy(logits, target, **settings)
    )


@pytest.mark.parametrize(
    "settings",
    [{}, {"gamma": 0.5, "alpha": 0.25}, {"alpha": [0.1, 0.2, 0.3, 0.4]}, {"ignore_index": 1, "reduction": "none"}],
    ids=str,
)
def test_focal_forward_is_its_function(settings):
    logits, target = batch()
    if settings.get("ignore_index") == 1:
        target[-1] = 0
    assert_close(FocalLoss(**settings)(logits, target), focal_loss(logits, target, **settings))


def test_every_module_is_listed():
    assert {name for name in losses.__all__ if name.endswith("Loss")} == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_weight_positionally_or_by_keyword(name):
    logits, target = batch()
    module, before = getattr(losses, name), MODULES[name]
    value = module(*before, WEIGHT)(logits, target)
    assert_close(module(*before, weight=WEIGHT)(logits, target), value, rtol=0, atol=0)
    assert value != module(*before)(logits, target)


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_have_one_order(name):
    text = getattr(losses, name).__doc__
    places = [text.find(part) for part in (".. math::", "Args:", "Shape:", "Example:", ">>> ")]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("loss", "before"),
    [
        (functional.adjusted_cross_entropy, ()),
        (functional.complement_entropy, ()),
        (functional.complement_cross_entropy, ()),
        (functional.focal_loss, ()),
        (functional.logit_adjusted_cross_entropy, (COUNTS,)),
        (functional.balanced_softmax_loss, (COUNTS,)),
        (functional.ldam_loss, (COUNTS,)),
        (functional.vs_loss, (COUNTS,)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_weight_of_functions_positionally_or_by_keyword(loss, before):
    logits, target = batch()
    value = loss(logits, target, *before, WEIGHT)
    assert_close(loss(logits, target, *before, weight=WEIGHT), value, rtol=0, atol=0)
    assert value != loss(logits, target, *before)


def test_cce_replaces_cross_entropy():
    """Code that tests for the class, passes the weight first or reads the settings keeps working."""
    loss = ComplementCrossEntropyLoss(WEIGHT, ignore_index=3, reduction="sum", label_smoothing=0.1)
    assert isinstance(loss, nn.CrossEntropyLoss)
    assert loss.weight is WEIGHT
    assert (loss.ignore_index, loss.reduction, loss.label_smoothing, loss.gamma) == (3, "sum", 0.1, -1.0)
    logits, target = batch()
    target[-1] = 3
    plain = nn.CrossEntropyLoss(WEIGHT, ignore_index=3, reduction="sum", label_smoothing=0.1)
    loss.gamma = 0.0
    assert_close(loss(logits, target), plain(logits, target), rtol=0, atol=0)


def test_gamma_is_shown():
    assert repr(ComplementCrossEntropyLoss(gamma=-2.5)) == "ComplementCrossEntropyLoss(gamma=-2.5)"
    assert repr(FocalLoss(gamma=1.5)) == "FocalLoss(gamma=1.5, alpha=None)"
    assert "alpha=0.25" in repr(FocalLoss(alpha=0.25))


@pytest.mark.parametrize(
    ("module", "name"),
    [(ComplementCrossEntropyLoss(WEIGHT), "weight"), (FocalLoss(alpha=WEIGHT), "alpha"), (FocalLoss(alpha=2), "alpha")],
    ids=["cce", "focal per class", "focal"],
)
def test_class_factors_move_and_are_saved_with_the_module(module, name):
    module = copy.deepcopy(module)
    assert dict(module.named_buffers()).keys() == {name}
    assert not list(module.parameters())
    assert module.to(torch.float64).get_buffer(name).dtype == torch.float64
    logits, target = batch()
    assert module(logits.double(), target).dtype == torch.float64
    assert copy.deepcopy(module).to("meta").get_buffer(name).is_meta
    saved = {key: value.clone() for key, value in module.state_dict().items()}
    assert saved.keys() == {name}
    module.get_buffer(name).zero_()
    module.load_state_dict(saved)
    assert_close(module.get_buffer(name), saved[name])


@pytest.mark.parametrize("module", [ComplementCrossEntropyLoss(), FocalLoss()], ids=["cce", "focal"])
def test_nothing_is_saved_where_there_is_nothing(module):
    assert not module.state_dict()
    module.load_state_dict({})


@pytest.mark.parametrize(
    "module",
    [ComplementCrossEntropyLoss(WEIGHT, gamma=-2.0, ignore_index=-7), FocalLoss(0.5, WEIGHT, reduction="sum")],
    ids=["cce", "focal"],
)
@pytest.mark.parametrize(
    "twin", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))], ids=["copy", "pickle"]
)
def test_copies_compute_the_same(module, twin):
    logits, target = batch()
    target[-1] = 2
    assert_close(twin(module)(logits, target), module(logits, target), rtol=0, atol=0)
    assert repr(twin(module)) == repr(module)


def test_modules_train_a_network():
    network = nn.Linear(3, K)
    images, target = torch.randn(32, 3), torch.randint(K, (32,))
    for criterion in (ComplementCrossEntropyLoss(), FocalLoss()):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        before = criterion(network(images), target).item()
        for _ in range(10):
            optimizer.zero_grad()
            criterion(network(images), target).backward()
            optimizer.step()
        assert criterion(network(images), target).item() < before


def run(code: str) -> None:
    """Run code in an interpreter that has imported nothing yet."""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_does_not_import_torch():
    run("import sys, evenhand; evenhand.__version__; dir(evenhand); assert 'torch' not in sys.modules")
    run("import sys; from evenhand import FocalLoss; assert 'torch' in sys.modules; FocalLoss()")


def test_the_package_names_what_it_holds():
    assert evenhand.__version__[0].isdigit()
    assert set(evenhand.__all__) <= set(dir(evenhand))
    assert {"ComplementCrossEntropyLoss", "FocalLoss"} <= set(dir(evenhand))
    with pytest.raises(AttributeError, match="ComplementLoss"):
        evenhand.ComplementLoss  # noqa: B018
