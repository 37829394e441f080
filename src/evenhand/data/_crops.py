"""Crop many images at once: each at its own place, flipped or not, black outside the image."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2 import functional as transforms

from evenhand.core.errors import EvenhandError
from evenhand.data.decode import BadImage
from evenhand.data.images import MemoryImages, StreamedImages


@dataclass(frozen=True, eq=False)
class Crops:
    """Square crops, (N,) each: the row of the image, the upper left corner in pixels, flipped or not."""

    rows: NDArray[np.int64]
    tops: NDArray[np.int64]
    """Negative: this many black lines above the image."""
    lefts: NDArray[np.int64]
    flips: NDArray[np.bool_]
    size: int
    """Height and width."""


def cut_in_memory(images: MemoryImages, crops: Crops, parts: list[slice], device: torch.device) -> Iterator[Tensor]:
    """Yield the crops of each part as uint8, (B, C, S, S), cropped on the device if the images are there."""
    pixels = images.on(device)
    known = (images.offsets[crops.rows], images.sizes[crops.rows], crops.tops, crops.lefts, crops.flips)
    decisions = [torch.from_numpy(values).to(pixels.device) for values in known]
    for part in parts:
        yield _cut(pixels, images.channels, crops.size, *(values[part] for values in decisions))


def _cut(
    pixels: Tensor,
    channels: int,
    size: int,
    offsets: Tensor,
    sizes: Tensor,
    tops: Tensor,
    lefts: Tensor,
    flips: Tensor,
) -> Tensor:
    """Crop squares from images that are concatenated in `pixels` (bytes,), each (H, W, C) and no smaller.

    One run of bytes is gathered for every line, all at once, and then the columns are ordered. That is faster than one
    index per pixel, padding and sliding windows, or a loop over the images, and takes a few times the memory of the
    result.
    """
    height, width = sizes[:, :1], sizes[:, 1:]
    steps = torch.arange(size, device=pixels.device)
    y = tops[:, None] + steps
    x = lefts[:, None] + torch.where(flips[:, None], steps.flip(0), steps)
    inside = ((y >= 0) & (y < height))[:, None, :, None] & ((x >= 0) & (x < width))[:, None, None, :]
    # Start of a run in its line, so that the run ends in the line.
    first = lefts[:, None].clamp(min=0).minimum(width - size)
    starts = offsets[:, None] + (y.clamp(min=0).minimum(height - 1) * width + first) * channels
    runs = pixels.unfold(0, size * channels, 1).index_select(0, starts.flatten())  # the unfolded view takes no memory
    lines = runs.view(-1, size, size, channels).permute(0, 3, 1, 2).contiguous()
    columns = (x - first).clamp(0, size - 1)[:, None, None, :].expand_as(lines)
    return lines.gather(3, columns).mul_(inside)


def cut_streamed(
    images: StreamedImages, crops: Crops, parts: list[slice], workers: int, *, pin_memory: bool
) -> Iterator[Tensor]:
    """Yield the crops of each part as uint8, (B, C, S, S), decoded by `workers` processes."""
    loader = DataLoader(
        _Decoded(images, crops),
        batch_sampler=(list(range(part.start, part.stop, part.step or 1)) for part in parts),
        num_workers=workers,
        collate_fn=_join,
        pin_memory=pin_memory,
        generator=torch.Generator(),  # otherwise the loader would draw from the global one
    )
    for pixels in loader:
        if isinstance(pixels, str):
            raise EvenhandError(pixels)
        yield pixels


@dataclass(frozen=True, eq=False)
class _Decoded(Dataset[Tensor | str]):
    """The crops, decoded one by one; for a file that became unreadable, its error message."""

    images: StreamedImages
    crops: Crops

    def __getitem__(self, index: int) -> Tensor | str:
        crops = self.crops
        try:
            image = self.images[crops.rows[index]]
        except BadImage as error:
            return str(error)
        pixels: Tensor = torch.from_numpy(image).permute(2, 0, 1)
        pixels = transforms.crop(pixels, int(crops.tops[index]), int(crops.lefts[index]), crops.size, crops.size)
        if crops.flips[index]:
            pixels = transforms.horizontal_flip(pixels)
        return pixels


def _join(items: list[Tensor | str]) -> Tensor | str:
    tensors = [item for item in items if isinstance(item, Tensor)]
    return torch.stack(tensors) if len(tensors) == len(items) else next(item for item in items if isinstance(item, str))
