"""Estimate the runtime of runs on this machine from a few training steps."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.optim import SGD

from evenhand.data import standard
from evenhand.data.imbalance import Imbalance
from evenhand.data.road_marking import COUNTS
from evenhand.experiments.grid.threads import count_processors
from evenhand.models.build import build_model
from evenhand.objectives.objective import build_objective
from evenhand.runs.config import Config, make_config
from evenhand.runs.config_sections import DataConfig
from evenhand.training.derived_run import shares_training
from evenhand.training.fabric import start_fabric
from evenhand.training.prepare import prepare
from evenhand.training.run import train_run

STANDARDS = {
    each.name: each
    for each in (standard.CIFAR10, standard.CIFAR100, standard.FASHION_MNIST, standard.SVHN, standard.TINY_IMAGENET)
}
ROAD_CLASSES, ROAD_SIZE = 9, 64
MOST_SECONDS = 1.5
"""Time limit for measuring one network."""
START = 11.5
"""Seconds outside the runs: imports and tables took 6.4 to 7.0 s of a processor without any run, and the fork server
imports everything once more."""


@dataclass(frozen=True)
class Size:
    """The data of a run."""

    counts: tuple[int, ...]
    """Training images of each class."""
    test: int
    channels: int
    image_size: int
    """Height and width of the network's input."""

    @property
    def train(self) -> int:
        """Training images."""
        return sum(self.counts)


@dataclass(frozen=True)
class Estimate:
    """The work and the time of some runs."""

    runs: int
    trained: int
    """Training images, all epochs."""
    tested: int
    """Test images."""
    seconds: float
    speeds: dict[str, float]
    """Training images per second with a single loss, by network."""


def size_of(data: DataConfig) -> Size:
    """Return the size of the data of a run; of benchmarks by their known counts, so that nothing is downloaded.

    The counts of Road Marking are exact for the random split, and close to those of the split by runs.

    Example:
        >>> from evenhand.experiments.grid.runtime_estimate import size_of
        >>> from evenhand.runs.config_sections import DataConfig
        >>> size_of(DataConfig(source="cifar10", imbalance="exp:100")).train
        12406
    """
    name = data.source.split(":")[0]
    if name in STANDARDS:
        known = STANDARDS[name]
        available, test = np.array(known.train_counts), known.test
        channels, image_size = known.shape[2], known.info.crop_size or known.shape[0]
    elif data.source in ("road-marking", "road-marking:split=runs"):
        total = np.array(list(COUNTS.values())[:ROAD_CLASSES])
        tested = np.rint(data.test_fraction * total).astype(np.int64)
        available, test, channels, image_size = total - tested, int(tested.sum()), 3, ROAD_SIZE
    else:
        return _prepared_size(data.model_dump_json())
    names = [str(k) for k in range(len(available))]
    order = np.arange(len(available))
    counts = Imbalance.parse(data.imbalance).counts(available, order, names, fraction=data.fraction)
    return Size(tuple(counts.tolist()), test, channels, data.image_size or image_size)


@lru_cache
def _prepared_size(data: str) -> Size:
    prepared = prepare(Config(data=DataConfig.model_validate_json(data), select="last"), progress=False)
    counts = tuple(prepared.splits.counts.tolist())
    return Size(counts, len(prepared.splits.test), prepared.images.channels, prepared.preprocessing.crop_size)


def estimate(configs: Sequence[Config], *, workers: int = 1) -> Estimate:
    """Measure each network for a second or two, and estimate the time of these runs.

    Args:
        configs: the runs; the time to decode images is not included.
        workers: runs at a time; they share the processors evenly.
    """
    trained = tested = 0
    each: list[float] = []
    speeds: dict[str, float] = {}
    trainings: set[str] = set()
    if configs:
        with threads(max(count_processors() // workers, 1)):
            overhead = run_overhead()
    for config in configs:
        size = size_of(config.data)
        training = (shares_training(config) or config).model_dump_json()
        train_images = 0 if training in trainings else size.train * config.epochs
        trainings.add(training)
        test_images = size.test * (config.epochs if config.track_test else 1)
        kind = f"{config.model.name} at {size.image_size}x{size.image_size}, batch {config.batch_size}"
        if kind not in speeds:
            with threads(max(count_processors() // workers, 1)):
                speeds[kind] = 1 / seconds_per_image(config, size, min(workers, len(configs)))
        trained, tested = trained + train_images, tested + test_images
        val_images = config.data.val_fraction * train_images if config.select != "last" else 0.0
        work = train_images * config.objective.cost + (test_images + val_images) / 3
        each.append(overhead + work / speeds[kind])
    seconds = max(sum(each) / workers, max(each)) + START if each else 0.0
    return Estimate(len(configs), trained, tested, seconds, speeds)


@lru_cache
def run_overhead() -> float:
    """Measure the seconds of a tiny run: its start, evaluation and files take as long as those of a large one."""
    with tempfile.TemporaryDirectory() as folder:
        tiny = make_config(data__imbalance="exp:20", epochs=1, select="last")
        return time_of(lambda: train_run(tiny, Path(folder) / "run"))


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Use this number of torch threads within a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds_per_image(config: Config, size: Size, workers: int = 1) -> float:
    """Measure training steps with a single loss; a large network is measured with a part of the batch.

    As many steps run at a time as runs will, since processors share caches and memory bandwidth.
    """
    plain = config.model_copy(update={"objective": "ce"})

    def steps(batch_size: int) -> Callable[[], object]:
        each = [training_step(plain, size, batch_size) for _ in range(workers)]
        return lambda: list(pool.map(lambda step: step(), each))

    with ThreadPoolExecutor(workers) as pool:
        part = min(config.batch_size, 8)
        work = steps(part)
        work()
        seconds = time_of(work) / part
        if part < config.batch_size and 3 * seconds * config.batch_size < MOST_SECONDS:
            work = steps(config.batch_size)
            work()
            began, times = time.perf_counter(), [time_of(work)]
            while len(times) < 20 and time.perf_counter() - began < MOST_SECONDS / 2:
                times.append(time_of(work))
            seconds = statistics.median(times) / config.batch_size
    return seconds


def training_step(config: Config, size: Size, batch_size: int) -> Callable[[], None]:
    """Return a function that does one training step as the trainer does, on the same batch of noise each time."""
    fabric = start_fabric(config)
    classes = len(size.counts)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build_model(
            config.model.name, num_classes=classes, channels=size.channels, image_size=size.image_size
        ).to(memory_format=torch.channels_last)
        shape = (batch_size, size.channels, size.image_size, size.image_size)
        images = torch.randn(shape).to(fabric.device).contiguous(memory_format=torch.channels_last)
        labels = torch.randint(classes, (batch_size,)).to(fabric.device)
    weights = None if config.class_weights is None else [1.0] * classes  # the values change no duration
    objective = build_objective(config.objective, counts=size.counts, class_weights=weights)
    network.to(fabric.device)
    optimizers = [SGD(network.parameters(), lr=1e-3, momentum=0.9) for _ in range(objective.num_optimizers)]

    # Not fabric.setup and fabric.backward: a global of theirs makes steps in several threads fail now and then.
    def forward(images: Tensor) -> Tensor:
        with fabric.autocast():
            logits: Tensor = network(images)
        return logits.float()

    def backward(loss: Tensor, *, retain_graph: bool = False) -> None:
        loss.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]

    def step() -> None:
        objective.step(forward, images, labels, optimizers, backward)
        if fabric.device.type == "cuda":
            torch.cuda.synchronize()

    return step


def time_of(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
