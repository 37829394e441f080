"""A run is a folder: the reader and writer of each of its files."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from evenhand.core.arrays import array_bytes, read_arrays
from evenhand.core.errors import EvenhandError, none_if_unreadable
from evenhand.core.files import write_csv, write_json
from evenhand.core.opening import remove_file
from evenhand.metrics.predictions import Predictions, load_predictions
from evenhand.runs import filenames as names
from evenhand.runs._held_out_checks import check_counts, check_score, check_selected_score
from evenhand.runs._run_folder import RunFolder
from evenhand.runs._stored_files import find_checked, find_file, naming, read_history, read_stored, read_text
from evenhand.runs.checksums import write_checked
from evenhand.runs.config import RESOLVED, Config, load_config, save_config
from evenhand.runs.schemas import (
    Adjustment,
    Environment,
    EpochRow,
    Features,
    SplitIds,
    Summary,
    Thumbnails,
    check_ids,
)
from evenhand.runs.weights_card import card_of

_Arrays = TypeVar("_Arrays", Features, Thumbnails)


@dataclass(frozen=True)
class Run(RunFolder):
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

    # Config, environment and splits

    @cached_property
    def config(self) -> Config:
        """All settings of the run."""
        self.require()
        return load_config(self.path / names.CONFIG, within=self.path)

    @cached_property
    def config_text(self) -> str:
        """The text of its config file."""
        return read_text(self.path, names.CONFIG)

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
        return read_stored(Environment, self.path, names.ENVIRONMENT) if self.has(names.ENVIRONMENT) else Environment()

    def write_environment(self, content: Mapping[str, Any]) -> None:
        """Write versions and machine."""
        write_json(self.path / names.ENVIRONMENT, content, within=self.path)
        self._forget("environment")

    @cached_property
    def splits(self) -> SplitIds:
        """The ids of its training, validation and test images."""
        return read_stored(SplitIds, self.path, names.SPLITS)

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
        rows = read_history(self.path, names.HISTORY)
        config = none_if_unreadable(lambda: self.config)
        if config is not None and len(rows) > config.epochs:
            seen = f"it has {len(rows)} epochs, but the config asks for {config.epochs}"
            raise EvenhandError(f"Cannot use the history in {self.path / names.HISTORY}: {seen}.")
        return rows

    def write_history(self, rows: Sequence[EpochRow]) -> None:
        """Write all epochs in full precision, with the columns that all of them have."""
        shared = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
        write_csv(self.path / names.HISTORY, [{name: row[name] for name in shared} for row in rows], within=self.path)
        self._forget("history")

    # Weights

    @property
    def refitted(self) -> bool:
        """Whether it was trained again on training and validation images together."""
        return self.config.head.refit_below > 0 and self.has(names.REFIT_WEIGHTS)

    @property
    def validated_weights(self) -> Path:
        """The file of the weights of the selected epoch, which no validation image was trained on."""
        return self.last_weights if self.config.select == "last" else self.best_weights

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
        write_checked(self.path / names.PREDICTIONS, predictions.to_bytes())
        self._forget("predictions", "summary", "features", "thumbnails")
        return self.path / names.PREDICTIONS

    @cached_property
    def validation_predictions(self) -> Predictions | None:
        """Predictions of the validation images; None: there are none."""
        if not self.has(names.VALIDATION):
            return None
        validation = self._read_predictions(names.VALIDATION, "val")
        with naming(self.path / names.VALIDATION):
            check_counts(validation, none_if_unreadable(lambda: self.predictions), fitted=not self.refitted)
            summary = none_if_unreadable(lambda: self.summary)
            if summary is not None and summary.validation is not None:
                check_score(validation, summary.validation)
            elif summary is not None and self.config.objective.training == self.config.objective:  # no adjustment
                check_selected_score(validation, summary.selected.val_balanced_accuracy)
        return validation

    def write_validation_predictions(self, predictions: Predictions) -> None:
        """Write the predictions of the validation images."""
        write_checked(self.path / names.VALIDATION, predictions.to_bytes())
        self._forget("validation_predictions")

    @cached_property
    def calibration_predictions(self) -> Predictions | None:
        """Predictions of the calibration images, without any adjustment; None: there are none."""
        if not self.has(names.CALIBRATION):
            return None
        calibration = self._read_predictions(names.CALIBRATION, "calibration")
        with naming(self.path / names.CALIBRATION):
            check_counts(calibration, none_if_unreadable(lambda: self.predictions))
            summary = none_if_unreadable(lambda: self.summary)
            check_score(calibration, None if summary is None else summary.calibration)
        return calibration

    def write_calibration_predictions(self, predictions: Predictions) -> None:
        """Write the predictions of the calibration images."""
        write_checked(self.path / names.CALIBRATION, predictions.to_bytes())
        self._forget("calibration_predictions")

    @cached_property
    def features(self) -> Features:
        """The layer before the classifier, of some test images."""
        return self._read_arrays(Features, names.FEATURES)

    def write_features(self, features: Features) -> None:
        """Write the layer before the classifier, of some test images."""
        write_checked(self.path / names.FEATURES, array_bytes(**vars(features)))
        self._forget("features")

    @cached_property
    def thumbnails(self) -> Thumbnails:
        """Thumbnails of some test images."""
        return self._read_arrays(Thumbnails, names.THUMBNAILS)

    def write_thumbnails(self, thumbnails: Thumbnails) -> None:
        """Write thumbnails of some test images."""
        write_checked(self.path / names.THUMBNAILS, array_bytes(**vars(thumbnails)))
        self._forget("thumbnails")

    @cached_property
    def summary(self) -> Summary:
        """Its results, checked against its predictions if these can be read."""
        summary = self.stored_summary
        # Not cached: a list of many runs needs only their summaries.
        kept = self.__dict__.get("predictions")
        predictions = kept or none_if_unreadable(lambda: self._read_predictions(names.PREDICTIONS, "test"))
        if predictions is not None:
            with naming(self.path / names.SUMMARY):
                summary.check(predictions)
        return summary

    @property
    def stored_summary(self) -> Summary:
        """Its results as they are stored, not checked against its predictions."""
        if not self.has(names.SUMMARY):
            self.require()
            raise EvenhandError(f"{self.path} is not finished; continue it with {self.resume_command}.")
        return read_stored(Summary, self.path, names.SUMMARY)

    def write_summary(self, content: Mapping[str, Any]) -> Path:
        """Write its results and what the run was; return the file."""
        write_json(self.path / names.SUMMARY, content, within=self.path)
        self._forget("summary")
        return self.path / names.SUMMARY

    @cached_property
    def adjustment(self) -> Adjustment | None:
        """The adjustment of its logits that predict, export and load apply; None: none."""
        return read_stored(Adjustment, self.path, names.ADJUSTMENT) if self.has(names.ADJUSTMENT) else None

    def write_adjustment(self, content: Mapping[str, Any] | None) -> Path:
        """Write the adjustment of its logits, or remove it (None); return the file."""
        if content is None:
            remove_file(self.path / names.ADJUSTMENT, within=self.path)
        else:
            write_json(self.path / names.ADJUSTMENT, content, within=self.path)
        self._forget("adjustment")
        return self.path / names.ADJUSTMENT

    # Reading and writing files

    def _read_predictions(self, name: str, split: Literal["val", "test", "calibration"]) -> Predictions:
        predictions = load_predictions(find_checked(self.path, name), within=self.path)
        splits, card = none_if_unreadable(lambda: self.splits), none_if_unreadable(self._card)
        with naming(self.path / name):
            if splits is not None:
                check_ids(predictions, getattr(splits, split), {"val": "validation"}.get(split, split))
            if card is not None and tuple(card["class_names"]) != predictions.class_names:
                raise EvenhandError("its classes differ from those of the weights.")
        return predictions

    def _card(self) -> dict[str, Any]:
        name = self.selected_weights.relative_to(self.path).as_posix()
        return card_of(find_file(self.path, name), within=self.path)

    def _read_arrays(self, kind: type[_Arrays], name: str) -> _Arrays:
        arrays = read_arrays(find_checked(self.path, name), list(kind.__dataclass_fields__), within=self.path)
        predictions = none_if_unreadable(lambda: self.predictions)
        with naming(self.path / name):
            content = kind(**arrays)
            if predictions is not None:
                content.check(predictions)
        return content

    def _forget(self, *kept: str) -> None:
        for name in kept:
            self.__dict__.pop(name, None)


def runs_in(folder: Path | str) -> list[Run]:
    """Return the runs in a folder, finished or not, by name."""
    return [Run(path.parent) for path in sorted(Path(folder).glob(f"*/{names.CONFIG}")) if not path.parent.is_symlink()]


def run_of(path: Path | str) -> Path:
    """Return the folder of a run, given that or a file of its weights; any other path is returned unchanged."""
    above = Path(path).parent.parent
    return above if Path(path).is_file() and (above / names.CONFIG).is_file() else Path(path)
