"""Each network learns sixteen photographs by heart: the proof that all of it is wired to learn."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_sample_images
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from evenhand.models.build import build_model
from evenhand.models.classifier import Classifier

from .networks import CIFAR, NINE

K = 4
MOST_STEPS = 120


def photographs() -> Tensor:
    """Cut two photographs, shrunk to a quarter, into squares, (16, 3, 32, 32)."""
    squares = []
    for photo in load_sample_images().images:
        whole = torch.from_numpy(np.array(photo)).permute(2, 0, 1)[None].float()
        small = F.interpolate(whole, scale_factor=0.25, mode="area")[0]
        grid = small.unfold(1, 32, 32).unfold(2, 32, 32).permute(1, 2, 0, 3, 4).flatten(0, 1)
        squares.append(grid[-8:])  # the upper ones show sky, one like the other
    images = torch.cat(squares)
    return (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True)


def optimizer(model: nn.Module, name: str) -> torch.optim.Optimizer:
    if name == "efficientnet_b7":  # AdamW does not get its 55 blocks going in so few steps
        return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=1e-4 if name == "squeezenet" else 3e-4)


def train_mode(model: Classifier) -> None:
    """Set the network to training, but for the layers meant to hinder learning by heart.

    SqueezeNet keeps its dropout: a ReLU follows its last layer, and without some shaking a class whose logit is 0 for
    every image stays so.
    """
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout | StochasticDepth) and model.name != "squeezenet":
            module.eval()


@torch.no_grad()
def accuracy(model: Classifier, images: Tensor, target: Tensor) -> float:
    """Return the accuracy in evaluation mode, with the running averages a longer training would have come to."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    train_mode(model)
    model(images)
    for norm in norms:
        norm.momentum = 0.1
    return (model.eval()(images).argmax(1) == target).double().mean().item()


@pytest.mark.slow
@pytest.mark.parametrize("name", CIFAR + NINE)
def test_sixteen_photographs_are_learned_by_heart(name):
    torch.manual_seed(0)
    images = photographs().contiguous(memory_format=torch.channels_last)
    target = torch.arange(16) % K  # has nothing to do with what they show
    model = build_model(name, num_classes=K).to(memory_format=torch.channels_last)
    steps = optimizer(model, name)
    reached = []
    for _ in range(MOST_STEPS):
        train_mode(model)
        loss = F.cross_entropy(model(images), target)
        steps.zero_grad()
        loss.backward()
        steps.step()
        if loss < 0.2:
            reached.append(accuracy(model, images, target))
            if reached[-1] == 1:
                return
    pytest.fail(f"{name} reached {reached or 'no loss under 0.2'} in {MOST_STEPS} steps, the last loss was {loss}")
