"""Names of runs: readable parts, and a hash of what differs from a frozen table of defaults."""

import glob
import hashlib
import json
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from evenhand.core.errors import EvenhandError
from evenhand.core.files import hash_file
from evenhand.core.opening import LINK
from evenhand.core.spec import parse, split_options
from evenhand.core.text import slug
from evenhand.data.benchmarks import BENCHMARKS
from evenhand.data.hub import PREFIX
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.runs.config import Config
from evenhand.runs.name_defaults import FROZEN
from evenhand.runs.run import Run

DIGITS = 10
"""Of the hash in a name."""
UNNAMED = ("data.root", "data.allow_outside")
"""Locations of data are not part of the name."""


def run_name(config: Config) -> str:
    """Name a run: readable parts, and 10 hex digits of a hash of everything that changes its result.

    Only what differs from :data:`~evenhand.runs.name_defaults.FROZEN` is hashed, so that neither a setting nor a
    default that is added later renames a run. The location of the data and the hardware are not hashed, apart from the
    precision; weights that a second stage starts from are hashed by content.

    Example:
        >>> from evenhand.experiments.grid.naming import run_name
        >>> from evenhand.runs.config import make_config
        >>> run_name(make_config(objective="cce:gamma=-2", data__imbalance="exp:20"))
        'digits_exp-20_resnet8_cce-gamma-2_seed0-...'
    """
    differs = {}
    for key, value, default in _settings(config):
        canonical = _canonical(key, value)
        if canonical != _canonical(key, FROZEN.get(key, default)):
            differs[key] = canonical
    if "start.weights" in differs:
        differs["start.weights"] = differs.pop("start.sha256", None) or _content_of(Path(differs["start.weights"]))
    digest = hashlib.sha256(json.dumps(differs, sort_keys=True).encode()).hexdigest()[:DIGITS]
    source = canonical_source(config.data.source)
    parts = [
        source if is_benchmark(source) else Path(source).stem,
        config.data.imbalance,
        config.model.name,
        config.objective,
    ]
    return f"{slug(*(part for part in parts if part != 'none'))}_seed{config.seed}-{digest}"


def run_folder(root: Path, config: Config) -> Path:
    """Return the folder of a run under a root, also if an earlier version named it by another hash.

    Such a run is identified by its config.
    """
    name = run_name(config)
    folder = root / name
    if folder.is_symlink():
        raise EvenhandError(f"Cannot use {folder}: {LINK}; put the run itself there.")
    if not folder.exists():
        others = glob.glob(f"{glob.escape(str(root / name[:-DIGITS]))}{'[0-9a-f]' * DIGITS}")
        alike = [Path(other) for other in sorted(others) if _name_by_config(Path(other)) == name]
        return next((other for other in alike if Run(other).finished), alike[0] if alike else folder)
    return folder


def _name_by_config(folder: Path) -> str | None:
    run = Run(folder)
    try:
        return _name_in(run, run.changed)
    except EvenhandError:  # not a run, or a damaged one, which is reported when it is read
        return None


@lru_cache(maxsize=4096)
def _name_in(run: Run, _changed: int) -> str:
    return run_name(run.config)


def _settings(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted name, the value and the current default of each setting that changes the result."""
    for name, field in type(section).model_fields.items():
        key, value = prefix + name, getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{key}.")
        elif key not in UNNAMED and (prefix != "compute." or name == "precision"):
            yield key, value, field.get_default(call_default_factory=True)


def _content_of(weights: Path) -> str:
    """Return a hash of the weights in a file or a finished run; of a run that is not finished, its name."""
    run = Run(weights)
    if run.begun:
        if not run.finished:
            return run.path.name
        weights = run.selected_weights
    try:
        found = weights.stat()
        return _sha256(weights, found.st_mtime_ns, found.st_size)
    except OSError:  # reported by the run when it starts
        return weights.name


@lru_cache(maxsize=256)
def _sha256(path: Path, _changed: int, _size: int) -> str:
    return hash_file(path)


def _canonical(key: str, value: Any) -> Any:
    """Return the canonical form of a value, which is hashed."""
    if key == "objective":
        return str(ObjectiveSpec(value))
    if key == "data.source":
        return canonical_source(value)
    if isinstance(value, (tuple, list)):
        return [_canonical(key, each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def canonical_source(source: str) -> str:
    """Return the canonical form of a source: the options of a data set in order, or the absolute path."""
    if source.startswith(PREFIX):
        name, options = split_options(source)
        return ":".join([name, *(f"{key}={value}" for key, value in sorted(options.items()))])
    if not is_benchmark(source):
        return str(Path(os.path.expanduser(source)).resolve()) if source.strip() else source
    part, *others = parse(source)
    if others or part.value is not None:  # invalid, which is reported where it is read
        return source
    return ":".join([part.name, *(f"{key}={value}" for key, value in sorted(part.options.items()))])


def is_benchmark(source: str) -> bool:
    """Return whether a source is a known data set, not a path."""
    return source.split(":")[0] in BENCHMARKS
