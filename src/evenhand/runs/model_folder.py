"""The file of a model folder that keeps how the model decides: class shares, costs, calibration, thresholds."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from evenhand.core.errors import EvenhandError
from evenhand.core.files import write_text
from evenhand.runs._stored_files import read_stored
from evenhand.runs.filenames import DECISIONS, MODEL_CONFIG, MODEL_WEIGHTS
from evenhand.runs.run import Run
from evenhand.runs.schemas import StoredModel

_Shares = tuple[Annotated[float, Field(gt=0, le=1)], ...]
_Probabilities = tuple[Annotated[float, Field(ge=0, le=1 + 1e-6)], ...]
_Class = Annotated[int, Field(ge=0)]
_Asked = Annotated[float, Field(gt=0, lt=1)] | None


class StoredScores(StoredModel):
    """The scores of calibration images, see `CalibrationScores`; the images themselves are not named."""

    targets: tuple[_Class, ...]
    own: _Probabilities
    predicted: tuple[_Class, ...]
    confidence: _Probabilities


class StoredDecisions(StoredModel):
    """How the model of a folder decides. All lists by class are in the order of `class_names`."""

    class_names: tuple[str, ...]
    train_counts: tuple[Annotated[int, Field(ge=0, le=2**53)], ...]
    objective: str
    """Of the training."""
    logits_prior: _Shares | None = None
    """The class shares for which the network's logits hold without the adjustment; None: for none that are known."""
    train_prior: _Shares
    """The class shares of the training images, with those set aside for validation and calibration."""
    prior: str | None = None
    """The class shares that the adjustment of the folder is for, as they were given; None: they were not given."""
    costs: tuple[tuple[float, ...], ...] | None = None
    """The cost of each true class (row) predicted as each class (column)."""
    calibration: StoredScores | None = None
    """None: the run has no calibration images."""
    coverage: _Asked = None
    """Of the prediction sets that `predict` answers with; None: it answers with none."""
    set_thresholds: tuple[float | None, ...] | None = None
    """The probability from which a class is in the set; None: the class is in every set."""
    min_precision: _Asked = None
    """Of the answers of `predict`; None: it answers always."""
    answer_thresholds: tuple[float | None, ...] | None = None
    """The probability from which the most probable class is the answer; None: never."""

    @model_validator(mode="after")
    def _fits(self) -> "StoredDecisions":
        classes = len(self.class_names)
        for name in ("train_counts", "logits_prior", "train_prior", "costs", "set_thresholds", "answer_thresholds"):
            value = getattr(self, name)
            if value is not None and len(value) != classes:
                raise ValueError(f"{name} has {len(value)} entries for {classes} classes")
        if self.costs is not None and any(len(row) != classes for row in self.costs):
            raise ValueError(f"costs must have {classes} columns")
        scores = self.calibration
        if scores is not None:
            if len({len(scores.targets), len(scores.own), len(scores.predicted), len(scores.confidence)}) != 1:
                raise ValueError("the lists of its calibration differ in length")
            if max((*scores.targets, *scores.predicted), default=0) >= classes:
                raise ValueError(f"its calibration has classes above {classes - 1}")
        if scores is None and (self.coverage is not None or self.min_precision is not None):
            raise ValueError("it has a coverage or a precision without calibration")
        return self


def is_model_folder(path: os.PathLike[str] | str) -> bool:
    """Return whether a path is a folder that `evenhand export --folder` wrote."""
    folder = Run(Path(path))
    return folder.has(MODEL_WEIGHTS) and folder.has(MODEL_CONFIG) and not folder.begun


def read_decisions(path: os.PathLike[str] | str) -> StoredDecisions:
    """Read how the model of a folder decides.

    Raises:
        EvenhandError: the file is missing, damaged, or of other classes.
    """
    folder = Path(path)
    if not Run(folder).has(DECISIONS):
        raise EvenhandError(
            f"{folder} has no {DECISIONS}, which costs, class shares and coverage need; export it again."
        )
    return read_stored(StoredDecisions, folder, DECISIONS)


def exported_with(path: os.PathLike[str] | str) -> tuple[float | None, float | None]:
    """Return the coverage and the precision that a model folder was exported with; None: not asked for."""
    if not is_model_folder(path) or not Run(Path(path)).has(DECISIONS):
        return None, None
    stored = read_decisions(path)
    return stored.coverage, stored.min_precision


def write_decisions(folder: Path, decisions: StoredDecisions) -> None:
    """Write how the model of a folder decides."""
    write_text(folder / DECISIONS, decisions.model_dump_json() + "\n")
