"""The residual networks of He et al. (2016, section 4.2) for small images, common in the long-tail literature."""

import re
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evenhand.core.errors import EvenhandError
from evenhand.models.classifier import Classifier, Request
from evenhand.models.heads import CosineHead
from evenhand.models.weights import fill, read_state

BLOCKS_AND_WIDTH = {"resnet8": (1, 16), "resnet32": (5, 16), "resnet32x4": (5, 64)}
"""Blocks in each of the three stages, and channels of the first stage. Two networks are called ResNet-32 in papers:
width 16 with 0.46 million weights, and width 64 with 7.4 million, here `resnet32x4`."""

_PUBLISHED = {
    r"^backbone\.": "",
    r"^(linear|classifier|fc)\.": "head.",
    r"^conv1\.": "conv.",
    r"^bn1\.": "norm.",
    r"^layer1\.": "stages.0.",
    r"^layer2\.": "stages.1.",
    r"^layer3\.": "stages.2.",
    r"\.bn([12])\.": r".norm\1.",
}
"""Names in published files of these networks, as in LDAM-DRW and imbalanced-DL, and ours."""


def build_cifar(request: Request) -> Classifier:
    """Build one of `BLOCKS_AND_WIDTH`; they have only the small stem, and no ImageNet weights.

    Example:
        >>> from evenhand.models.cifar import build_cifar
        >>> from evenhand.models.classifier import Request
        >>> request = Request("resnet32", num_classes=5, channels=1, image_size=28, stem="auto", pretrained=False)
        >>> build_cifar(request).num_features
        64
    """
    if request.pretrained is True:
        raise EvenhandError(f"There are no pretrained weights for {request.name}; choose a network of torchvision.")
    if request.stem == "imagenet":
        raise EvenhandError(f"{request.name} has no imagenet stem: leave the stem at auto, or choose small.")
    blocks, width = BLOCKS_AND_WIDTH[request.name]
    network = CifarResNet(blocks, width, channels=request.channels, num_classes=request.num_classes)
    if request.pretrained:
        file = Path(request.pretrained)
        fill(network, rename_published(read_state(file)), fresh="head.", what=f"The weights in {file}")
    return Classifier(network, name=request.name, stem="small", num_features=network.head.in_features)


def rename_published(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a published ResNet for CIFAR by the names of `CifarResNet`; other names stay.

    Example:
        >>> import torch
        >>> from evenhand.models.cifar import rename_published
        >>> names = ["bn1.weight", "layer3.4.bn2.bias", "linear.weight", "stages.0.0.conv1.weight"]
        >>> list(rename_published({name: torch.zeros(1) for name in names}))
        ['norm.weight', 'stages.2.4.norm2.bias', 'head.weight', 'stages.0.0.conv1.weight']
    """
    renamed = {}
    for key, value in state.items():
        for theirs, ours in _PUBLISHED.items():
            key = re.sub(theirs, ours, key)
        renamed[key] = value
    return renamed


def fill_head(model: Classifier, file: Path) -> None:
    """Put the last layer of a published file into one of `BLOCKS_AND_WIDTH`; a file without a bias has a bias of 0.

    A normalised layer, (F, K) in LDAM-DRW, goes into a cosine head only.

    Args:
        model: the network, whose classes are in the order of the file's.
        file: a state dict, as :func:`evenhand.models.weights.read_state` takes it.

    Raises:
        EvenhandError: the file has no last layer, or one for another number of classes or of another kind.
    """
    head = model.get_submodule("network.head")
    state = {key: value for key, value in rename_published(read_state(file)).items() if key.startswith("head.")}
    state = {key.removeprefix("head."): value for key, value in state.items()}
    weight, own = state.get("weight"), head.get_parameter("weight")
    if isinstance(head, CosineHead) and weight is not None and weight.shape == own.shape[::-1]:
        state["weight"] = weight.T
    elif weight is None or weight.shape != own.shape:
        seen = "no last layer" if weight is None else f"a last layer of {' x '.join(map(str, weight.shape))}"
        raise EvenhandError(
            f"{file} has {seen}, but this run needs one of {' x '.join(map(str, own.shape))} (classes x features); set "
            "start.load=body."
        )
    if isinstance(head, nn.Linear):
        state.setdefault("bias", torch.zeros(len(own)))
    fill(head, state, fresh="scale", what=f"The weights of the last layer in {file}")


class CifarResNet(nn.Module):
    """Three stages of basic blocks with parameter-free shortcuts; a `Network` without any linear layer but the last.

    A stage has twice the channels of the one before it and half its height and width.

    Args:
        blocks: blocks in each stage; 6 * blocks + 2 layers in all.
        width: channels of the first stage.
        channels: C of the images.
        num_classes: K.

    Example:
        >>> import torch
        >>> from evenhand.models.cifar import CifarResNet
        >>> network = CifarResNet(blocks=5, width=16, channels=3, num_classes=10)
        >>> network(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
        >>> sum(parameter.numel() for parameter in network.parameters())
        464154
    """

    def __init__(self, blocks: int, width: int, *, channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv = _convolution(channels, width)
        self.norm = nn.BatchNorm2d(width)
        self.stages = nn.Sequential(
            _stage(blocks, width, width, stride=1),
            _stage(blocks, width, 2 * width, stride=2),
            _stage(blocks, 2 * width, 4 * width, stride=2),
        )
        self.head = nn.Linear(4 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K) of images (N, C, H, W)."""
        return self.forward_head(self.forward_features(images))

    def forward_features(self, images: Tensor) -> Tensor:
        """Return features (N, F) of images (N, C, H, W)."""
        maps: Tensor = self.stages(F.relu(self.norm(self.conv(images))))
        return maps.mean(dim=(2, 3))

    def forward_head(self, features: Tensor, *, pre_logits: bool = False) -> Tensor:
        """Return logits (N, K), or with `pre_logits` the features as they came."""
        return features if pre_logits else self.head(features)


class _Block(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(channels_in, channels, stride)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = _convolution(channels, channels)
        self.norm2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.missing = channels - channels_in

    def forward(self, maps: Tensor) -> Tensor:
        change = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(maps)))))
        if self.missing:
            # Option A of the paper: skip every other position, and fill the new channels with zeros on both sides. A
            # pool of one pixel is like a strided slice, but its gradient keeps channels last.
            before = self.missing // 2
            maps = F.pad(F.avg_pool2d(maps, 1, self.stride), (0, 0, 0, 0, before, self.missing - before))
        return F.relu(maps + change)


def _stage(blocks: int, channels_in: int, channels: int, *, stride: int) -> nn.Sequential:
    first = _Block(channels_in, channels, stride)
    return nn.Sequential(first, *(_Block(channels, channels, 1) for _ in range(blocks - 1)))


def _convolution(channels_in: int, channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels, kernel_size=3, stride=stride, padding=1, bias=False)
