"""One step of each objective beside the same step written out by hand, to the last bit."""

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from evenhand.losses.functional import complement_cross_entropy, complement_entropy, focal_loss
from evenhand.objectives import build_objective
from evenhand.objectives.part import PARTS

K = 4
OPTIONS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": False}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, K))


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(10, 1, 6, 6, generator=generator), torch.randint(K, (10,), generator=generator)) for _ in range(3)
    ]


def backward(loss: Tensor, *, retain_graph: bool = False) -> None:
    loss.backward(retain_graph=retain_graph)


def trained(spec: str) -> tuple[nn.Module, list[Tensor]]:
    """The network after three batches under an objective, and the losses it returned."""
    model, objective = network(), build_objective(spec, counts=[10] * K)
    optimizers = [SGD(model.parameters(), **OPTIONS) for _ in range(objective.num_optimizers)]
    losses = [objective.step(model, images, labels, optimizers, backward) for images, labels in batches()]
    return model, losses


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for (name, left), right in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(left, right), name


def by_hand(loss_of: Callable[[Tensor, Tensor], Tensor]) -> tuple[nn.Module, list[Tensor]]:
    """Algorithm 2: forward, backward, step."""
    model = network()
    optimizer = SGD(model.parameters(), **OPTIONS)
    losses = []
    for images, labels in batches():
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return model, losses


def alpha_focal(logits: Tensor, labels: Tensor) -> Tensor:
    """Written from the definition: alpha is a plain factor."""
    p = logits.softmax(1).gather(1, labels[:, None])[:, 0]
    return (-0.25 * (1 - p) ** 2 * p.log()).mean()


@pytest.mark.parametrize(
    ("spec", "loss"),
    [
        ("ce", F.cross_entropy),
        ("erm", F.cross_entropy),
        ("focal", lambda logits, labels: focal_loss(logits, labels, gamma=2, alpha=None)),
        ("focal:gamma=0.5", lambda logits, labels: focal_loss(logits, labels, gamma=0.5)),
        ("focal:gamma=2:alpha=0.25", lambda logits, labels: focal_loss(logits, labels, gamma=2, alpha=0.25)),
        ("cce", lambda logits, labels: complement_cross_entropy(logits, labels, gamma=-1)),
        ("cce:gamma=-2", lambda logits, labels: complement_cross_entropy(logits, labels, gamma=-2)),
        ("cce:gamma=released", lambda logits, labels: complement_cross_entropy(logits, labels, gamma=(K - 1) / K)),
    ],
)
def test_single_loss_is_the_usual_step(spec: str, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    (model, losses), (expected, expected_losses) = trained(spec), by_hand(loss)
    assert_same(model, expected)
    assert [value.item() for value in losses] == [value.item() for value in expected_losses]
    assert not any(value.requires_grad for value in losses)


def test_names_mean_what_they_say() -> None:
    assert_same(trained("ce")[0], trained("erm")[0])
    assert_same(trained("focal")[0], trained("focal:gamma=2")[0])
    assert_same(trained("cce")[0], trained("cce:gamma=-1")[0])
    assert_same(trained("cce:gamma=released")[0], trained("cce:gamma=0.75")[0])
    logits, labels = torch.randn(8, K, generator=torch.Generator().manual_seed(2)), torch.arange(8) % K
    torch.testing.assert_close(focal_loss(logits, labels, gamma=2, alpha=0.25), alpha_focal(logits, labels))


def test_cot_takes_its_second_step_at_the_new_weights() -> None:
    """Algorithm 1 as COT's authors run it: two forwards, two backwards, two optimizers."""
    model = network()
    first, second = SGD(model.parameters(), **OPTIONS), SGD(model.parameters(), **OPTIONS)
    losses = []
    for images, labels in batches():
        loss = F.cross_entropy(model(images), labels)
        first.zero_grad()
        loss.backward()
        first.step()
        complement = -complement_entropy(model(images), labels) / (K - 1)
        second.zero_grad()
        complement.backward()
        second.step()
        losses.append(loss.item())
    trained_model, trained_losses = trained("cot")
    for left, right in zip(trained_model.state_dict().values(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-7)  # dividing by K - 1 rounds elsewhere
    assert [value.item() for value in trained_losses] == pytest.approx(losses, rel=1e-5)

    exact = network()
    first, second = SGD(exact.parameters(), **OPTIONS), SGD(exact.parameters(), **OPTIONS)
    for images, labels in batches():
        for optimizer, loss_of in (
            (first, F.cross_entropy),
            (second, lambda logits, labels: -complement_entropy(logits, labels, balanced=True)),
        ):
            optimizer.zero_grad()
            loss_of(exact(images), labels).backward()
            optimizer.step()
    assert_same(trained_model, exact)


def test_cot_with_one_forward_takes_both_gradients_at_the_same_weights() -> None:
    model = network()
    weights = list(model.parameters())
    buffers: list[list[Tensor | None]] = [[None] * len(weights), [None] * len(weights)]
    for images, labels in batches():
        logits = model(images)
        losses = (F.cross_entropy(logits, labels), -complement_entropy(logits, labels, balanced=True))
        gradients = [torch.autograd.grad(loss, weights, retain_graph=True) for loss in losses]
        for which, gradient in enumerate(gradients):
            _sgd_by_hand(weights, gradient, buffers[which])
    trained_model, _ = trained("cot:forwards=1")
    assert_same(trained_model, model)


def _sgd_by_hand(weights: Sequence[Tensor], gradients: Sequence[Tensor], buffers: list[Tensor | None]) -> None:
    """One step of SGD with momentum; weight decay sees the weights as they are now."""
    with torch.no_grad():
        for i, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            decayed = gradient.add(weight, alpha=5e-4)
            before = buffers[i]
            buffers[i] = buffer = decayed.clone() if before is None else before.mul_(0.9).add_(decayed)
            weight.add_(buffer, alpha=-0.1)


def test_the_two_forms_of_cot_differ() -> None:
    two, one, plain = (trained(spec)[0].state_dict()["4.weight"] for spec in ("cot", "cot:forwards=1", "ce"))
    assert not torch.allclose(two, one, atol=1e-6)
    assert not torch.allclose(two, plain, atol=1e-6)


@pytest.mark.parametrize(("spec", "forwards"), [("ce", 1), ("cce", 1), ("focal", 1), ("cot:forwards=1", 1), ("cot", 2)])
def test_batch_normalisation_sees_every_forward(spec: str, forwards: int) -> None:
    model, _ = trained(spec)
    assert model.state_dict()["1.num_batches_tracked"] == 3 * forwards


def test_cot_gets_batch_statistics_of_both_forwards() -> None:
    model = network()
    frozen = copy.deepcopy(model)
    objective = build_objective("cot", counts=[10] * K)
    optimizers = [SGD(model.parameters(), lr=1e-30) for _ in range(2)]  # the weights stay: both see the same statistics
    images, labels = batches()[0]
    objective.step(model, images, labels, optimizers, backward)
    frozen(images)
    frozen(images)
    assert torch.equal(model.state_dict()["1.running_mean"], frozen.state_dict()["1.running_mean"])


def test_frozen_weights_stay() -> None:
    for spec in ("cce", "cot", "cot:forwards=1"):
        model, objective = network(), build_objective(spec, counts=[10] * K)
        first = model.get_parameter("0.weight").requires_grad_(False)
        before = first.clone()
        optimizers = [SGD(model.parameters(), **OPTIONS) for _ in range(objective.num_optimizers)]
        for images, labels in batches():
            objective.step(model, images, labels, optimizers, backward)
        assert torch.equal(first, before), spec


def test_how_many_optimizers_and_devices() -> None:
    built = {spec: build_objective(spec, counts=[10] * K) for spec in (*PARTS, "cot:forwards=1")}
    assert [spec for spec, objective in built.items() if objective.num_optimizers == 2] == ["cot", "cot:forwards=1"]
    assert [spec for spec, objective in built.items() if not objective.many_devices] == ["cot:forwards=1"]
