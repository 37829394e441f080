"""A run as a folder: made once, never overwritten, continued where it stopped, and judged at its end."""

import hashlib
import json
import logging
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.files import replacing
from evenhand.core.processor import announces_amx, has_tiles
from evenhand.core.seeds import stream
from evenhand.data.splits import read_splits, write_splits
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.summary import summarise
from evenhand.models.build import known_model
from evenhand.runs.config import Config, load_config, save_config
from evenhand.training.checkpoint import load_weights
from evenhand.training.objectives import canonical_objective
from evenhand.training.setup import Prepared, prepare
from evenhand.training.tensorboard import require_tensorboard
from evenhand.training.trainer import Callback, Trainer, bare

MOST_FEATURES = 10_000
MOST_ERRORS, RIGHT_ONES, LARGEST_THUMBNAIL = 200, 5, 96
PACKAGES = ("evenhand", "torch", "torchvision", "lightning-fabric", "numpy", "pillow")


@dataclass(frozen=True)
class RunFolder:
    """The files of a run."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def finished(self) -> bool:
        """Whether it was judged, which is the last thing a run does."""
        return (self.path / "summary.json").is_file()

    def config(self) -> Config:
        """Read its config."""
        if not (self.path / "config.yaml").is_file():
            raise EvenhandError(f"{self.path} is no run: it has no config.yaml.")
        return load_config(self.path / "config.yaml")

    def summary(self) -> dict[str, Any]:
        """Read its judgement."""
        if not self.finished:
            raise EvenhandError(f"{self.path} is not finished; continue it with evenhand train --resume {self.path}.")
        try:
            content: dict[str, Any] = json.loads((self.path / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise EvenhandError(f"Cannot read {self.path / 'summary.json'}: {error}.") from error
        return content


def train_run(config: Config, folder: Path | str, *, command: str = "", callback: Callback | None = None) -> RunFolder:
    """Train from the beginning into a new folder.

    Args:
        config: everything the run needs.
        folder: must not exist, or be empty.
        command: what was typed, kept on top of the config.
        callback: who looks on.

    Raises:
        EvenhandError: if the folder holds something, the data do not fit, or the loss diverges.
    """
    run = RunFolder(Path(folder))
    _check(config)
    _refuse_used(run.path)  # before other processes join, so that none takes what the first one writes for another run
    fabric = start_fabric(config)
    prepared = prepare(config, progress=fabric.is_global_zero)
    trainer = Trainer(config, run.path, prepared, fabric)
    if fabric.is_global_zero:
        save_config(config, run.path / "config.yaml", command)
    return _finish(run, trainer, 0, callback or Callback())


def resume_run(folder: Path | str, *, callback: Callback | None = None) -> RunFolder:
    """Continue a run after its last finished epoch; a finished run is left as it is."""
    run = RunFolder(Path(folder))
    config = run.config()
    if run.finished:
        return run
    fabric = start_fabric(config)
    trainer = Trainer(config, run.path, prepare(config, progress=fabric.is_global_zero), fabric)
    if fabric.is_global_zero:
        for left_over in run.path.rglob(".*.part"):  # of a process that was killed while it wrote
            left_over.unlink(missing_ok=True)
    start = 0
    if (run.path / "state" / "state.pt").is_file():
        _refuse_changed(run.path / "splits.json", trainer.prepared)
        start = trainer.resume()
    return _finish(run, trainer, start, callback or Callback())


def _check(config: Config) -> None:
    """Refuse what no data can mend, before any are read."""
    canonical_objective(config.objective)
    known_model(config.model.name)
    if config.compute.tensorboard:
        require_tensorboard()


def _refuse_used(path: Path) -> None:
    try:
        used = path.exists() and (not path.is_dir() or any(path.iterdir()))
    except OSError as error:
        raise EvenhandError(f"Cannot look into {path}: {error.strerror}; choose another folder with --out.") from error
    if used and (path / "config.yaml").is_file():
        raise EvenhandError(f"{path} holds a run; continue it with --resume {path}, or choose another with --out.")
    if used:
        raise EvenhandError(f"{path} exists and is no empty folder; choose another with --out.")


def _refuse_changed(path: Path, prepared: Prepared) -> None:
    """Refuse to go on with other images: what was trained on could come to stand in the test set."""
    before, now = read_splits(path, prepared.table), prepared.splits
    if not all(np.array_equal(getattr(before, name), getattr(now, name)) for name in ("train", "val", "test")):
        raise EvenhandError(f"{prepared.table.name} has changed since {path.parent} began; start the run anew.")


def _finish(run: RunFolder, trainer: Trainer, start: int, callback: Callback) -> RunFolder:
    if trainer.fabric.is_global_zero and not start:  # a run that was killed early may lack these
        _write_json(run.path / "environment.json", _environment(trainer.fabric, trainer.config))
        write_splits(run.path / "splits.json", trainer.prepared.table, trainer.prepared.splits)
    trainer.fabric.barrier()
    trainer.train(start, callback)
    judge(run, trainer)
    return run


def judge(run: RunFolder, trainer: Trainer) -> None:
    """Load the selected weights, predict the test set, and write everything that later stages read."""
    config, prepared, fabric = trainer.config, trainer.prepared, trainer.fabric
    chosen = "last" if config.select == "last" else "best"
    tensors, _ = load_weights(run.path / "weights" / f"{chosen}.safetensors")
    try:
        bare(trainer.model).load_state_dict(tensors)
    except RuntimeError as error:
        raise EvenhandError(f"The {chosen} weights in {run.path} are not those of its {config.model.name}.") from error
    batches = prepared.batches("test", 512, **trainer.serving())
    logits, targets, features = trainer.predict(batches)
    if fabric.is_global_zero:
        table, rows = prepared.table, prepared.splits.test
        predictions = Predictions(logits, targets, table.ids[rows], table.class_names, prepared.splits.counts)
        predictions.save(run.path / "predictions.npz")
        some = np.sort(stream(config.seed, "features").permutation(len(rows))[:MOST_FEATURES])
        with replacing(run.path / "features.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, features=features[some], targets=targets[some], ids=table.ids[rows[some]])
        _write_thumbnails(run.path / "thumbnails.npz", prepared, predictions)
        summary = {
            "source": table.name,
            "imbalance": config.data.imbalance,
            "objective": config.objective,
            "model": config.model.name,
            "seed": config.seed,
            "epochs": len(trainer.history),
            "selected": {"rule": config.select, **_selected(trainer)},
            "seconds_per_epoch": float(np.median([row["seconds"] for row in trainer.history])),
            "notes": list(prepared.notes),
            **summarise(predictions, seed=config.seed),
        }
        _write_json(run.path / "summary.json", summary)
    fabric.barrier()


def _selected(trainer: Trainer) -> dict[str, float]:
    """Say which epoch was taken, and which one plain accuracy would have picked."""
    if trainer.config.select == "last":
        return {"epoch": len(trainer.history)}
    best = trainer.best
    return {
        "epoch": int(best["balanced_accuracy_epoch"]),
        "val_balanced_accuracy": best["balanced_accuracy"],
        "epoch_by_accuracy": int(best["accuracy_epoch"]),
    }


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
        reason = " ".join(str(error).split()).rstrip(".")
        raise EvenhandError(f"Cannot run on {compute.devices} x {compute.accelerator}: {reason}.") from error
    fabric.launch()
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


def _environment(fabric: Fabric, config: Config) -> dict[str, Any]:
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
        "seed": config.seed,
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


def _write_thumbnails(path: Path, prepared: Prepared, predictions: Predictions) -> None:
    """Keep small pictures of the most confident errors and of a few right ones of each class."""
    predicted = predictions.predicted()
    confidence = np.exp(predictions.log_probabilities().max(1))
    wrong = np.flatnonzero(predicted != predictions.targets)
    shown = wrong[np.argsort(-confidence[wrong], kind="stable")][:MOST_ERRORS]
    right = [
        np.flatnonzero((predicted == k) & (predictions.targets == k))[:RIGHT_ONES]
        for k in range(predictions.num_classes)
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
    with replacing(path) as temporary, temporary.open("wb") as file:
        images = np.stack(pictures) if pictures else np.zeros((0, 1, 1, prepared.images.channels), np.uint8)
        np.savez(file, images=images, index=shown, ids=predictions.ids[shown])


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n", "utf-8")
