"""Training into a folder: made once, never overwritten, continued where it stopped, and judged at its end."""

import hashlib
import logging
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.locks import LOCK, claimed
from evenhand.core.memory import keep_freed_memory
from evenhand.core.processor import announces_amx, has_tiles
from evenhand.core.seeds import stream
from evenhand.data.table import Split
from evenhand.metrics.predictions import Predictions
from evenhand.models.build import require_model
from evenhand.runs.config import Config
from evenhand.runs.failures import ended_at_worst
from evenhand.runs.run import Run
from evenhand.runs.schemas import Features, SplitIds, Thumbnails, precision_name
from evenhand.runs.summary import summarise
from evenhand.training._adjusting import Adjusted, at_the_end, beside, describe_fitted, selected_with
from evenhand.training._backbones import keep_backbone, weights_told
from evenhand.training._selection import selection
from evenhand.training._tensorboard import require_tensorboard
from evenhand.training.checkpoint import load_weights
from evenhand.training.loop import Callback, Trainer, bare
from evenhand.training.prepare import Prepared, prepare
from evenhand.training.second_stage import pin_start

MOST_FEATURES = 10_000
MOST_ERRORS, MOST_RIGHT, RIGHT_ONES, LARGEST_THUMBNAIL = 200, 200, 5, 96
PACKAGES = ("evenhand", "torch", "torchvision", "lightning-fabric", "numpy", "pillow")


def train_run(config: Config, folder: Path | str, *, command: str = "", callback: Callback | None = None) -> Run:
    """Train from the beginning into a new folder, which no other process can train into meanwhile.

    Args:
        config: everything the run needs.
        folder: must not exist, or be empty.
        command: what was typed, kept on top of the config.
        callback: who looks on.

    Raises:
        EvenhandError: if the folder holds something, the data do not fit, or the loss diverges.
    """
    with holding(folder) as path:
        return begin_run(config, path, command=command, callback=callback)


def resume_run(folder: Path | str, *, callback: Callback | None = None) -> Run:
    """Continue a run after its last finished epoch; a finished run is left as it is."""
    run = Run(Path(folder))
    if run.config and run.finished:  # a folder that is no run is refused before it is held
        return run
    with holding(folder) as path:
        return continue_run(path, callback=callback)


def is_first_process() -> bool:
    """Return whether this process speaks for a run that several share."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


@contextmanager
def holding(folder: Path | str, *, number: bool = False) -> Iterator[Path]:
    """Hold the folder of a run as :func:`~evenhand.core.locks.claimed` does; of several processes, the first does."""
    if is_first_process():
        with claimed(folder, number=number) as path:
            yield path
    else:
        yield Path(folder)


def begin_run(config: Config, folder: Path, *, command: str = "", callback: Callback | None = None) -> Run:
    """Train from the beginning into a folder that is held."""
    _check(config)
    if is_first_process():
        _refuse_used(Run(folder))
    config = pin_start(config)
    fabric = start_fabric(config)
    run = Run(Path(fabric.broadcast(str(folder))))  # the first process may have taken one with a number
    prepared = prepare(config, progress=fabric.is_global_zero)
    trainer = Trainer(config, run, prepared, fabric)
    if fabric.is_global_zero:
        run.write_config(config, command, trainer.resolved())
    return _finish(run, trainer, 0, callback or Callback())


def continue_run(folder: Path, *, callback: Callback | None = None) -> Run:
    """Continue a run whose folder is held."""
    run = Run(folder)
    if run.finished:
        return run
    config = _as_begun(run)
    pin_start(config)
    fabric = start_fabric(config)
    prepared = prepare(config, progress=fabric.is_global_zero)
    _refuse_other_weights(run, prepared)
    trainer = Trainer(config, run, prepared, fabric)
    if fabric.is_global_zero:
        for left_over in run.path.rglob(".*.part"):  # of a process that was killed while it wrote
            left_over.unlink(missing_ok=True)
    start = 0
    if run.can_resume:
        _refuse_changed(run, trainer.prepared)
        start = trainer.resume()
    return _finish(run, trainer, start, callback or Callback())


def _refuse_other_weights(run: Run, prepared: Prepared) -> None:
    """Refuse to go on with other pretrained weights than those of the first epochs."""
    began, now = run.environment.weights, prepared.pretrained
    if began is not None and now is not None and began.get("sha256") != now.weights.sha256:
        raise EvenhandError(
            f"The weights of {now.name} ({now.weights.source}) are no longer those that {run.path} began with; "
            "start it anew."
        )


def _as_begun(run: Run) -> Config:
    """Return the config of a run, in the precision it began with where that was left to the machine."""
    config, began = run.config, precision_name(run.environment.precision)
    if config.compute.precision != "auto" or began == "unknown":
        return config
    return config.model_copy(update={"compute": config.compute.model_copy(update={"precision": began})})


def _check(config: Config) -> None:
    """Refuse what no data can mend, before any are read."""
    require_model(config.model.name)
    if config.compute.tensorboard:
        require_tensorboard()


def _refuse_used(run: Run) -> None:
    path = run.path
    try:
        used = path.exists() and (not path.is_dir() or any(each.name != LOCK for each in path.iterdir()))
    except OSError as error:
        raise EvenhandError(f"Cannot look into {path}: {reason(error)}; choose another folder with --out.") from error
    if used and run.begun:
        raise EvenhandError(f"{path} holds a run; continue it with --resume {path}, or choose another with --out.")
    if used:
        raise EvenhandError(f"{path} exists and is no empty folder; choose another with --out.")


def _refuse_changed(run: Run, prepared: Prepared) -> None:
    """Refuse to go on with other images: what was trained on could come to stand in the test set."""
    if run.splits.fingerprint != split_ids(prepared).fingerprint:
        raise EvenhandError(f"{prepared.table.name} has changed since {run.path} began; start the run anew.")


def split_ids(prepared: Prepared) -> SplitIds:
    """Return the ids of the images of each split."""
    ids, splits = prepared.table.ids, prepared.splits
    train, val, test = (tuple(ids[rows].tolist()) for rows in (splits.train, splits.val, splits.test))
    return SplitIds(source=prepared.table.name, train=train, val=val, test=test)


def _finish(run: Run, trainer: Trainer, start: int, callback: Callback) -> Run:
    if trainer.fabric.is_global_zero and not start:  # a run that was killed early may lack these
        if trainer.prepared.backbone is not None:
            keep_backbone(trainer.prepared.backbone)
        run.write_environment(_environment(trainer))
        run.write_splits(split_ids(trainer.prepared))
    trainer.fabric.barrier()
    trainer.train(start, callback)
    judge(run, trainer)
    return run


def judge(run: Run, trainer: Trainer) -> None:
    """Load the selected weights, predict validation and test, and write everything that later stages read."""
    config, prepared, fabric = trainer.config, trainer.prepared, trainer.fabric
    tensors, _ = load_weights(run.selected_weights)
    try:
        bare(trainer.model).load_state_dict(tensors)
    except RuntimeError as error:
        raise EvenhandError(
            f"The {config.select} weights in {run.path} are not those of its {config.model.name}."
        ) from error
    validation = _predict(trainer, "val")[0] if len(prepared.splits.val) else None
    predictions, features = _predict(trainer, "test")
    if fabric.is_global_zero:
        fitted, adjusted = trainer.objective.fit_after(validation), {}
        if fitted is not None:
            predictions = replace(predictions, adjustment=fitted.values)
            adjusted = beside(Adjusted(predictions, describe_fitted(fitted)))
            run.write_adjustment(adjusted["adjustment"])
        if validation is not None:
            run.write_validation_predictions(validation)
        run.write_predictions(predictions)
        some = np.sort(stream(config.seed, "features").permutation(len(features))[:MOST_FEATURES])
        run.write_features(Features(features[some], predictions.targets[some], predictions.ids[some]))
        run.write_thumbnails(_thumbnails(prepared, predictions))
        selected = selection(trainer.history, config.select)
        if fitted is not None:
            selected = selected_with(selected, validation, fitted.values)
        summary = {
            "source": prepared.table.name,
            "imbalance": config.data.imbalance,
            "objective": config.objective,
            "model": config.model.name,
            "seed": config.seed,
            **({} if config.start.weights is None else {"parent": config.start.model_dump(mode="json")}),
            "epochs": len(trainer.history),
            "selected": selected,
            "seconds_per_epoch": float(np.median([row["seconds"] for row in trainer.history])),
            "resolved": trainer.resolved(),
            "parts": trainer.told(),
            "notes": [*prepared.notes, *trainer.objective.notes(int(selected["epoch"])), *at_the_end(adjusted)],
            **adjusted,
            **summarise(predictions),
        }
        worst = ended_at_worst(trainer.history, summary["selected"]["epoch"])
        summary["failures"] = [*([worst] if worst else []), *summary["failures"]]
        run.write_summary(summary)
    fabric.barrier()


def _predict(trainer: Trainer, split: Split) -> tuple[Predictions, NDArray[np.float16]]:
    """Return what the network says about the images of a split, and its last features."""
    prepared = trainer.prepared
    logits, targets, features = trainer.predict(prepared.batches(split, 512, **trainer.serving()))
    table, rows = prepared.table, getattr(prepared.splits, split)
    predictions = Predictions(
        logits,
        targets,
        table.ids[rows],
        table.class_names,
        prepared.splits.counts,
        groups=None if table.groups is None else table.groups[rows],
        fitted_counts=np.array(trainer.objective.stats.counts),
    )
    return predictions, features


def start_fabric(config: Config) -> Fabric:
    """Make and launch Fabric for what a config asks for."""
    compute = config.compute
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    accelerator = compute.accelerator
    if accelerator == "auto" and not torch.cuda.is_available() and not torch.backends.mps.is_available():
        accelerator = "cpu"
    devices: Any = compute.devices
    if devices == "auto" and accelerator == "cpu":
        devices = int(os.environ.get("WORLD_SIZE", "1")) // compute.nodes or 1
    if compute.sync_batchnorm and accelerator == "cpu":
        raise EvenhandError("--sync-batchnorm needs GPUs: torch cannot do it on CPUs.")
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=compute.nodes,
            precision=_precision(compute.precision, accelerator),
        )
    except (ValueError, TypeError, RuntimeError) as error:
        raise EvenhandError(f"Cannot run on {compute.devices} x {compute.accelerator}: {reason(error)}.") from error
    fabric.launch()
    if fabric.device.type == "cpu":
        keep_freed_memory()
    return fabric


def _precision(wanted: str, accelerator: str) -> Any:
    if wanted == "auto":
        if accelerator == "cpu":
            native = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
            wanted = "bfloat16" if native() and _has_bfloat16_units() else "float32"
        else:
            wanted = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float32"
    return {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}[wanted]


def _has_bfloat16_units() -> bool:
    """Whether the processor computes in bfloat16 itself; emulation would be slower than float32.

    Where AMX is announced and cannot run, what is left of bfloat16 took twice as long as float32 on a small network.
    """
    if announces_amx() and not has_tiles():
        return False
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def _environment(trainer: Trainer) -> dict[str, Any]:
    fabric, pretrained = trainer.fabric, trainer.prepared.pretrained
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in PACKAGES},
        "commit": _commit(),
        "code": code_fingerprint(),
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(fabric.device),
        "devices": fabric.world_size,
        "precision": fabric._precision.precision,
        "seed": trainer.config.seed,
        **({} if pretrained is None else {"weights": weights_told(pretrained.weights)}),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _commit() -> str | None:
    """Return the commit of the checkout that this package runs from, if it is one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def code_fingerprint() -> str:
    """Return a hash of the package's own code."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _thumbnails(prepared: Prepared, predictions: Predictions) -> Thumbnails:
    """Return small pictures of the most confident errors and of a few right ones of each class."""
    predicted = predictions.predicted()
    confidence = np.exp(predictions.log_probabilities().max(1))
    wrong = np.flatnonzero(predicted != predictions.targets)
    shown = wrong[np.argsort(-confidence[wrong], kind="stable")][:MOST_ERRORS]
    each = max(1, min(RIGHT_ONES, MOST_RIGHT // predictions.num_classes))
    right = [
        np.flatnonzero((predicted == k) & (predictions.targets == k))[:each] for k in range(predictions.num_classes)
    ]
    shown = np.concatenate([shown, *right])
    pictures: list[NDArray[np.uint8]] = []
    for row in prepared.rows[prepared.splits.test[shown]]:
        picture = prepared.images[int(row)]
        height, width = picture.shape[:2]
        size = min(height, width)
        top, left = (height - size) // 2, (width - size) // 2
        step = -(-size // LARGEST_THUMBNAIL)
        pictures.append(picture[top : top + size : step, left : left + size : step])
    images = np.stack(pictures) if pictures else np.zeros((0, 1, 1, prepared.images.channels), np.uint8)
    return Thumbnails(images, shown, predictions.ids[shown])
