"""Each network takes a step on small images: every weight is reached, and moves."""

import pytest
import torch
import torch.nn.functional as F
from torchvision.ops import StochasticDepth

from evenhand.models.build import build_model

from .networks import CIFAR, NINE, each_network, images

TARGET = torch.tensor([0, 2])


def backward(name: str, size: int) -> torch.nn.Module:
    torch.manual_seed(0)
    model = build_model(name, num_classes=3, image_size=size)
    for module in model.modules():
        if isinstance(module, StochasticDepth):
            module.eval()  # it may leave a block out for both images, which then has nothing to learn
    loss = F.cross_entropy(model(images(size)), TARGET)
    assert loss.isfinite()
    loss.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
    return model


@each_network
def test_one_step_on_32_px(name):
    model = backward(name, 32)
    before = {key: parameter.detach().clone() for key, parameter in model.named_parameters()}
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    for key, parameter in model.named_parameters():
        assert not torch.equal(parameter, before[key]), key


@pytest.mark.parametrize("name", CIFAR + NINE)
@pytest.mark.slow
def test_forward_and_backward_on_64_px(name):
    backward(name, 64)
