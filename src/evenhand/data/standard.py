"""Known data sets of images of one size, and the check that a file is one of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.data._arrays import Arrays, array_table, read_npz
from evenhand.data.table import DatasetInfo, SampleTable, Split


@dataclass(frozen=True)
class Standard:
    """A data set whose images all have one shape."""

    name: str
    title: str
    class_names: tuple[str, ...]
    shape: tuple[int, int, int]
    """(H, W, C)."""
    train_counts: tuple[int, ...]
    """(K,): training images of each class."""
    test: int
    """Number of test images."""
    info: DatasetInfo = field(default_factory=DatasetInfo)

    @property
    def sizes(self) -> dict[Split, int]:
        """Number of images per split."""
        return {"train": sum(self.train_counts), "test": self.test}


_CIFAR100_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

FASHION_MNIST = Standard(
    "fashion-mnist",
    "Fashion-MNIST",
    ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    (28, 28, 1),
    (6000,) * 10,
    10_000,
)
CIFAR10 = Standard(
    "cifar10",
    "CIFAR-10",
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    (32, 32, 3),
    (5000,) * 10,
    10_000,
)
CIFAR100 = Standard(
    "cifar100",
    "CIFAR-100",
    tuple(_CIFAR100_NAMES.split()),
    (32, 32, 3),
    (500,) * 100,
    10_000,
)
SVHN = Standard(
    "svhn",
    "SVHN",
    tuple("0123456789"),
    (32, 32, 3),
    (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
    26_032,
    DatasetInfo(flip=False, scaling="symmetric"),
)
TINY_IMAGENET = Standard(
    "tiny-imagenet",
    "Tiny ImageNet",
    tuple(map(str, range(200))),
    (64, 64, 3),
    (500,) * 200,
    10_000,
    DatasetInfo(image_size=64, crop_size=56),
)
STANDARD = {each.name: each for each in (FASHION_MNIST, CIFAR10, CIFAR100, SVHN, TINY_IMAGENET)}


def standard_table(standard: Standard, arrays: Arrays, where: Path, *, whole: bool) -> SampleTable:
    """Make the table of a known data set, after a check of the arrays.

    Args:
        standard: the set.
        arrays: its images and labels.
        where: the file or folder, for messages.
        whole: require the complete set; otherwise a subset is accepted, with a note.
    """
    counts = np.bincount(arrays.labels_of("train"), minlength=len(standard.class_names))
    complete = dict(arrays.sizes) == standard.sizes
    fits = (
        arrays.images.shape[1:] == standard.shape
        and arrays.sizes.keys() == standard.sizes.keys()
        and all(0 < size <= standard.sizes[split] for split, size in arrays.sizes.items())
        and arrays.labels.max() < len(standard.class_names)
        and (complete or not whole)
        and (not complete or tuple(counts) == standard.train_counts)
    )
    if not fits:
        raise EvenhandError(
            f"{where} is not {standard.name}: it has {_described(arrays.sizes)} images of "
            f"{'x'.join(map(str, arrays.images.shape[1:]))} in {int(arrays.labels.max()) + 1} classes, not "
            f"{_described(standard.sizes)} of {'x'.join(map(str, standard.shape))} in {len(standard.class_names)} with "
            "the known counts; move it away."
        )
    notes = [] if complete else [part_note(standard, arrays.sizes)]
    names = arrays.class_names if arrays.class_names and standard is TINY_IMAGENET else standard.class_names
    return array_table(standard.name, arrays, names, info=standard.info, notes=notes)


def from_npz(standard: Standard, root: Path) -> SampleTable | None:
    """Return a known data set from `NAME.npz` in the data root; None if there is no such file."""
    path = root / f"{standard.name}.npz"
    return standard_table(standard, read_npz(path), path, whole=True) if path.is_file() else None


def part_note(standard: Standard, sizes: Mapping[Split, int]) -> str:
    """Return a note about an incomplete data set.

    Example:
        >>> from evenhand.data.standard import SVHN, part_note
        >>> part_note(SVHN, {"train": 600, "test": 200})
        'This is a subset of SVHN: 600 of 73,257 training images and 200 of 26,032 test images.'
    """
    train, test = (f"{sizes[split]:,} of {standard.sizes[split]:,}" for split in ("train", "test"))
    return f"This is a subset of {standard.title}: {train} training images and {test} test images."


def _described(sizes: Mapping[Split, int]) -> str:
    return " and ".join(f"{size:,} {split}" for split, size in sizes.items())
