"""The shortcuts of the residual networks for small images, beside the formula that they stand for."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from evenhand.models.cifar import _Block


def sliced(block: _Block, maps: Tensor) -> Tensor:
    """Option A of He et al. (2016) as it is written: every other position, and zeros for the new channels."""
    change = block.norm2(block.conv2(F.relu(block.norm1(block.conv1(maps)))))
    before = block.missing // 2
    skipped = maps[:, :, :: block.stride, :: block.stride]
    return F.relu(F.pad(skipped, (0, 0, 0, 0, before, block.missing - before)) + change)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 15, 32])
def test_a_block_that_halves_skips_every_other_position_in_value_and_gradient(size: int) -> None:
    torch.manual_seed(size)
    block = _Block(4, 8, 2).double()
    maps = torch.randn(3, 4, size, size, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 8, (size + 1) // 2, (size + 1) // 2, dtype=torch.float64)
    found, expected = block(maps), sliced(block, maps)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(
        torch.autograd.grad((found * weights).sum(), [maps, block.conv1.weight]),
        torch.autograd.grad((expected * weights).sum(), [maps, block.conv1.weight]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_the_gradient_of_a_shortcut_keeps_channels_last() -> None:
    """Mixed layouts made the ReLU before it a tenth of a training step on a processor."""
    block = _Block(4, 8, 2).to(memory_format=torch.channels_last)
    leaf = torch.randn(2, 4, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    maps = F.relu(leaf)
    layouts = []
    maps.register_hook(lambda gradient: layouts.append(gradient.is_contiguous(memory_format=torch.channels_last)))
    block(maps).sum().backward()
    assert layouts == [True]
