"""The training loop: epochs of steps, validation, selection, and a state on disk after each epoch."""

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from evenhand.core.errors import EvenhandError
from evenhand.data.batches import Batches
from evenhand.data.table import Split
from evenhand.losses.functional import complement_entropy
from evenhand.metrics.classification import accuracy, balanced_accuracy, confusion_matrix
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.models.classifier import Classifier
from evenhand.objectives.objective import Objective, build_objective
from evenhand.runs.class_weights import weights_in_order
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow, precision_name
from evenhand.training._selection import ERROR, balanced_accuracy_error, kept_row
from evenhand.training.card import Card
from evenhand.training.checkpoint import (
    fill_model,
    fill_optimizer,
    load_state,
    save_state,
    save_weights,
    weights_epoch,
    what_state_fixes,
)
from evenhand.training.fabric import fast_products
from evenhand.training.frozen_body import set_body_eval
from evenhand.training.network import build_network, make_card
from evenhand.training.optimizer import make_optimizers, set_learning_rate
from evenhand.training.prepare import PreparedData, RunSplit

CHECK_EVERY = 50
"""Steps between two checks of the losses, which stay on the device until then."""
EVALUATION_BATCH = 512


class Callback:
    """Progress callback. This one does nothing; one that raises ends the run between two steps."""

    def prepared(self, resolved: dict[str, Any]) -> None:
        """The data are ready; resolved has the settings that the config leaves open."""

    def begin(self, parts: list[dict[str, Any]]) -> None:
        """Training begins; parts describes the effect of each part of the objective, by shot group."""

    def step(self, epoch: int, done: int, total: int) -> None:
        """A step of this epoch is done."""

    def epoch(self, row: EpochRow) -> None:
        """An epoch is done and on disk."""


@dataclass
class Trainer:
    """A run in memory: network, optimizers and history."""

    config: Config
    run: Run
    prepared: PreparedData
    fabric: Fabric
    objective: Objective = field(init=False)
    model: nn.Module = field(init=False)
    optimizers: list[Optimizer] = field(init=False)
    card: Card = field(init=False)
    history: list[EpochRow] = field(default_factory=list)
    first_counted: int = field(init=False)
    """The first epoch that can be selected."""

    def __post_init__(self) -> None:
        config, prepared = self.config, self.prepared
        counts = np.bincount(prepared.table.labels[prepared.splits.train], minlength=prepared.table.num_classes)
        self.objective = build_objective(
            config.objective,
            counts=counts.tolist(),
            epochs=config.epochs,
            device=self.fabric.device,
            class_weights=weights_in_order(config.class_weights, prepared.table.class_names),
        )
        self.first_counted = self.objective.first_epoch
        if self.fabric.world_size > 1 and not self.objective.many_devices:
            raise EvenhandError(f"{config.objective} cannot be trained on several devices; use --devices 1.")
        network = build_network(config, prepared, self.objective)
        self.card = make_card(network, prepared, self.objective)
        # A fused optimizer pays for a last layer alone, which is little work otherwise.
        fused = prepared.backbone is not None and self.fabric.device.type in ("cpu", "cuda")
        optimizers = make_optimizers(network, config.optimizer, self.objective.num_optimizers, fused=fused)
        module: Any = torch.compile(network) if config.compute.compile else network
        self.model, *self.optimizers = self.fabric.setup(module, *optimizers)

    @property
    def precision(self) -> str:
        """The precision that the network is computed in, in the words of a config."""
        return precision_name(self.fabric._precision.precision)

    @property
    def batch_size(self) -> int:
        """Images per training step.

        On features, batches are larger where an epoch would have more steps than it may, and of nearly one size: a last
        one of a few images would move the weights as far as a full one does, in a direction of chance.
        """
        size, most, images = self.config.batch_size, self.config.head.most_steps, len(self.prepared.splits.train)
        if self.prepared.backbone is None or most is None:
            return size
        while images > size * most:
            size *= 2
        return math.ceil(images / math.ceil(images / size))

    @property
    def refits(self) -> bool:
        """Whether it is trained again on training and validation images together, when the epoch is selected."""
        splits, table = self.prepared.splits, self.prepared.table
        own = table.splits is not None and bool((table.splits == "val").any())
        images = len(splits.train) + len(splits.val)
        few = len(splits.val) > 0 and images < self.config.head.refit_below
        return few and not own and self.prepared.backbone is not None and self.config.objective.stage is None

    def refit(self, epochs: int) -> "Trainer":
        """Return a trainer of training and validation images together, after so many epochs from the beginning.

        Nothing is written before its end, so an interruption repeats it.
        """
        splits = self.prepared.splits
        together = replace(splits, train=np.sort(np.concatenate([splits.train, splits.val])), val=splits.val[:0])
        again = Trainer(self.config, self.run, replace(self.prepared, splits=together), self.fabric)
        batches = again.batches("train", again.batch_size)
        for epoch in range(epochs):
            with fast_products(self.fabric):
                again._epoch(epoch, batches, Callback())
            again._check_weights(epoch + 1)
        if self.fabric.is_global_zero:
            save_weights(self.run.refit_weights, bare(again.model), again.card, epoch=epochs)
        return again

    def resume(self) -> int:
        """Load the state on disk; return how many epochs are done."""
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
        self.history, done = state["history"], int(state["epoch"])
        if self.first_counted > 1 and self.config.select != "last":
            kept = weights_epoch(self.run.best_weights) or kept_row(self.history, self.config.select)["epoch"]
            # An older version kept the weights of an earlier epoch, so those of the epochs that count are lost.
            if kept < self.first_counted:
                self.first_counted = max(self.first_counted, done + 1)
        return done

    def train(self, start: int, callback: Callback) -> None:
        """Run the epochs from `start` on."""
        config, prepared = self.config, self.prepared
        train = self.batches("train", self.batch_size)
        evaluated: dict[Split, bool] = {"val": len(prepared.splits.val) > 0, "test": config.track_test}
        held_out = {name: self.batches(name, EVALUATION_BATCH) for name, wanted in evaluated.items() if wanted}
        callback.prepared(self.resolved())
        callback.begin(self.objective.describe(find_shot_groups(prepared.splits.counts)))
        for epoch in range(start, config.epochs):
            began = time.perf_counter()
            with fast_products(self.fabric):
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
                row |= self._evaluate(name, *self.predict(batches)[:2])
            self._save(row)
            callback.epoch(row)
        if self.fabric.is_global_zero:
            save_weights(self.run.last_weights, bare(self.model), self.card, epoch=config.epochs)
        self.fabric.barrier()

    def resolved(self) -> dict[str, Any]:
        """Return the settings that the config leaves open, as the data and the machine decided them."""
        return {**self.prepared.resolved(), "precision": self.precision}

    def batches(self, split: RunSplit, batch_size: int) -> Batches:
        """Return the batches of a split for this process."""
        fabric = self.fabric
        return self.prepared.batches(
            split,
            batch_size,
            device=fabric.device,
            workers=self.config.compute.workers,
            rank=fabric.global_rank,
            world=fabric.world_size,
        )

    def _epoch(self, epoch: int, batches: Batches, callback: Callback) -> float:
        """Train one epoch; return the mean loss."""
        config, total = self.config, len(batches)
        self.model.train()
        if config.start.train == "head":
            set_body_eval(bare(self.model))
        losses: list[Tensor] = []
        mean = 0.0
        order = self.objective.order(self.prepared.table.labels[self.prepared.splits.train], config.seed, epoch)
        rank = self.fabric.global_rank
        augment = self.objective.augment(config.seed, epoch, rank)
        served = zip(batches.train(config.seed, epoch, order, augment), batches.batch_sizes(), strict=True)
        for number, ((images, labels, _), size) in enumerate(served):
            step = epoch * total + number + 1
            set_learning_rate(self.optimizers, config.schedule.lr(config.optimizer.lr, step, total, config.epochs))
            images, target = self.objective.transform(images, labels, config.seed, epoch, number, rank)
            images = _channels_last(images)
            # Gradients are averaged over processes, so each process is weighted by its fraction of the batch.
            weight = len(labels) * self.fabric.world_size / size

            def backward(loss: Tensor, *, retain_graph: bool = False, weight: float = weight) -> None:
                self.fabric.backward(loss if weight == 1 else loss * weight, retain_graph=retain_graph)

            loss = self.objective.step(self.model, images, target, self.optimizers, backward, epoch=epoch)
            losses.append(loss * weight)
            if len(losses) == CHECK_EVERY or number + 1 == total:
                mean += self._check_losses(losses, step) / total
                losses.clear()
            callback.step(epoch + 1, number + 1, total)
        return mean

    def _check_losses(self, losses: list[Tensor], step: int) -> float:
        """Return the sum of the losses; NaN or infinity ends the run."""
        together: Any = self.fabric.all_reduce(torch.stack(losses).float(), reduce_op="mean")
        values: Tensor = together.cpu()
        wrong = (~values.isfinite()).nonzero()
        if len(wrong):
            first = step - len(losses) + 1 + int(wrong[0])
            raise self._diverged(f"The loss became {values[int(wrong[0])].item()} at step {first}")
        return float(values.sum())

    def _check_weights(self, epoch: int) -> None:
        """Refuse weights that the last step of an epoch made NaN or infinite, which no loss shows."""
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
            with self.fabric.autocast():
                logits, features = network(_channels_last(images), with_features=True)
            parts.append((logits.float(), labels, features.half()))
        logits, labels, features = (torch.cat(each) for each in zip(*parts, strict=True))
        return self._gather(logits), self._gather(labels), self._gather(features)

    def _gather(self, local: Tensor) -> NDArray[Any]:
        """Collect the rows of all processes in one array: row i was computed by process i mod world."""
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

    def _evaluate(self, name: str, logits: NDArray[np.float32], labels: NDArray[np.int64]) -> EpochRow:
        """Return the columns of the history for a split."""
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

    def _save(self, row: EpochRow) -> None:
        """Write an epoch: the best weights first, the state last, so that a killed run repeats what is missing."""
        self.history.append(row)
        if self.fabric.is_global_zero:
            select = self.config.select
            if select != "last" and kept_row(self.history, select, self.first_counted) is row:
                save_weights(self.run.best_weights, bare(self.model), self.card, epoch=int(row["epoch"]))
            self.run.write_history(self.history)
            state = {
                "config": what_state_fixes(self.config),
                "epoch": int(row["epoch"]),
                "model": self.model.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
                "rng": torch.get_rng_state(),
                "history": self.history,
            }
            if self.fabric.device.type == "cuda":
                state["cuda_rng"] = torch.cuda.get_rng_state(self.fabric.device)
            save_state(self.run.state, state)
        self.fabric.barrier()


def _channels_last(batch: Tensor) -> Tensor:
    """Store images channels last, which is faster; features have no channels."""
    return batch.contiguous(memory_format=torch.channels_last) if batch.ndim == 4 else batch


def bare(model: nn.Module) -> Classifier:
    """Return the network inside the wrappers of Fabric and of torch.compile."""
    module: Any = getattr(model, "_original_module", model) if not hasattr(model, "module") else model.module
    return getattr(module, "_orig_mod", module)  # type: ignore[no-any-return]
