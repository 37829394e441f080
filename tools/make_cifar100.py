"""Make cifar100.npz from CIFAR-100 as PNG files.

Usage:
    git clone --bare https://github.com/cyizhuo/CIFAR-100-dataset images.git
    python tools/make_cifar100.py images.git DATA/cifar100.npz

The repository is cyizhuo/CIFAR-100-dataset on GitHub: train/CLASS/NAME.png and test/CLASS/NAME.png. Labels are the fine
ones, in the alphabetical order of the official files. Images are sorted by class and file name: the order of the
official files is not known here, so a seed picks other images than it would from them.
"""

from pathlib import Path

from git_files import Examples, decode, list_files, read_files, run, stack, write_dataset

from evenhand.core.errors import EvenhandError
from evenhand.data.standard import CIFAR100


def read_split(repository: Path, split: str) -> Examples:
    """Return the images and labels of `train` or `test`."""
    files = list_files(repository, split, ".png")
    names = [path.split("/")[0] for path in files]
    unknown = sorted(set(names) - set(CIFAR100.class_names))
    if unknown:
        raise EvenhandError(f"{split}/{unknown[0]} of {repository} is no class of CIFAR-100.")
    labels = [CIFAR100.class_names.index(name) for name in names]
    return stack(map(decode, read_files(repository, list(files.values()))), labels, CIFAR100.shape)


def make(repository: Path, out: Path) -> None:
    """Read both splits and write the data set."""
    train, test = (read_split(repository, split) for split in ("train", "test"))
    write_dataset(out, CIFAR100, train, test, [100] * 100, CIFAR100.class_names)


if __name__ == "__main__":
    run(make, __doc__, "images")
