"""File names of the form TRACK_FRAME, as in GTSRB: several pictures of one object, which belong in one split."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.files import csv_writer, replacing
from evenhand.data.table import FilePixels, SampleTable

_NAME = re.compile(r"(?P<track>.*\d)[_-](?P<frame>\d+)")
NAMED = 0.9
"""Share of the training images whose names must be of this form."""
SHORTEST = 3
"""Mean number of frames per track."""


@dataclass(frozen=True)
class Tracks:
    """The tracks that file names tell of."""

    groups: NDArray[np.str_]
    """(N,): folder and track of each training image; empty for the others."""
    number: int
    images: int
    example: str
    """The name of a file."""

    def advice(self, source: str) -> str:
        """Return what to do about them, with the commands."""
        given, target = shlex.quote(source), shlex.quote(f"{os.path.normpath(source)}.csv")
        return (
            f"Names are TRACK_FRAME, such as {self.example}: {self.images:,} images in {self.number:,} tracks, each "
            "probably of one object. A track with frames in training and others in validation or test makes results "
            f"too good; to keep it in one split: evenhand inspect {given} --groups {target}, then train on {target}."
        )


def find_tracks(table: SampleTable) -> Tracks | None:
    """Find tracks by the file names of the training images.

    Names count as tracks if nearly all are of the form TRACK_FRAME, the frames of a track have successive numbers, a
    track has several frames, and most classes several tracks.

    Returns:
        The tracks; None if there are none, or the source has groups already.

    Example:
        >>> import numpy as np
        >>> from evenhand.data.table import FilePixels, SampleTable
        >>> from evenhand.data._tracks import find_tracks
        >>> paths = [f"{name}/{track:05d}_{frame:05d}.ppm" for name in "ab" for track in (0, 1) for frame in range(9)]
        >>> labels = np.repeat([0, 1], 18)
        >>> tracks = find_tracks(SampleTable("signs", ("a", "b"), labels, np.array(paths), FilePixels(".", paths)))
        >>> tracks.number, tracks.images, str(tracks.groups[0])
        (4, 36, 'a/00000')
    """
    if table.groups is not None or not isinstance(table.pixels, FilePixels):
        return None
    rows = np.arange(len(table)) if table.splits is None else table.rows("train")
    frames: dict[str, list[int]] = {}
    labels: dict[str, int] = {}
    groups = [""] * len(table)
    for row in rows.tolist():
        path = PurePosixPath(table.pixels.paths[row])
        if found := _NAME.fullmatch(path.stem):
            groups[row] = group = str(path.parent / found["track"])
            frames.setdefault(group, []).append(int(found["frame"]))
            labels[group] = int(table.labels[row])
    images = sum(map(len, frames.values()))
    if images < NAMED * len(rows) or images < SHORTEST * len(frames):
        return None
    if not _successive(frames) or not _several_per_class(labels, table.num_classes):
        return None
    example = next(PurePosixPath(table.pixels.paths[row]).name for row in rows.tolist() if groups[row])
    return Tracks(np.array(groups), len(frames), images, example)


def write_groups(table: SampleTable, path: Path) -> Tracks:
    """Write a source as a CSV with its tracks in the column `group`.

    Args:
        table: a folder of images whose names are TRACK_FRAME.
        path: the CSV; the images must be in its folder or below.

    Raises:
        EvenhandError: the names are of another form, or the images are not below the folder of the CSV.
    """
    tracks, pixels = find_tracks(table), table.pixels
    if tracks is None or not isinstance(pixels, FilePixels):
        raise EvenhandError(
            f"The file names of {table.name} tell of no groups: they are not TRACK_FRAME; list groups in a CSV instead."
        )
    folder = path.resolve().parent
    if not pixels.root.is_relative_to(folder):
        raise EvenhandError(
            f"{path} is not above the images in {pixels.root}; choose a file such as {pixels.root.parent / path.name}."
        )
    below = pixels.root.relative_to(folder).as_posix()
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        write = csv_writer(file)
        write(["path", "label", *([] if table.splits is None else ["split"]), "group"])
        for row, name in enumerate(pixels.paths):
            split = [] if table.splits is None else [str(table.splits[row])]
            label = table.class_names[table.labels[row]]
            write([str(PurePosixPath(below) / name), label, *split, str(tracks.groups[row])])
    return tracks


def _successive(frames: Mapping[str, list[int]]) -> bool:
    """Return whether the frames of nearly all tracks have different numbers without many gaps."""
    dense = sum(len(set(each)) == len(each) and max(each) - min(each) < 2 * len(each) for each in frames.values())
    return dense >= NAMED * len(frames)


def _several_per_class(labels: Mapping[str, int], num_classes: int) -> bool:
    """Return whether most classes have several tracks: one for each would be a number of the class."""
    per_class = Counter(labels.values())
    return sum(number > 1 for number in per_class.values()) > num_classes / 2
