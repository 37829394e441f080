"""The networks under test, and the info about them that others have published."""

import pytest
import torch
from torch import nn

ORIGINALS = {
    "resnet34": "resnet34",
    "resnet50": "resnet50",
    "resnet101": "resnet101",
    "squeezenet": "squeezenet1_1",
    "resnext50": "resnext50_32x4d",
    "densenet121": "densenet121",
    "efficientnet_b0": "efficientnet_b0",
    "efficientnet_b1": "efficientnet_b1",
    "efficientnet_b7": "efficientnet_b7",
}
"""The paper's nine networks and torchvision's names for them."""

NINE = tuple(ORIGINALS)
CIFAR = ("resnet8", "resnet32", "resnet32x4")
FAMILIES = ("resnet8", "resnet34", "squeezenet", "densenet121", "efficientnet_b0")
"""The quickest network of each kind."""
LARGE = ("resnet32x4", "resnet101", "efficientnet_b1", "efficientnet_b7")
"""Wider or deeper than another one here, of the same blocks."""
each_network = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in CIFAR + NINE]
)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def images(size: int = 32, *, number: int = 2, channels: int = 3) -> torch.Tensor:
    return torch.randn(number, channels, size, size, generator=torch.Generator().manual_seed(size))


def convolutions(model: nn.Module) -> list[nn.Conv2d]:
    return [module for module in model.modules() if isinstance(module, nn.Conv2d)]


def last_layer(model: nn.Module) -> nn.Module:
    """Return the layer that makes logits: in every network the last one with a kernel."""
    return [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)][-1]
