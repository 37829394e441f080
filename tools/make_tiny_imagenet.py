"""Make tiny-imagenet.npz from Tiny ImageNet as JPEG files.

Usage:
    git clone --bare https://github.com/seshuad/IMagenet images.git
    python tools/make_tiny_imagenet.py images.git DATA/tiny-imagenet.npz

The repository is seshuad/IMagenet on GitHub, with the official folder tiny-imagenet-200 in it. Classes, their names and
the order of images are those that evenhand gives the folder itself: sorted by WordNet number and file name, and the
labelled validation images are the test split. Pixels are decoded once, so a run begins without 110,000 small files.
"""

from pathlib import Path

from git_files import Examples, decode, list_files, read_files, run, stack, write_dataset

from evenhand.core.errors import EvenhandError
from evenhand.data._tiny_imagenet import name_classes
from evenhand.data.standard import TINY_IMAGENET

FOLDER = "tiny-imagenet-200"


def read_text(repository: Path, name: str) -> str:
    """Return a text file of the folder."""
    folder, _, file = f"{FOLDER}/{name}".rpartition("/")
    found = list_files(repository, folder, file)
    (content,) = read_files(repository, [found[file]])
    return content.decode("utf-8")


def read_train(repository: Path) -> tuple[Examples, list[str]]:
    """Return the training images and labels, and the WordNet numbers of the classes."""
    files = list_files(repository, f"{FOLDER}/train", ".JPEG")
    wnids = sorted({path.split("/")[0] for path in files})
    labels = [wnids.index(path.split("/")[0]) for path in files]
    return stack(map(decode, read_files(repository, list(files.values()))), labels, TINY_IMAGENET.shape), wnids


def read_test(repository: Path, wnids: list[str]) -> Examples:
    """Return the validation images, and labels in the order of `wnids`."""
    files = list_files(repository, f"{FOLDER}/val/images", ".JPEG")
    lines = [line.split("\t") for line in read_text(repository, "val/val_annotations.txt").splitlines()]
    classes = {line[0]: line[1] for line in lines}
    unknown = [name for name in files if classes.get(name) not in wnids]
    if unknown:
        raise EvenhandError(f"val_annotations.txt of {repository} has no known class for {unknown[0]}.")
    labels = [wnids.index(classes[name]) for name in files]
    return stack(map(decode, read_files(repository, list(files.values()))), labels, TINY_IMAGENET.shape)


def make(repository: Path, out: Path) -> None:
    """Read both splits and write the data set."""
    train, wnids = read_train(repository)
    test = read_test(repository, wnids)
    names = name_classes(read_text(repository, "words.txt"), wnids)
    write_dataset(out, TINY_IMAGENET, train, test, [50] * 200, names)


if __name__ == "__main__":
    run(make, __doc__, "images")
