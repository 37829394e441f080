"""A model folder: everything that is needed to use a trained model elsewhere, as model hubs keep it."""

import contextlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import refuse_linked, write_json, write_text
from evenhand.data.decode import MAX_ASPECT
from evenhand.metrics.predictions import Predictions
from evenhand.models.classifier import Classifier
from evenhand.runs import filenames as names
from evenhand.runs.calibration import CalibrationScores, read_calibration, score
from evenhand.runs.comparison import is_comparison, read_recommended
from evenhand.runs.held_out import one_per_group
from evenhand.runs.model_folder import StoredDecisions, StoredScores, write_decisions
from evenhand.runs.run import Run, run_of
from evenhand.runs.schemas import Adjustment
from evenhand.runs.summary import summarise
from evenhand.training._model_card import Published, write_model_card
from evenhand.training.checkpoint import save_weights
from evenhand.training.decisions import evaluate_decisions, refuse_combined, stored_thresholds
from evenhand.training.export import Check, export_onnx
from evenhand.training.predict import TrainedModel, load, own_adjustment
from evenhand.training.prior import known_shares

PREPROCESSING, ADJUSTMENT, ONNX, CARD = "preprocessing.json", names.ADJUSTMENT, "model.onnx", "README.md"
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")


@dataclass(frozen=True)
class ExportedFolder:
    """What was written."""

    path: Path
    files: tuple[str, ...]
    onnx: Check | None
    """The check of the ONNX file; None: the packages of the extra `onnx` are not installed."""


def export_folder(
    run: Path | str,
    out: Path | str,
    *,
    licence: str | None = None,
    costs: Path | str | None = None,
    prior: str | None = None,
    coverage: float | None = None,
    min_precision: float | None = None,
) -> ExportedFolder:
    """Write a trained model and its model card into a new folder, which :func:`evenhand.load` and `predict` take.

    It has `model.safetensors` (all weights, a frozen backbone included), `config.json` (the network and the classes),
    `preprocessing.json`, the adjustment (what is added to the logits, if anything), `decisions.json` (class shares,
    costs, and what calibration images gave), `model.onnx` (if the packages of the extra `onnx` are installed) and
    `README.md`, a model card with the metadata that Hugging Face's hub reads.

    Args:
        run: a finished run, or a comparison, whose recommended objective's run with the best validation result is used.
        out: the folder, which must not exist or be empty.
        licence: the licence of the model by its identifier on the hub, such as `mit`; None: the card names none.
        costs: a file of costs, by which the model of the folder decides, see :func:`evenhand.load`.
        prior: the class shares where it is used, see :func:`evenhand.load`.
        coverage: of each class by prediction sets, which `predict` then answers with; see `load_unsure`.
        min_precision: of the answers of `predict`, which is unsure otherwise; see `load_unsure`.

    Raises:
        EvenhandError: the run is not finished, the folder has files, or a coverage or precision is asked for and cannot
            be shown.
    """
    if licence is not None and not _LICENCE.fullmatch(licence):
        raise EvenhandError(f"The licence must be an identifier such as mit or cc-by-4.0, got {licence!r}.")
    members = read_recommended(run).runs if is_comparison(run) else (Run(Path(run)),)
    folder = members[0]
    if not folder.path.is_dir():
        raise EvenhandError(f"{folder.path} is not the folder of a run; the model card needs the results of one.")
    folder.require()
    refuse_combined(coverage, min_precision, costs=costs, prior=prior)
    prior = prior or (None if costs is None else "uniform")
    model = load(folder.path, device="cpu", costs=costs, prior=prior)
    results = evaluate_decisions(
        folder, folder.predictions, costs=costs, prior=prior, coverage=coverage, min_precision=min_precision
    )
    kept = _decisions(folder, model, prior, coverage, min_precision)
    published = _published(folder, model, Path(out).resolve().name, licence, kept, results)
    published = replace(published, notes=(*published.notes, *_over_seeds(members)))
    refuse_linked(out, [run_of(run), folder.path])
    with _new_folder(Path(out)) as temporary:
        assert isinstance(model.network, Classifier)  # a run is one network
        card = replace(model.card, backbone=None)  # its weights are in the file
        save_weights(temporary / names.MODEL_WEIGHTS, model.network, card)
        write_json(temporary / names.MODEL_CONFIG, _config(folder, model), indent=2)
        write_json(temporary / PREPROCESSING, _preprocessing(model), indent=2)
        if model.adjustment is not None:
            write_json(temporary / ADJUSTMENT, _adjustment(folder, model, prior), indent=2)
        write_decisions(temporary, kept)
        check = None
        if all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime", "onnxscript")):
            check = export_onnx(
                folder.path,
                temporary / ONNX,
                costs=costs,
                prior=prior,
                coverage=coverage,
                min_precision=min_precision,
            )
        write_text(temporary / CARD, write_model_card(published, onnx=check is not None))
        files = tuple(sorted(path.name for path in temporary.iterdir()))
    return ExportedFolder(Path(out), files, check)


def _decisions(
    run: Run, model: TrainedModel, prior: str | None, coverage: float | None, min_precision: float | None
) -> StoredDecisions:
    """Return what the folder keeps of how the model decides."""
    known, scores = known_shares(run), _scores(run, model, prior)
    normalised = prior is None and run.adjustment is not None and run.adjustment.kind == "tau-normalised"
    return StoredDecisions(
        class_names=model.class_names,
        train_counts=tuple(run.predictions.train_counts.tolist()),
        objective=known.objective,
        train_prior=tuple(known.train.tolist()),
        logits_prior=None if known.logits is None or normalised else tuple(known.logits.tolist()),
        prior=None if prior is None else os.path.basename(prior),
        costs=None if model.costs is None else tuple(map(tuple, model.costs.tolist())),
        calibration=None
        if scores is None
        else StoredScores(
            targets=tuple(scores.targets.tolist()),
            own=tuple(scores.own.tolist()),
            predicted=tuple(scores.predicted.tolist()),
            confidence=tuple(scores.confidence.tolist()),
        ),
        coverage=coverage,
        min_precision=min_precision,
        **stored_thresholds(run, coverage, min_precision),
    )


def _scores(run: Run, model: TrainedModel, prior: str | None) -> CalibrationScores | None:
    """Return the scores of the run's calibration images as the exported model predicts them; None: there are none."""
    found = run.calibration_predictions
    if found is None or (model.adjustment is None and run.adjustment is not None):  # a normalised network has none
        return None
    if prior is None:
        return read_calibration(run)
    assert model.adjustment is not None
    return score(one_per_group(replace(found, adjustment=model.adjustment.double().numpy())))


def _published(
    run: Run, model: TrainedModel, name: str, licence: str | None, kept: StoredDecisions, decided: dict[str, Any]
) -> Published:
    """Return what the card says; results are those of the model as it is loaded, with its adjustment."""
    stored = run.adjustment if kept.prior is None else None
    results, notes = run.summary.model_dump(mode="json", exclude_unset=True), list(run.summary.notes)
    if model.adjustment is not None:
        results |= summarise(_adjusted(run, model))
    if stored is not None:
        notes.append(f"The logits were adjusted after training: {stored.describe()}.")
    if stored is not None and stored.kind == "tau-normalised":
        notes.append("Results by class are those before the weights of the last layer were normalised.")
        extra = stored.model_extra or {}
        results |= {key: extra[key] for key in ("accuracy", "balanced_accuracy") if key in extra}
        results |= {"balanced_accuracy_interval": extra.get("balanced_accuracy_interval"), "accuracy_interval": None}
    return Published(
        name=name,
        source=run.config.data.source,
        results=results,
        train_counts=run.predictions.train_counts.tolist(),
        config=run.config,
        card=model.card,
        notes=tuple(notes),
        licence=licence,
        grouped=run.predictions.groups is not None,
        decisions=kept,
        decided=decided,
    )


def _over_seeds(members: Sequence[Run]) -> list[str]:
    """Return a note on the runs of a comparison, of which a card describes the first."""
    if len(members) == 1:
        return []
    mean = sum(run.summary.balanced_accuracy for run in members) / len(members)
    return [
        f"The results are those of one run, seed {members[0].config.seed}; the mean balanced accuracy of all "
        f"{len(members)} seeds of the comparison is {mean:.1%}."
    ]


def _adjusted(run: Run, model: TrainedModel) -> Predictions:
    assert model.adjustment is not None
    return replace(run.predictions, adjustment=model.adjustment.double().numpy())


def _config(run: Run, model: TrainedModel) -> dict[str, Any]:
    config, card = run.config, model.card
    return {
        "library_name": "evenhand",
        "evenhand_version": version("evenhand"),
        "architecture": card.model,
        "stem": card.stem,
        "head": card.head,
        "class_names": list(card.class_names),
        "train_counts": run.predictions.train_counts.tolist(),
        "objective": str(config.objective),
        "imbalance": config.data.imbalance,
        "backbone": card.backbone and {"sha256": card.backbone["sha256"]},
    }


def _preprocessing(model: TrainedModel) -> dict[str, Any]:
    card = model.card
    return {
        "channels": card.channels,
        "image_size": card.image_size,
        "resize_rule": "stretch" if card.stretch else "shorter",
        "max_aspect": MAX_ASPECT,
        "interpolation": card.interpolation,
        "crop": "center",
        **{key: value for key, value in asdict(card.preprocessing).items() if key in ("crop_size", "mean", "std")},
    }


def _adjustment(run: Run, model: TrainedModel, prior: str | None) -> dict[str, Any]:
    assert model.adjustment is not None
    added = model.adjustment.double().tolist()
    if prior is not None:
        return {"kind": "prior", "chosen": "given", "prior": os.path.basename(prior), "added_to_logits": added}
    stored = run.adjustment or own_adjustment(run)
    kept = {} if stored is None else stored.model_dump(mode="json", include=set(Adjustment.model_fields))
    # A file that the prior was read from may name a folder of this machine.
    kept |= {"prior": os.path.basename(kept["prior"])} if kept.get("prior") else {}
    return {"kind": "post-hoc", "chosen": "given", **kept, "added_to_logits": added}


@contextlib.contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `out`, which gets its name at the end or is removed after an error."""
    try:
        if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
            raise EvenhandError(f"{out} is not an empty folder; choose another for the model.")
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent))
    except OSError as error:
        raise EvenhandError(f"Cannot write {out}: {reason(error)}; choose another folder.") from error
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        temporary.replace(out)
    except OSError as error:
        raise EvenhandError(f"Cannot write {out}: {reason(error)}; choose another folder.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now
