"""Measure the time of a training step, and how an epoch spends its time.

    python benchmarks/training.py [--rounds 30] [--threads 2] [--data-root FOLDER] [--only PART ...] [--small]

- `waiting`: images per second with each way for threads to wait (`OMP_WAIT_POLICY`, `GOMP_SPINCOUNT`, one thread), on
  the machine as it is and next to processes that this benchmark keeps busy; `resnet8`, 32x32, batch 128, float32.
- `steps`: step time of each objective relative to `ce`, and of COT (algorithm 1, with one and two forward passes)
  relative to `cce` (algorithm 2), for which the paper reports a factor of 1.7; `resnet8`, 28x28, batch 128.
- `loss`: the fraction of a step of `resnet34` at 32x32 that the loss takes.
- `loop`: images per second of a plain loop (`torchvision.datasets.FashionMNIST`, PIL transforms, DataLoader, float32,
  channels first) and of evenhand's, one change at a time; Fashion-MNIST exp:100, `resnet8`, batch 128.
- `overhead`: the time that the trainer spends outside forward, backward and step in an epoch of Fashion-MNIST exp:100,
  without validation and saving, and its memory after each epoch.

All but the last compare variants that take turns; the median over the rounds is printed. In `waiting` each variant is a
process of its own, since these settings are read when torch is loaded. `--small` checks that the benchmark runs: it
measures briefly, and trains on digits instead of Fashion-MNIST in `overhead`.
"""

import argparse
import gzip
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import SGD

from evenhand.data.batches import Batches, make_preprocessing
from evenhand.data.images import open_images
from evenhand.data.imbalance import Imbalance
from evenhand.data.sources import find_data_root, load_source
from evenhand.data.splits import make_splits
from evenhand.losses.functional import complement_cross_entropy
from evenhand.models.build import build_model
from evenhand.objectives import Objective, build_objective
from evenhand.runs.config import make_config
from evenhand.runs.run import Run
from evenhand.training.fabric import start_fabric
from evenhand.training.loop import Callback, EpochRow, Trainer
from evenhand.training.prepare import prepare


def take_turns(variants: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each variant."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(rounds + 3):
        for name, work in variants.items():
            start = time.perf_counter()
            work()
            if turn >= 3:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def stepper(objective: str, images: Tensor, labels: Tensor, precision: torch.dtype) -> Callable[[], None]:
    """Return a function that takes one training step of `resnet8` on the same batch."""
    torch.manual_seed(0)
    model = build_model("resnet8", num_classes=10, channels=1, image_size=28).to(memory_format=torch.channels_last)
    chosen = build_objective(objective, counts=[1] * 10)
    optimizers = [SGD(model.parameters(), lr=0.01, momentum=0.9) for _ in range(chosen.num_optimizers)]

    def forward(batch: Tensor) -> Tensor:
        with torch.autocast("cpu", precision) if precision != torch.float32 else nullcontext():
            logits: Tensor = model(batch)
        return logits.float()

    def backward(loss: Tensor, **options: bool) -> None:
        loss.backward(**options)

    return lambda: chosen.step(forward, images, labels, optimizers, backward) and None


def step_times(rounds: int) -> None:
    """Compare the step times of the objectives."""
    images = torch.randn(128, 1, 28, 28).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (128,))
    for precision in (torch.float32, torch.bfloat16):
        names = ("ce", "focal", "cce", "cot:forwards=1", "cot")
        times = take_turns({name: stepper(name, images, labels, precision) for name in names}, rounds)
        relative = ", ".join(f"{name} {times[name] / times['ce']:.3f}" for name in names[1:])
        print(f"resnet8, 28x28, batch 128, {precision}: step {times['ce'] * 1e3:.1f} ms with ce; times ce: {relative}")
        one, two = (times[name] / times["cce"] for name in ("cot:forwards=1", "cot"))
        print(f"  algorithm 1 / algorithm 2 (paper: 1.7): {one:.2f} as printed, {two:.2f} with two forward passes")


def loss_share(rounds: int) -> None:
    """Compare the loss with the step around it."""
    model = build_model("resnet34", num_classes=10, image_size=32)
    images, labels = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    logits = torch.randn(32, 10, requires_grad=True)

    def step() -> None:
        complement_cross_entropy(model(images), labels).backward()

    def loss() -> None:
        complement_cross_entropy(logits, labels).backward()

    times = take_turns({"step": step, "loss": loss}, max(rounds // 10, 1))
    print(f"resnet34, 32x32, batch 32: the loss is {times['loss'] / times['step']:.3%} of forward and backward")


def unpack(packed: Path, target: Path) -> None:
    """Put the four files of Fashion-MNIST where torchvision wants them, without writing into the data root."""
    target.mkdir(parents=True)
    for path in packed.glob("*.gz"):
        (target / path.stem).write_bytes(gzip.decompress(path.read_bytes()))


def against_a_plain_loop(rounds: int, root: str | None, steps: int) -> None:
    """Compare images per second, one change at a time."""
    from torch.utils.data import DataLoader, Subset
    from torchvision import transforms
    from torchvision.datasets import FashionMNIST

    table = load_source("fashion-mnist", data_root=root)
    splits = make_splits(table, imbalance=Imbalance.parse("exp:100"), val_fraction=0)
    images = open_images(table)
    preprocessing = make_preprocessing(table, images, splits.train)
    mean, std = preprocessing.mean[0], preprocessing.std[0]
    augment = [transforms.RandomCrop(28, padding=4), transforms.RandomHorizontalFlip()]
    usual = transforms.Compose([*augment, transforms.ToTensor(), transforms.Normalize((mean,), (std,))])
    with tempfile.TemporaryDirectory() as folder:
        unpack(find_data_root(root) / "FashionMNIST" / "raw", Path(folder) / "FashionMNIST" / "raw")
        plain = Subset(FashionMNIST(folder, train=True, transform=usual), splits.train.tolist())

    def run(ours: bool, channels_last: bool, precision: torch.dtype) -> Callable[[], None]:
        torch.manual_seed(0)
        layout = torch.channels_last if channels_last else torch.contiguous_format
        model = build_model("resnet8", num_classes=10, channels=1, image_size=28).to(memory_format=layout)
        optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9)
        batches = Batches(images, table.labels, splits.train, preprocessing, 128)

        def work() -> None:
            source = batches.train(0, 0) if ours else DataLoader(plain, 128, shuffle=True)
            for number, (pixels, labels, *_) in enumerate(source):
                if number == steps:
                    break
                pixels = pixels.contiguous(memory_format=layout)
                with torch.autocast("cpu", precision) if precision != torch.float32 else nullcontext():
                    logits = model(pixels)
                loss = (complement_cross_entropy if ours else F.cross_entropy)(logits.float(), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        return work

    variants = {
        "plain loop": run(False, False, torch.float32),
        "+ batches of evenhand, cce": run(True, False, torch.float32),
        "+ channels last": run(True, True, torch.float32),
        "+ bfloat16": run(True, True, torch.bfloat16),
    }
    times = take_turns(variants, max(rounds // 6, 1))
    base = times["plain loop"]
    for name, seconds in times.items():
        print(f"  {name:28} {steps * 128 / seconds:8,.0f} images/s  {base / seconds:.2f}x")


@dataclass
class Timed:
    """An objective that measures the time of its steps."""

    inner: Objective
    seconds: float = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Take a step of the objective inside."""
        start = time.perf_counter()
        loss = self.inner.step(*args, **kwargs)
        self.seconds += time.perf_counter() - start
        return loss


class PrintOverhead(Callback):
    """Print the time outside the steps and the memory, after each epoch."""

    def __init__(self, timed: Timed) -> None:
        self.timed = timed

    def epoch(self, row: EpochRow) -> None:
        """Print a line."""
        outside = 1 - self.timed.seconds / row["seconds"]
        self.timed.seconds = 0
        pages = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        print(
            f"  epoch {row['epoch']}: {row['images_per_second']:,.0f} images/s, {outside:.1%} outside forward, backward"
            f" and step; {pages / 2**20:,.0f} MiB in use"
        )


def epoch_overhead(source: str, root: str | None, epochs: int) -> None:
    """Train with the trainer, and time its steps."""
    config = make_config(batch_size=128, epochs=epochs, data__source=source, data__root=root, data__imbalance="exp:100")
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, Run(Path(folder)), prepare(config), start_fabric(config))
        trainer.objective = Timed(trainer.objective)
        trainer.train(0, PrintOverhead(trainer.objective))


PARTS = ("waiting", "steps", "loss", "loop", "overhead")
POLICIES = {
    "PASSIVE (as evenhand sets it)": {"OMP_WAIT_POLICY": "PASSIVE"},
    "libgomp's default": {},
    "GOMP_SPINCOUNT=3000": {"GOMP_SPINCOUNT": "3000"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}


def serve_measurements() -> None:
    """Train for as many seconds as each line on stdin says, and print images per second; one variant of `waiting`."""
    images = torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    model = build_model("resnet8", num_classes=10, image_size=32).to(memory_format=torch.channels_last)
    labels = torch.randint(10, (128,))
    for line in sys.stdin:
        steps, start = 0, time.perf_counter()
        while (seconds := time.perf_counter() - start) < float(line):
            F.cross_entropy(model(images), labels).backward()
            steps += 1
        print(128 * steps / seconds, flush=True)


def waiting_threads(threads: int, rounds: int, seconds: float) -> None:
    """Compare the ways to wait, alone and next to busy processes; a variant computes for `seconds` in its turn."""
    command = [sys.executable, __file__, "--worker"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    clean["OMP_NUM_THREADS"] = str(threads)
    workers = {}
    for name, settings in POLICIES.items():
        # This file loads torch before evenhand, which then leaves the policy as it is.
        workers[name] = subprocess.Popen(
            command, env=clean | settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    busy: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(3):
            speeds: dict[str, list[float]] = {name: [] for name in workers}
            for turn in range(rounds + 1):
                for name, worker in workers.items():
                    assert worker.stdin is not None
                    assert worker.stdout is not None
                    print(seconds, file=worker.stdin, flush=True)
                    speed = float(worker.stdout.readline())
                    if turn:  # the first is a warm-up
                        speeds[name].append(speed)
            listed = ", ".join(f"{name} {statistics.median(each):,.0f}" for name, each in speeds.items())
            print(f"  next to {number} busy processes, images/s: {listed}", flush=True)
            busy.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
    finally:
        for process in (*busy, *workers.values()):
            process.kill()


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--small", action="store_true", help="check that it runs; measure briefly")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve_measurements()
        return
    rounds = 1 if args.small else args.rounds
    if "waiting" in args.only:
        load = os.getloadavg()[0]
        print(f"Ways to wait, resnet8, 32x32, batch 128, {args.threads} threads; load average {load:.1f}:")
        waiting_threads(args.threads, max(rounds // 6, 1), 0.1 if args.small else 2.0)
    torch.set_num_threads(args.threads)
    if "steps" in args.only:
        step_times(rounds)
    if "loss" in args.only:
        loss_share(rounds)
    if "loop" in args.only:
        print("resnet8, Fashion-MNIST exp:100, batch 128:")
        against_a_plain_loop(rounds, args.data_root, 1 if args.small else 12)
    if "overhead" in args.only:
        source, epochs = ("digits", 1) if args.small else ("fashion-mnist", 6)
        print(f"The trainer on {source} exp:100, batch 128:")
        epoch_overhead(source, args.data_root, epochs)


if __name__ == "__main__":
    main()
