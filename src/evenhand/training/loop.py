"""The one loop: epochs of steps, validation, selection, and a state on disk after each."""

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from evenhand.core.errors import EvenhandError
from evenhand.core.seeds import stream
from evenhand.data.batches import Batches
from evenhand.data.table import FilePixels
from evenhand.losses.functional import complement_entropy
from evenhand.metrics.classification import accuracy, balanced_accuracy, confusion_matrix
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.models.build import build_model
from evenhand.models.classifier import Classifier
from evenhand.models.fused_head import defer_logits
from evenhand.models.heads import replace_head
from evenhand.objectives.objective import Objective, build_objective
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow, precision_name
from evenhand.training._backbones import weights_told
from evenhand.training._pretrained import head_alone, parameter_groups
from evenhand.training._selection import ERROR, balanced_accuracy_error, kept_row
from evenhand.training._tensorboard import Board
from evenhand.training.checkpoint import (
    Card,
    fill_model,
    fill_optimizer,
    load_state,
    save_state,
    save_weights,
    what_state_fixes,
)
from evenhand.training.prepare import Prepared
from evenhand.training.second_stage import body_weights, freeze_body, keep_body, load_start

CHECK_EVERY = 50
"""Steps between two looks at the losses, which stay on the device until then."""


class Callback:
    """Who looks on: told of steps and epochs. This one says nothing; one that raises ends the run between two steps."""

    def prepared(self, resolved: dict[str, Any]) -> None:
        """The data are there; resolved is what they and the machine decided where the config leaves it open."""

    def begin(self, told: list[dict[str, Any]]) -> None:
        """Training begins; told is what each part of the objective does, by shot group."""

    def step(self, epoch: int, done: int, total: int) -> None:
        """So many steps of this epoch are done."""

    def epoch(self, row: EpochRow) -> None:
        """An epoch is done and on disk."""


@dataclass
class Trainer:
    """A run in memory: network, optimizers, and how far it is."""

    config: Config
    run: Run
    prepared: Prepared
    fabric: Fabric
    objective: Objective = field(init=False)
    model: nn.Module = field(init=False)
    optimizers: list[Optimizer] = field(init=False)
    card: Card = field(init=False)
    history: list[EpochRow] = field(default_factory=list)
    best: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config, prepared = self.config, self.prepared
        num_classes = prepared.table.num_classes
        counts = np.bincount(prepared.table.labels[prepared.splits.train], minlength=num_classes)
        self.objective = build_objective(
            config.objective, counts=counts.tolist(), epochs=config.epochs, device=self.fabric.device
        )
        if self.fabric.world_size > 1 and not self.objective.many_devices:
            raise EvenhandError(f"{config.objective} cannot be trained on several devices; use --devices 1.")
        with torch.random.fork_rng():
            torch.manual_seed(_seed(config.seed, "initialisation"))
            network = self._build()
        load_start(network, config, prepared.table.class_names)
        if config.start.train == "head":
            freeze_body(network)
        self.card = Card(
            model=network.name,
            stem=network.stem,
            class_names=prepared.table.class_names,
            channels=prepared.images.channels,
            image_size=prepared.images.image_size,
            preprocessing=prepared.preprocessing,
            stretch=isinstance(prepared.table.pixels, FilePixels) and prepared.table.pixels.stretch,
            head=self.objective.head,
            interpolation=prepared.interpolation,
            backbone=None if prepared.backbone is None else weights_told(prepared.backbone.weights),
        )
        if self.objective.defers_logits and not config.compute.compile:
            defer_logits(network)
        torch.manual_seed(_seed(config.seed, "dropout"))
        network = network.to(memory_format=torch.channels_last)
        # A last layer alone is so little work that an optimizer in one pass over its weights is worth it.
        fused = prepared.backbone is not None and self.fabric.device.type in ("cpu", "cuda")
        settings = {**config.optimizer.model_dump(exclude={"layer_decay"}), "fused": fused or None}
        optimizers = [
            SGD(parameter_groups(network, config.optimizer.layer_decay), **settings)
            for _ in range(self.objective.num_optimizers)
        ]
        module: Any = torch.compile(network) if config.compute.compile else network
        self.model, *self.optimizers = self.fabric.setup(module, *optimizers)

    def _build(self) -> Classifier:
        config, prepared = self.config, self.prepared
        num_classes = prepared.table.num_classes
        if prepared.backbone is not None:
            self.objective.require_features()
            network = head_alone(prepared.backbone, num_classes)
        else:
            network = build_model(
                config.model.name,
                num_classes=num_classes,
                channels=prepared.images.channels,
                image_size=prepared.preprocessing.crop_size,
                stem=config.model.stem,
                pretrained=body_weights(config),
            )
        return replace_head(network, self.objective.head)

    def resume(self) -> int:
        """Take up the state on disk; return how many epochs are done."""
        state = load_state(self.run.state, self.config)
        try:
            fill_model(self.model, state["model"])
            for optimizer, content in zip(self.optimizers, state["optimizers"], strict=True):
                fill_optimizer(optimizer, content)
            torch.set_rng_state(state["rng"])
            if self.fabric.device.type == "cuda":
                torch.cuda.set_rng_state(state["cuda_rng"], self.fabric.device)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise EvenhandError(f"The state in {self.run.path} does not fit its config; start the run anew.") from error
        self.history, self.best = state["history"], state["best"]
        return int(state["epoch"])

    def train(self, start: int, callback: Callback) -> None:
        """Run the epochs from `start` on."""
        config, prepared = self.config, self.prepared
        train = prepared.batches("train", config.batch_size, **self.serving())
        board = Board(self.run.tensorboard) if config.compute.tensorboard and self.fabric.is_global_zero else None
        held_out = {name: prepared.batches(name, 512, **self.serving()) for name in self._judged()}
        callback.prepared(self.resolved())
        callback.begin(self.told())
        for epoch in range(start, config.epochs):
            began = time.perf_counter()
            loss = self._epoch(epoch, train, callback)
            seconds = time.perf_counter() - began
            row: EpochRow = {
                "epoch": epoch + 1,
                "lr": self.optimizers[0].param_groups[-1]["lr"],  # of the last layer
                "train_loss": loss,
                "seconds": seconds,
                "images_per_second": len(train.rows) / seconds,
            }
            self._check_weights(epoch + 1)
            for name, batches in held_out.items():
                row |= self._judge(name, *self.predict(batches)[:2])
            self._keep(row)
            if board:
                board.write(row)
            callback.epoch(row)
        if self.fabric.is_global_zero:
            save_weights(self.run.last_weights, bare(self.model), self.card)
        self.fabric.barrier()

    def resolved(self) -> dict[str, Any]:
        """Return what was decided where the config leaves it open."""
        return {**self.prepared.resolved(), "precision": precision_name(self.fabric._precision.precision)}

    def told(self) -> list[dict[str, Any]]:
        """Say what each part of the objective does to the classes of each shot group."""
        return self.objective.describe(find_shot_groups(self.prepared.splits.counts))

    def serving(self) -> dict[str, Any]:
        """Return how batches are served to this process."""
        fabric, workers = self.fabric, self.config.compute.workers
        return {"device": fabric.device, "workers": workers, "rank": fabric.global_rank, "world": fabric.world_size}

    def _judged(self) -> list[Any]:
        return (["val"] if len(self.prepared.splits.val) else []) + (["test"] if self.config.track_test else [])

    def _epoch(self, epoch: int, batches: Batches, callback: Callback) -> float:
        config, total = self.config, len(batches)
        self.model.train()
        if config.start.train == "head":
            keep_body(bare(self.model))
        losses: list[Tensor] = []
        mean = 0.0
        order = self.objective.order(self.prepared.table.labels[self.prepared.splits.train], config.seed, epoch)
        served = zip(batches.train(config.seed, epoch, order), batches.batch_sizes(), strict=True)
        for number, ((images, labels, _), size) in enumerate(served):
            step = epoch * total + number + 1
            lr = config.schedule.lr(config.optimizer.lr, step, total, config.epochs)
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = lr * group["rate"]
            rank = self.fabric.global_rank
            images, target = self.objective.transform(images, labels, config.seed, epoch, number, rank)
            images = _channels_last(images)
            # Gradients are averaged over processes, so a process counts by its share of the batch.
            share = len(labels) * self.fabric.world_size / size

            def backward(loss: Tensor, *, retain_graph: bool = False, share: float = share) -> None:
                self.fabric.backward(loss if share == 1 else loss * share, retain_graph=retain_graph)

            loss = self.objective.step(self.model, images, target, self.optimizers, backward, epoch=epoch)
            losses.append(loss * share)
            if len(losses) == CHECK_EVERY or number + 1 == total:
                mean += self._check(losses, step) / total
                losses.clear()
            callback.step(epoch + 1, number + 1, total)
        return mean

    def _check(self, losses: list[Tensor], step: int) -> float:
        """Return the sum of the losses; a NaN or inf ends the run."""
        together: Any = self.fabric.all_reduce(torch.stack(losses).float(), reduce_op="mean")
        values: Tensor = together.cpu()
        wrong = (~values.isfinite()).nonzero()
        if len(wrong):
            first = step - len(losses) + 1 + int(wrong[0])
            raise self._diverged(f"The loss became {values[int(wrong[0])].item()} at step {first}")
        return float(values.sum())

    def _check_weights(self, epoch: int) -> None:
        """Refuse weights that the last step of an epoch broke: no loss has seen them, and they must not be kept."""
        finite = torch.stack([tensor.isfinite().all() for tensor in self.model.state_dict().values()]).all()
        together: Any = self.fabric.all_reduce(finite.float(), reduce_op="mean")
        if together < 1:
            raise self._diverged(f"The weights became NaN or infinite at the last step of epoch {epoch}")

    def _diverged(self, what: str) -> EvenhandError:
        kept = f"the state after epoch {len(self.history)} is kept" if self.history else "no epoch was finished"
        lower = self.config.optimizer.lr / 10
        return EvenhandError(
            f"{what}; {kept}; try a lower learning rate (--set optimizer.lr={lower:g}) or --precision float32."
        )

    @torch.no_grad()
    def predict(self, batches: Batches) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float16]]:
        """Return logits (n, K), labels (n,) and features (n, F) of all rows in their order, each row exactly once."""
        # Without the wrapper of several devices, which would wait for a process that has no rows to predict.
        network = bare(self.model).eval()
        if self.fabric.world_size > 1:
            for buffer in network.buffers():
                torch.distributed.broadcast(buffer, 0)
        empty = torch.empty(0, device=self.fabric.device)  # a process may get no row of a small set
        parts = [
            (empty.view(0, self.prepared.table.num_classes), empty.long(), empty.half().view(0, network.num_features))
        ]
        for images, labels, _ in batches.test():
            images = _channels_last(images)
            with self.fabric.autocast():
                logits, features = network(images, with_features=True)
            parts.append((logits.float(), labels, features.half()))
        logits, labels, features = (torch.cat(each) for each in zip(*parts, strict=True))
        return self._gather(logits), self._gather(labels), self._gather(features)

    def _gather(self, local: Tensor) -> NDArray[Any]:
        """Put the rows of all processes back into one array: row i was done by process i mod world."""
        world = self.fabric.world_size
        if world == 1:
            return np.asarray(local.cpu())
        counts: Any = self.fabric.all_gather(torch.tensor(len(local), device=local.device))
        longest = int(counts.max())
        padded = local.new_zeros((longest, *local.shape[1:]))
        padded[: len(local)] = local
        together: Any = self.fabric.all_gather(padded)
        rows = together.transpose(0, 1).flatten(0, 1)
        valid = (torch.arange(longest, device=local.device)[:, None] < counts[None, :]).flatten()
        return np.asarray(rows[valid].cpu())

    def _judge(self, name: str, logits: NDArray[np.float32], labels: NDArray[np.int64]) -> EpochRow:
        predicted = logits.argmax(1)
        confusion = confusion_matrix(labels, predicted, logits.shape[1])
        row = {f"{name}_accuracy": accuracy(confusion), f"{name}_balanced_accuracy": balanced_accuracy(confusion)}
        if name == "val":
            if self.config.select == "late":
                row[ERROR] = balanced_accuracy_error(confusion)
            if not np.isfinite(logits).all():
                raise self._diverged(f"Validation logits became NaN or infinite in epoch {len(self.history) + 1}")
            entropy = complement_entropy(torch.from_numpy(logits), torch.from_numpy(labels), reduction="none").numpy()
            for kind, chosen in (("right", predicted == labels), ("wrong", predicted != labels)):
                row[f"val_complement_entropy_{kind}"] = float(entropy[chosen].mean()) if chosen.any() else math.nan
        return row

    def _keep(self, row: EpochRow) -> None:
        """Write down an epoch: the best weights first, the state last, so that a killed run redoes what is missing."""
        self.history.append(row)
        for metric in ("balanced_accuracy", "accuracy"):
            value = row.get(f"val_{metric}")
            if value is not None and value > self.best.get(metric, -1.0):
                self.best |= {metric: value, f"{metric}_epoch": row["epoch"]}
        if self.fabric.is_global_zero:
            if self.config.select != "last" and kept_row(self.history, self.config.select) is row:
                save_weights(self.run.best_weights, bare(self.model), self.card)
            self.run.write_history(self.history)
            save_state(
                self.run.state,
                {
                    "config": what_state_fixes(self.config),
                    "epoch": int(row["epoch"]),
                    "model": self.model.state_dict(),
                    "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
                    "rng": torch.get_rng_state(),
                    **self._cuda_rng(),
                    "history": self.history,
                    "best": self.best,
                },
            )
        self.fabric.barrier()

    def _cuda_rng(self) -> dict[str, Tensor]:
        device = self.fabric.device
        return {"cuda_rng": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}


def _channels_last(batch: Tensor) -> Tensor:
    """Lay images out as the network likes them; features have no channels."""
    return batch.contiguous(memory_format=torch.channels_last) if batch.ndim == 4 else batch


def bare(model: nn.Module) -> Classifier:
    """Return the network inside the wrappers of Fabric and of torch.compile."""
    module: Any = getattr(model, "_original_module", model) if not hasattr(model, "module") else model.module
    return getattr(module, "_orig_mod", module)  # type: ignore[no-any-return]


def _seed(seed: int, name: str) -> int:
    return int(stream(seed, name).integers(2**63 - 1))
