"""A run is a folder: the reader and writer of each of its files."""

import csv
import io
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import ValidationError

from evenhand.core.arrays import array_bytes, read_arrays
from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_bytes, read_json_bytes, write_csv, write_json
from evenhand.core.opening import LINK, is_regular, link_within, open_regular, remove_file
from evenhand.metrics.classification import balanced_accuracy
from evenhand.metrics.predictions import Predictions, load_predictions
from evenhand.runs import filenames as names
from evenhand.runs.checksums import check, write_checked
from evenhand.runs.config import RESOLVED, Config, load_config, save_config
from evenhand.runs.schemas import (
    Adjustment,
    Environment,
    EpochRow,
    Features,
    SplitIds,
    StoredModel,
    Summary,
    Thumbnails,
    check_history,
    check_ids,
)

LARGEST = {
    names.SPLITS: 2**26,
    names.SUMMARY: 2**25,
    names.HISTORY: 2**24,
    names.ENVIRONMENT: 2**16,
    names.ADJUSTMENT: 2**25,
}
"""Largest sizes in bytes: ImageNet's ids take 52 million, the summary of 1,000 classes about 10 million."""

_FILES = {
    "splits": names.SPLITS,
    "predictions": names.PREDICTIONS,
    "summary": names.SUMMARY,
    "stored_summary": names.SUMMARY,
}
_Arrays = TypeVar("_Arrays", Features, Thumbnails)
_T = TypeVar("_T")
_Typed = TypeVar("_Typed", Adjustment, Environment, SplitIds, Summary)
_Stored = TypeVar("_Stored", bound=StoredModel)


@dataclass(frozen=True)
class Run:
    """The folder of a run.

    Files are read and checked on first access, and cached; writing a file clears the cache. A property whose file
    cannot be read raises an `EvenhandError` with the file and the reason. A run can be given wherever a path can.
    The folder may come from others: links inside it are never followed.

    Args:
        path: the folder; it need not exist yet.

    Example:
        >>> import tempfile
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.runs.run import Run
        >>> run = Run(tempfile.mkdtemp())
        >>> run.status
        'missing'
        >>> run.write_config(make_config(epochs=3), command="evenhand train digits --epochs 3")
        >>> run.status, run.config.epochs, run.command
        ('begun', 3, 'evenhand train digits --epochs 3')
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.name

    # Progress, never cached

    @property
    def status(self) -> Literal["missing", "begun", "trained", "finished"]:
        """The progress of the run: no config yet, a config, the last epoch is done, or evaluated, the last step."""
        if self.has(names.SUMMARY):
            return "finished"
        if self.has(names.LAST_WEIGHTS):
            return "trained"
        return "begun" if self.begun else "missing"

    @property
    def finished(self) -> bool:
        """Whether it was evaluated."""
        return self.status == "finished"

    @property
    def begun(self) -> bool:
        """Whether the folder has a config."""
        return self.has(names.CONFIG)

    @property
    def can_resume(self) -> bool:
        """Whether an epoch was finished."""
        return self.has(names.STATE)

    @property
    def resume_command(self) -> str:
        """The command that continues it."""
        return shlex.join(["evenhand", "train", "--resume", str(self.path)])

    @property
    def changed(self) -> int:
        """When its config was written, in nanoseconds."""
        try:
            return (self.path / names.CONFIG).stat().st_mtime_ns
        except OSError as error:
            raise EvenhandError(f"{self.path} is no run: {reason(error)}.") from error

    def has(self, name: str) -> bool:
        """Return whether a file is there."""
        return is_regular(self.path / name, within=self.path)

    def refuse_links(self, *others: str) -> None:
        """Refuse a run in which a file or folder, or one of `others`, is a link: taken as missing, it would be made."""
        for name in (*names.FILES, *names.FOLDERS, *others):
            link = link_within(self.path / name, self.path)
            if link is not None:
                raise EvenhandError(f"Cannot use {link}: {LINK}; put the file itself there.")

    def require(self) -> None:
        """Refuse a folder without a run."""
        if self.begun:
            return
        found = "there is no such folder"
        if self.path.is_dir():
            linked = (self.path / names.CONFIG).is_symlink()
            found = f"its {names.CONFIG} is a link, which is not followed" if linked else f"it has no {names.CONFIG}"
            if self.has(names.MODEL_WEIGHTS):
                found = "it is a model folder, for predict and load; give the run that it was exported from"
            if (self.path / names.COMPARISON).is_file():
                found = "it is a comparison; give the folder of one of its runs"
        elif self.path.is_file():
            found = "it is a file; give the folder of a run"
        raise EvenhandError(f"{self.path} is no run: {found}.")

    # Config, environment and splits

    @cached_property
    def config(self) -> Config:
        """All settings of the run."""
        self.require()
        return load_config(self.path / names.CONFIG, within=self.path)

    @cached_property
    def config_text(self) -> str:
        """The text of its config file."""
        return self._text(names.CONFIG, 2**16)

    @property
    def command(self) -> str:
        """The command that made it, or one that repeats it."""
        first = self.config_text.partition("\n")[0]
        if first.startswith("#") and not first.startswith(RESOLVED):
            return first.removeprefix("#").strip()
        return shlex.join(["evenhand", "train", "--config", str(self.path / names.CONFIG)])

    def write_config(self, config: Config, command: str = "", resolved: Mapping[str, Any] | None = None) -> None:
        """Write its config, below the command that made it and the settings that the config leaves open."""
        save_config(config, self.path / names.CONFIG, command, resolved)
        self._forget("config", "config_text")

    @cached_property
    def environment(self) -> Environment:
        """Versions and machine; empty if not stored."""
        return self._typed(Environment, names.ENVIRONMENT) if self.has(names.ENVIRONMENT) else Environment()

    def write_environment(self, content: Mapping[str, Any]) -> None:
        """Write versions and machine."""
        write_json(self.path / names.ENVIRONMENT, content, within=self.path)
        self._forget("environment")

    @cached_property
    def splits(self) -> SplitIds:
        """The ids of its training, validation and test images."""
        return self._typed(SplitIds, names.SPLITS)

    def write_splits(self, splits: SplitIds) -> None:
        """Write the ids of its training, validation and test images."""
        write_json(self.path / names.SPLITS, splits.model_dump(), indent=0, within=self.path)
        self._forget("splits")

    # History

    @cached_property
    def history(self) -> list[EpochRow]:
        """One row per finished epoch."""
        if not self.has(names.HISTORY):
            return []
        path = self.path / names.HISTORY
        text = self._text(names.HISTORY, LARGEST[names.HISTORY])
        try:
            rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(io.StringIO(text))]
            check_history(rows)
        except (ValueError, TypeError, csv.Error, EvenhandError, MemoryError) as error:
            raise EvenhandError(f"Cannot read the history in {path}: {reason(error)}.") from error
        config = none_if_unreadable(lambda: self.config)
        if config is not None and len(rows) > config.epochs:
            seen = f"it has {len(rows)} epochs, but the config asks for {config.epochs}"
            raise EvenhandError(f"Cannot use the history in {path}: {seen}.")
        return rows

    def write_history(self, rows: Sequence[EpochRow]) -> None:
        """Write all epochs in full precision, with the columns that all of them have."""
        shared = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
        write_csv(self.path / names.HISTORY, [{name: row[name] for name in shared} for row in rows], within=self.path)
        self._forget("history")

    # Weights and state

    @property
    def best_weights(self) -> Path:
        """The file of the best epoch's weights so far; `training.checkpoint` reads and writes it."""
        return self.path / names.BEST_WEIGHTS

    @property
    def last_weights(self) -> Path:
        """The file of the last epoch's weights."""
        return self.path / names.LAST_WEIGHTS

    @property
    def refit_weights(self) -> Path:
        """The file of the weights trained again on training and validation images together."""
        return self.path / names.REFIT_WEIGHTS

    @property
    def refitted(self) -> bool:
        """Whether it was trained again on training and validation images together."""
        return self.config.head.refit_below > 0 and self.has(names.REFIT_WEIGHTS)

    @property
    def validated_weights(self) -> Path:
        """The file of the weights of the selected epoch, which no validation image was trained on."""
        return self.last_weights if self.config.select == "last" else self.best_weights

    @property
    def state(self) -> Path:
        """The file of the state between two epochs."""
        return self.path / names.STATE

    @property
    def tensorboard(self) -> Path:
        """The folder for TensorBoard."""
        return self.path / names.TENSORBOARD

    @property
    def selected_weights(self) -> Path:
        """The file of the weights that its config selects, which may not exist yet."""
        return self.refit_weights if self.refitted else self.validated_weights

    @property
    def weights(self) -> Path:
        """The file of its selected weights; refuses an unfinished run."""
        selected = self.selected_weights
        if not self.has(names.LAST_WEIGHTS):
            begun = self.has(names.BEST_WEIGHTS)
            instead = f"; predict and export also take {self.best_weights}, the best epoch so far" if begun else ""
            raise EvenhandError(f"{self.path} is not finished; continue it with {self.resume_command}{instead}.")
        return selected

    # Results

    @cached_property
    def predictions(self) -> Predictions:
        """Predictions of the test images."""
        return self._read_predictions(names.PREDICTIONS, "test")

    def write_predictions(self, predictions: Predictions) -> Path:
        """Write the predictions of the test images; return the file."""
        self._write_predictions(names.PREDICTIONS, predictions)
        self._forget("predictions", "summary", "features", "thumbnails")
        return self.path / names.PREDICTIONS

    @cached_property
    def validation_predictions(self) -> Predictions | None:
        """Predictions of the validation images; None: there are none."""
        if not self.has(names.VALIDATION):
            return None
        validation = self._read_predictions(names.VALIDATION, "val")
        with self._naming(names.VALIDATION):
            self._check_counts(validation, fitted=not self.refitted)
            self._check_validation_score(validation)
        return validation

    def _check_counts(self, predictions: Predictions, *, fitted: bool = True) -> None:
        """Refuse predictions of held-out images with other training counts than those of the test images."""
        predictions.check_finite()
        test = none_if_unreadable(lambda: self.predictions)
        for name in ("train_counts", "fitted_counts")[: 1 + fitted] if test is not None else ():
            own, other = getattr(predictions, name), getattr(test, name)
            if own is not None and other is not None and not np.array_equal(own, other):
                raise EvenhandError(f"its {name} differ from those of {names.PREDICTIONS}.")

    def _check_validation_score(self, validation: Predictions) -> None:
        """Refuse targets that contradict the result in the summary; rounding may move a few images."""
        summary = none_if_unreadable(lambda: self.summary)
        if summary is None or self.config.objective.training != self.config.objective:
            return  # not finished, or the summary has the score after an adjustment
        stored, found = summary.selected.val_balanced_accuracy, balanced_accuracy(validation.confusion)
        if stored is not None and abs(stored - found) > 0.05:
            raise EvenhandError(
                f"its balanced accuracy is {found:.1%}, but {stored:.1%} in {names.SUMMARY}; its targets were changed."
            )

    def write_validation_predictions(self, predictions: Predictions) -> None:
        """Write the predictions of the validation images."""
        self._write_predictions(names.VALIDATION, predictions)
        self._forget("validation_predictions")

    @cached_property
    def calibration_predictions(self) -> Predictions | None:
        """Predictions of the calibration images, without any adjustment; None: there are none."""
        if not self.has(names.CALIBRATION):
            return None
        calibration = self._read_predictions(names.CALIBRATION, "calibration")
        with self._naming(names.CALIBRATION):
            self._check_counts(calibration)
            self._check_calibration_score(calibration)
        return calibration

    def _check_calibration_score(self, calibration: Predictions) -> None:
        """Refuse targets that contradict the result in the summary."""
        summary = none_if_unreadable(lambda: self.summary)
        stored, confusion = None if summary is None else summary.calibration, calibration.confusion
        for what, found in (("images", confusion.sum(1)), ("correct", confusion.diagonal())) if stored else ():
            if list(getattr(stored, what)) != found.tolist():
                whose = "images by class" if what == "images" else "correct answers by class"
                raise EvenhandError(f"its {whose} differ from those in {names.SUMMARY}; it was changed.")

    def write_calibration_predictions(self, predictions: Predictions) -> None:
        """Write the predictions of the calibration images."""
        self._write_predictions(names.CALIBRATION, predictions)
        self._forget("calibration_predictions")

    @cached_property
    def features(self) -> Features:
        """The layer before the classifier, of some test images."""
        return self._read_arrays(Features, names.FEATURES)

    def write_features(self, features: Features) -> None:
        """Write the layer before the classifier, of some test images."""
        self._write_arrays(names.FEATURES, features)
        self._forget("features")

    @cached_property
    def thumbnails(self) -> Thumbnails:
        """Thumbnails of some test images."""
        return self._read_arrays(Thumbnails, names.THUMBNAILS)

    def write_thumbnails(self, thumbnails: Thumbnails) -> None:
        """Write thumbnails of some test images."""
        self._write_arrays(names.THUMBNAILS, thumbnails)
        self._forget("thumbnails")

    @cached_property
    def summary(self) -> Summary:
        """Its results, checked against its predictions if these can be read."""
        summary = self.stored_summary
        # Not cached: a list of many runs needs only their summaries.
        kept = self.__dict__.get("predictions")
        predictions = kept or none_if_unreadable(lambda: self._read_predictions(names.PREDICTIONS, "test"))
        if predictions is not None:
            with self._naming(names.SUMMARY):
                summary.check(predictions)
        return summary

    @property
    def stored_summary(self) -> Summary:
        """Its results as they are stored, not checked against its predictions."""
        if not self.has(names.SUMMARY):
            self.require()
            raise EvenhandError(f"{self.path} is not finished; continue it with {self.resume_command}.")
        return self._typed(Summary, names.SUMMARY)

    def write_summary(self, content: Mapping[str, Any]) -> Path:
        """Write its results and what the run was; return the file."""
        write_json(self.path / names.SUMMARY, content, within=self.path)
        self._forget("summary")
        return self.path / names.SUMMARY

    @cached_property
    def adjustment(self) -> Adjustment | None:
        """The adjustment of its logits that predict, export and load apply; None: none."""
        return self._typed(Adjustment, names.ADJUSTMENT) if self.has(names.ADJUSTMENT) else None

    def write_adjustment(self, content: Mapping[str, Any] | None) -> Path:
        """Write the adjustment of its logits, or remove it (None); return the file."""
        if content is None:
            remove_file(self.path / names.ADJUSTMENT, within=self.path)
        else:
            write_json(self.path / names.ADJUSTMENT, content, within=self.path)
        self._forget("adjustment")
        return self.path / names.ADJUSTMENT

    # Reading and writing files

    def _path(self, name: str) -> Path:
        path = self.path / name
        if not self.has(name):
            if link_within(path, self.path) is not None:
                raise EvenhandError(f"Cannot read {path}: {LINK}.")
            raise EvenhandError(f"{path} is not a file." if path.exists() else f"{name} is missing in {self.path}.")
        return path

    def _checked(self, name: str) -> Path:
        path = self._path(name)
        try:
            check(path, within=self.path)
        except EvenhandError as error:
            raise EvenhandError(f"Cannot read {path}: {error}") from error
        return path

    def _text(self, name: str, most: int) -> str:
        path = self._path(name)
        try:
            return read_bytes(path, most, within=self.path).decode()
        except UnicodeDecodeError as error:
            raise EvenhandError(f"Cannot read {path}: {reason(error)}.") from error

    def _typed(self, kind: type[_Typed], name: str) -> _Typed:
        return read_stored(kind, self._path(name), LARGEST[name], within=self.path)

    def _read_predictions(self, name: str, split: Literal["val", "test", "calibration"]) -> Predictions:
        predictions = load_predictions(self._checked(name), within=self.path)
        splits, card = none_if_unreadable(lambda: self.splits), none_if_unreadable(self._card)
        with self._naming(name):
            if splits is not None:
                check_ids(predictions, getattr(splits, split), {"val": "validation"}.get(split, split))
            if card is not None and tuple(card["class_names"]) != predictions.class_names:
                raise EvenhandError("its classes differ from those of the weights.")
        return predictions

    def _card(self) -> dict[str, Any]:
        return card_of(self._path(self.selected_weights.relative_to(self.path).as_posix()), within=self.path)

    def _write_predictions(self, name: str, predictions: Predictions) -> None:
        write_checked(self.path / name, predictions.to_bytes())

    def _read_arrays(self, kind: type[_Arrays], name: str) -> _Arrays:
        arrays = read_arrays(self._checked(name), list(kind.__dataclass_fields__), within=self.path)
        predictions = none_if_unreadable(lambda: self.predictions)
        with self._naming(name):
            content = kind(**arrays)
            if predictions is not None:
                content.check(predictions)
        return content

    def _write_arrays(self, name: str, content: Features | Thumbnails) -> None:
        write_checked(self.path / name, array_bytes(**vars(content)))

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        try:
            yield
        except EvenhandError as error:
            raise EvenhandError(f"Cannot use {self.path / name}: {error}") from error

    def _forget(self, *kept: str) -> None:
        for name in kept:
            self.__dict__.pop(name, None)


def read_stored(kind: type[_Stored], path: Path, most: int, *, within: Path) -> _Stored:
    """Read a JSON file of at most `most` bytes, checked against its schema; links below `within` are not followed."""
    content = read_json_bytes(path, most, within=within)
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))[:100]
        why = reason(ValueError(first["msg"].removeprefix("Value error, ")))
        why = why[:1].lower() + why[1:]
        raise EvenhandError(f"Cannot read {path}: {where}{': ' * bool(where)}{why}.") from error


def none_if_unreadable(read: Callable[[], _T]) -> _T | None:
    """Return what a function reads; None if it raises an `EvenhandError`, which is reported where it matters."""
    try:
        return read()
    except EvenhandError:
        return None


def read_leniently(run: Run, *properties: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read the files of a run that can be read, for a list in which one bad run must not hide the others.

    Args:
        run: its files may be missing, incomplete or damaged.
        properties: such as `config`; those whose file does not exist yet are left out.

    Returns:
        The values by property, and one sentence per unreadable file, without the path of the folder.
    """
    read: dict[str, Any] = {}
    problems: list[str] = []
    for name in properties:
        if name in _FILES and not run.has(_FILES[name]):
            continue
        try:
            read[name] = getattr(run, name)
        except EvenhandError as error:
            problems.append(str(error).replace(f"{run.path}{os.sep}", "").replace(str(run.path), run.path.name))
    return read, tuple(problems)


def runs_in(folder: Path | str) -> list[Run]:
    """Return the runs in a folder, finished or not, by name."""
    return [Run(path.parent) for path in sorted(Path(folder).glob(f"*/{names.CONFIG}")) if not path.parent.is_symlink()]


def card_of(path: Path, *, within: Path | None = None) -> dict[str, Any]:
    """Read the card of a file of weights from its header: class names, sizes, normalisation.

    Raises:
        EvenhandError: the file is missing, damaged or not of evenhand.
    """
    try:
        with open_regular(path, within=within) as file:
            size = int.from_bytes(file.read(8), "little")
            if size > 2**24:
                raise ValueError("its header is too long")
            card: Any = json.loads(json.loads(file.read(size))["__metadata__"]["evenhand"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise EvenhandError(f"The weights in {path} are damaged or not of evenhand: {reason(error)}.") from error
    if not isinstance(card, dict) or not isinstance(card.get("class_names"), list):
        raise EvenhandError(f"The weights in {path} are damaged or not of evenhand: they name no classes.")
    return card
