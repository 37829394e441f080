"""Read images out of a git repository, and write them as a data set that evenhand reads by name."""

import argparse
import io
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.core.files import check_target, replacing
from evenhand.data.standard import Standard

Examples = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images (N, H, W, 3) and labels (N,)."""


def list_files(repository: Path, folder: str, suffix: str) -> dict[str, str]:
    """Return the files of the last commit directly in a folder or below, sorted by path.

    Args:
        repository: a git directory, bare or not, or the checkout that it belongs to.
        folder: path inside the repository.
        suffix: how the names of the wanted files end.

    Returns:
        The id of each file's content by its path below the folder.
    """
    command = ["git", "-C", str(repository), "ls-tree", "-r", "-z", "--full-tree", "HEAD", f"{folder}/"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise EvenhandError(f"Cannot read {repository} with git: {listed.stderr.strip()}; clone the repository again.")
    files = {}
    for line in filter(None, listed.stdout.split("\0")):
        about, path = line.split("\t", 1)
        if path.endswith(suffix):
            files[path.removeprefix(f"{folder}/")] = about.split()[2]
    if not files:
        raise EvenhandError(f"{repository} has no {suffix} files in {folder}; give the repository that has them.")
    return dict(sorted(files.items()))


def read_files(repository: Path, ids: Sequence[str]) -> Iterator[bytes]:
    """Yield the contents with these ids, one at a time and in this order; nothing is written to disk."""
    with tempfile.TemporaryFile() as wanted:  # a pipe could fill up while git waits for its answers to be read
        wanted.write("".join(f"{each}\n" for each in ids).encode())
        wanted.seek(0)
        command = ["git", "-C", str(repository), "cat-file", "--batch"]
        with subprocess.Popen(command, stdin=wanted, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for each in ids:
                header = process.stdout.readline().split()
                if len(header) != 3:
                    raise EvenhandError(f"{repository} lacks the content of a file ({each}); clone it again.")
                content = process.stdout.read(int(header[2]) + 1)
                yield content[:-1]


def decode(content: bytes) -> NDArray[np.uint8]:
    """Return the pixels of an image file, (H, W, 3)."""
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


def stack(images: Iterable[NDArray[np.uint8]], labels: Sequence[int], shape: tuple[int, int, int]) -> Examples:
    """Collect images of one shape, as many as there are labels."""
    pixels = np.empty((len(labels), *shape), np.uint8)
    for place, image in enumerate(images):
        if image.shape != shape:
            raise EvenhandError(f"Image {place} is {image.shape}, not {shape}; this is another data set.")
        pixels[place] = image
    return pixels, np.array(labels, np.int64)


def check_counts(what: str, labels: NDArray[np.int64], expected: Sequence[int]) -> None:
    """Refuse labels that do not have exactly the expected number of images per class."""
    counts = np.bincount(labels, minlength=len(expected)).tolist()
    if counts != list(expected):
        wrong = [k for k in range(len(counts)) if k >= len(expected) or counts[k] != expected[k]]
        raise EvenhandError(
            f"{what}: {sum(counts):,} images, not {sum(expected):,}; class {wrong[0]} has {counts[wrong[0]]}, not "
            f"{expected[wrong[0]] if wrong[0] < len(expected) else 0}, and {len(wrong) - 1} more classes differ."
        )


def write_dataset(
    out: Path, standard: Standard, train: Examples, test: Examples, test_counts: Sequence[int], names: Sequence[str]
) -> None:
    """Check that this is the whole data set, and write it uncompressed, which loads fastest."""
    check_counts(f"Training images of {standard.title}", train[1], standard.train_counts)
    check_counts(f"Test images of {standard.title}", test[1], test_counts)
    with replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            train_images=train[0],
            train_labels=train[1],
            test_images=test[0],
            test_labels=test[1],
            class_names=np.array(names),
        )
    print(f"{out}: {len(train[1]):,} training and {len(test[1]):,} test images, {out.stat().st_size / 1e6:.0f} MB")


def run(make: Callable[..., None], doc: str, *repositories: str) -> None:
    """Read the arguments, call `make(*repositories, out)`, and print what went wrong as one sentence."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in repositories:
        parser.add_argument(name, type=Path, help="Its git directory or checkout.")
    parser.add_argument("out", type=Path, help="The file to write.")
    arguments = parser.parse_args()
    try:
        check_target(arguments.out)
        make(*(getattr(arguments, name) for name in repositories), arguments.out)
    except EvenhandError as error:
        sys.exit(str(error))
