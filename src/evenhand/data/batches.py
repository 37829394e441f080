"""Batches for training and testing: an index into the images, and a few tensor operations on the device.

All random choices are made here, in the main process, from named seed streams: the order, the crop and the flip of
each image. So images in memory and streamed images give the same batches, with any number of workers.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, pairwise
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.core.errors import EvenhandError
from evenhand.core.seeds import stream
from evenhand.data._crops import Crops, cut_in_memory, cut_streamed
from evenhand.data.images import FeatureImages, Images, MemoryImages, StreamedImages
from evenhand.data.table import SampleTable

Batch: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Normalised images, float32 (B, C, S, S), or features (B, F); labels, int64 (B,); rows of the table, int64 (B,)."""

_logger = logging.getLogger("evenhand")


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How an image is prepared for the network: a square crop, normalised."""

    crop_size: int
    mean: tuple[float, ...]
    """Per channel, in units where 255 is 1."""
    std: tuple[float, ...]
    padding: int = 4
    """Width of the black border around training images; crops may reach into it."""
    flip: bool = True
    """Flip half of the training images horizontally, at random."""

    def __post_init__(self) -> None:
        if self.crop_size < 1 or self.padding < 0:
            raise ValueError(f"crop_size must be positive and padding not negative, got {self}")
        if len(self.mean) != len(self.std) or min(self.std) <= 0:
            raise ValueError(f"mean and std need one value per channel and std must be positive, got {self}")

    def normalise(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (B, C, S, S) to floats of mean 0 and deviation 1."""
        factor, shift = _factors(self.mean, self.std, pixels.device)
        return pixels.float().mul_(factor).sub_(shift)


@lru_cache(maxsize=16)
def _factors(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> Tensor:
    """Return factor and shift of the pixels, (2, C, 1, 1); cached, since a copy to a GPU synchronises."""
    scale = torch.tensor(std, dtype=torch.float64)
    pair = torch.stack([1 / (255 * scale), torch.tensor(mean, dtype=torch.float64) / scale])
    return pair.float().to(device)[:, :, None, None]


def make_preprocessing(
    table: SampleTable,
    images: Images,
    train_rows: NDArray[np.int64],
    *,
    flip: bool | None = None,
    padding: int | None = None,
    crop_size: int | None = None,
) -> Preprocessing:
    """Choose the preprocessing from the table's info and the training images.

    Args:
        table: the source; its info has the defaults.
        images: its images.
        train_rows: rows whose images give mean and standard deviation, unless the info sets [-1, 1].
        flip: flip half of the training images; None: as in the info, with a warning on the logger `evenhand` if class
            names suggest that a flip changes the class (left and right, numbers).
        padding: width of the black border around training images; None: 4 as in the paper, but at most an eighth of
            the crop, rounded up.
        crop_size: height and width of the network's input; None: as in the info, else the image size.

    Example:
        >>> import numpy as np
        >>> from evenhand.data.batches import make_preprocessing
        >>> from evenhand.data.images import open_images
        >>> from evenhand.data.table import ArrayPixels, SampleTable
        >>> pixels = ArrayPixels(np.array([0, 255], np.uint8).repeat(64).reshape(2, 8, 8, 1))
        >>> table = SampleTable("tiny", ("dark", "light"), np.array([0, 1]), np.array(["a", "b"]), pixels)
        >>> make_preprocessing(table, open_images(table), np.arange(2))
        Preprocessing(crop_size=8, mean=(0.5,), std=(0.5,), padding=1, flip=True)
    """
    info = table.info
    if crop_size is None:
        # The info's crop belongs to the info's image size.
        native = info.image_size in (None, images.image_size)
        crop_size = info.crop_size if native and info.crop_size is not None else images.image_size
    if not 1 <= crop_size <= images.image_size:
        raise EvenhandError(
            f"The crop size must be from 1 to the image size of {images.image_size}, got {crop_size}; "
            "choose a smaller crop or larger images."
        )
    if padding is None:
        padding = min(4, -(-crop_size // 8))
    if info.scaling == "symmetric":
        mean, std = (0.5,) * images.channels, (0.5,) * images.channels
    else:
        mean, std = images.statistics(train_rows)
        std = tuple(value if value > 0 else 1.0 for value in std)  # a constant channel has nothing to scale
    warning = flip_warning(table, flip)
    if warning:
        _logger.warning(warning)
    return Preprocessing(
        crop_size=crop_size, mean=mean, std=std, padding=padding, flip=info.flip if flip is None else flip
    )


class Batches:
    """Images, labels and rows in batches: shuffled and augmented for training, plain and in order for testing.

    Args:
        images: the images of a table.
        labels: (N,): the label of every row of the table.
        rows: the rows to iterate over, without those in `images.bad`.
        preprocessing: crop, normalisation and augmentation.
        batch_size: images per batch; the last of an epoch may be smaller. In training a last batch of a single image is
            joined to the one before it, because batch normalisation cannot train on one image.
        device: device of the batches. Images in memory are cropped there.
        workers: processes that decode streamed images.
        rank: index of this process. It gets every `world`-th image of every training batch, and every `world`-th test
            row, starting from its rank.
        world: number of processes; a last training batch that leaves one of them fewer than two images is
            joined to the one before it.

    Example:
        >>> import numpy as np
        >>> from evenhand.data.batches import Batches, Preprocessing
        >>> from evenhand.data.images import open_images
        >>> from evenhand.data.table import ArrayPixels, SampleTable
        >>> pixels = ArrayPixels(np.zeros((5, 8, 8, 1), np.uint8))
        >>> table = SampleTable("black", ("only",), np.zeros(5, np.int64), np.array(list("abcde")), pixels)
        >>> preprocessing = Preprocessing(crop_size=8, mean=(0.5,), std=(0.5,))
        >>> batches = Batches(open_images(table), table.labels, np.arange(5), preprocessing, batch_size=2)
        >>> [tuple(images.shape) for images, labels, rows in batches.train(seed=0, epoch=1)]
        [(2, 1, 8, 8), (3, 1, 8, 8)]
    """

    def __init__(
        self,
        images: Images,
        labels: NDArray[np.int64],
        rows: NDArray[np.int64],
        preprocessing: Preprocessing,
        batch_size: int = 128,
        *,
        device: torch.device | str = "cpu",
        workers: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        images.require_readable(rows)
        if len(labels) != len(images):
            raise ValueError(f"there are {len(images)} images and {len(labels)} labels")
        if batch_size < 1:
            raise EvenhandError(f"The batch size must be at least 1, got {batch_size}.")
        if preprocessing.crop_size > images.image_size or len(preprocessing.mean) != images.channels:
            raise ValueError(
                f"{preprocessing} does not fit images of size {images.image_size} x {images.channels} channels"
            )
        self.images = images
        self.labels = torch.from_numpy(np.array(labels, np.int64))
        self.rows = rows
        self.preprocessing = preprocessing
        self.batch_size = batch_size
        self.device = torch.device(device)
        self.workers = workers
        self.rank, self.world = rank, world

    def __len__(self) -> int:
        """Return the number of batches in an epoch of training."""
        return len(self._training_parts())

    def train(
        self,
        seed: int,
        epoch: int,
        order: NDArray[np.int64] | None = None,
        augment: Callable[[Tensor, int], Tensor] | None = None,
    ) -> Iterator[Batch]:
        """Yield every row once, in an order and with crops and flips that only depend on seed and epoch.

        Each image gets a black border, is cropped at random, and is flipped or not.

        Args:
            seed: of the run.
            epoch: of the run.
            order: positions in `rows` to use instead, as many as there are rows, the same in every process. A repeated
                row gets another crop and flip.
            augment: called with the pixels of a batch, uint8 (B, C, S, S), cropped and flipped, and with its number;
                returns other pixels, which are then normalised. Features have none.
        """
        draws = stream(seed, "augmentation", epoch).random((len(self.rows), 3))
        if order is None:
            order = stream(seed, "order", epoch).permutation(len(self.rows))
            draws = draws[order]
        elif len(order) != len(self.rows):
            raise ValueError(f"an epoch shows {len(self.rows)} rows, got an order of {len(order)}")
        rows = self.rows[order]
        places = self.images.sizes[rows] + 2 * self.preprocessing.padding - self.preprocessing.crop_size + 1
        corners = np.floor(draws[:, :2] * places).astype(np.int64) - self.preprocessing.padding
        flips = (draws[:, 2] < 0.5) & self.preprocessing.flip
        parts = [slice(part.start + self.rank, part.stop, self.world) for part in self._training_parts()]
        return self._iterate(rows, corners, flips, parts, augment)

    def test(self) -> Iterator[Batch]:
        """Yield every row once, in the given order, centre-cropped; with several processes, each row in one of them."""
        corners = (self.images.sizes[self.rows] - self.preprocessing.crop_size) // 2
        flips = np.zeros(len(self.rows), np.bool_)
        step, end = self.batch_size * self.world, len(self.rows)
        parts = [slice(start, min(start + step, end), self.world) for start in range(self.rank, end, step)]
        return self._iterate(self.rows, corners, flips, parts)

    def batch_sizes(self) -> list[int]:
        """Return the images in each training batch, over all processes."""
        return [part.stop - part.start for part in self._training_parts()]

    def _training_parts(self) -> list[slice]:
        starts = list(range(0, len(self.rows), self.batch_size))
        least = min(2 * self.world, self.batch_size)
        if len(starts) > 1 and len(self.rows) - starts[-1] < least:
            starts.pop()
        return [slice(start, stop) for start, stop in pairwise([*starts, len(self.rows)])]

    def _iterate(
        self,
        rows: NDArray[np.int64],
        corners: NDArray[np.int64],
        flips: NDArray[np.bool_],
        parts: list[slice],
        augment: Callable[[Tensor, int], Tensor] | None = None,
    ) -> Iterator[Batch]:
        numbers = torch.from_numpy(rows)
        labels, places = self.labels[numbers].to(self.device), numbers.to(self.device)
        if isinstance(self.images, FeatureImages):
            mirrored = torch.from_numpy(flips)
            for part in parts:
                yield self.images.take(numbers[part], mirrored[part]).to(self.device), labels[part], places[part]
            return
        crops = Crops(rows, corners[:, 0], corners[:, 1], flips, self.preprocessing.crop_size)
        if isinstance(self.images, MemoryImages):
            pixels = cut_in_memory(self.images, crops, parts, self.device)
        elif isinstance(self.images, StreamedImages):
            pixels = cut_streamed(self.images, crops, parts, self.workers, pin_memory=self.device.type == "cuda")
        else:
            raise TypeError(f"expected MemoryImages or StreamedImages, got {type(self.images).__name__}")
        arrived: Iterator[Tensor] = (each.to(self.device, non_blocking=True) for each in pixels)
        if augment is not None:
            arrived = map(augment, arrived, count())
        for part in parts:  # the pixels are not bound to a name, so that their memory is freed once they are normalised
            yield self.preprocessing.normalise(next(arrived)), labels[part], places[part]


_TWINS = (
    ("left", "right"),
    ("links", "rechts"),
    ("gauche", "droite"),
    ("izquierda", "derecha"),
    ("esquerda", "direita"),
    ("sinistra", "destra"),
    ("clockwise", "counterclockwise"),
    ("clockwise", "anticlockwise"),
    ("east", "west"),
)
_TWIN_LETTERS = (("b", "d"), ("p", "q"), ("l", "r"))
_NUMBER = re.compile(
    r"\d{1,3}|zero|one|two|three|four|five|six|seven|eight|nine"
    r"|.*(speed|limit|max|tempo|km|mph).*\d.*|.*\d+ ?(km|kmh|mph).*"
)


def flip_warning(table: SampleTable, flip: bool | None) -> str:
    """Return a warning if flipping the training images may change their class; empty otherwise.

    Args:
        table: the source, with its info and class names.
        flip: as in :func:`make_preprocessing`.

    Example:
        >>> from evenhand.data.batches import flip_warning
        >>> from evenhand.data.sources import load_source
        >>> flip_warning(load_source("digits"), None)
        ''
        >>> flip_warning(load_source("digits"), True)[:75]
        'Training images are flipped as requested, but a flipped image of digits may'
    """
    twins = mirror_twins(table.class_names)
    named = f" ({', '.join(twins[:6])}{', ...' * (len(twins) > 6)})" if twins else ""
    if flip and not table.info.flip:
        return (
            f"Training images are flipped as requested, but a flipped image of {table.name} may show another class or "
            f"none{named}; --no-flip turns this off."
        )
    if flip is None and table.info.flip and twins:
        return (
            f"Training images are flipped, which may turn one class into another here{named}; --no-flip turns this off."
        )
    return ""


def mirror_twins(class_names: Sequence[str]) -> list[str]:
    """Return the classes that a horizontal flip may turn into others or into nonsense: left and right, b and d, 35.

    Example:
        >>> from evenhand.data.batches import mirror_twins
        >>> mirror_twins(["leftturn", "stop", "rightturn", "35"])
        ['leftturn', 'rightturn', '35']
        >>> mirror_twins(["cat", "dog", "left over"])
        []
    """
    plain = [" ".join(re.findall(r"[^\W_]+", name.lower())) for name in class_names]
    known = set(plain)
    swaps = [(a, b) for pair in _TWINS for a, b in (pair, pair[::-1])]
    swaps += [(rf"\b{a}\b", b) for pair in _TWIN_LETTERS for a, b in (pair, pair[::-1])]

    def suspicious(name: str) -> bool:
        mirrored = {re.sub(old, new, name) for old, new in swaps} - {name}
        return bool(mirrored & known) or _NUMBER.fullmatch(name) is not None

    return [name for name, text in zip(class_names, plain, strict=True) if suspicious(text)]
