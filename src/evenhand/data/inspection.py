"""Inspection of a source before training."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.data._tracks import find_tracks, write_groups
from evenhand.data.audit import Audit, audit
from evenhand.data.folders import class_problem
from evenhand.data.images import open_images
from evenhand.data.imbalance import Imbalance
from evenhand.data.sources import load_source
from evenhand.data.splits import drop_small_classes, make_splits


def inspect_source(
    source: str | Path = "digits",
    *,
    imbalance: str = "none",
    class_order: str = "identity",
    data_root: Path | str | None = None,
    image_size: int | None = None,
    seed: int = 0,
    split_seed: int = 0,
    drop_small: bool = False,
    allow_outside: bool = False,
    groups: Path | str | None = None,
) -> Audit:
    """Load, open, split and audit a source.

    Args:
        source: a data set's name, a folder, a `.csv`, `.npz` or `.parquet`, or `hf:NAME`.
        imbalance: the imbalance that training would apply: `exp:RATIO`, `step:RATIO` or `none`.
        class_order: classes from most to fewest images: `identity`, `shuffle`, or all names joined by commas.
        data_root: folder of the data sets.
        image_size: length of the shorter side after resizing.
        seed: random seed of the subset and of the validation split.
        split_seed: random seed of the test split.
        drop_small: drop classes too small to split.
        allow_outside: follow links and paths that lead out of the folder.
        groups: a CSV to write, with the groups that file names of the form TRACK_FRAME tell of.

    Example:
        >>> from evenhand.data import inspect_source
        >>> found = inspect_source("digits", imbalance="exp:20")
        >>> len(found.classes), round(found.imbalance_ratio)
        (10, 20)
    """
    wanted = Imbalance.parse(imbalance)
    table = load_source(source, data_root=data_root, allow_outside=allow_outside, strict=False)
    tracks = find_tracks(table) if groups is None else write_groups(table, Path(groups))
    problem = class_problem(str(source), table.class_names, table.labels, table.splits)
    images = open_images(table, image_size=image_size, skip_bad=True)
    unreadable = {str(table.ids[row]): reason for row, reason in images.bad.items()}
    rows = images.readable()
    table = table.take(rows)
    if drop_small:
        smaller = drop_small_classes(table)
        rows, table = rows[np.isin(table.ids, smaller.ids)], smaller
    splits, problems = None, []
    try:
        if problem:
            raise EvenhandError(problem)
        splits = make_splits(table, imbalance=wanted, order=class_order, seed=seed, split_seed=split_seed)
    except EvenhandError as error:
        if wanted.kind != "none":
            raise
        problems = [str(error)]
    found = audit(
        table,
        splits,
        imbalance=wanted,
        unreadable=unreadable,
        problems=problems,
        read_row=lambda row: images[int(rows[row])],
    )
    return found if tracks is None else replace(found, advice=(tracks.advice(str(source)), *found.advice))
