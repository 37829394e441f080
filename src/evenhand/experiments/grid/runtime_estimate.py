"""How much work a study is: images to be seen, and the time they take on this machine from a few real steps."""

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
from evenhand.experiments.grid.local import count_processors
from evenhand.models.build import build_model
from evenhand.objectives.objective import build_objective
from evenhand.runs.config import Config, DataConfig, make_config
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
"""Of measuring one network."""
START = 11.5
"""Seconds beside the runs: the command loads everything and writes its tables at the end, which took 6.4 to 7.0 s of a
processor with nothing to run; the process that makes the workers loads everything once more."""


@dataclass(frozen=True)
class Size:
    """What a run is shown."""

    counts: tuple[int, ...]
    """Training images of each class."""
    test: int
    channels: int
    image_size: int
    """Height and width that the network sees."""

    @property
    def train(self) -> int:
        """Training images."""
        return sum(self.counts)


@dataclass(frozen=True)
class Estimate:
    """The work of some runs."""

    runs: int
    trained: int
    """Images seen in training, all epochs."""
    judged: int
    """Images seen in testing."""
    seconds: float
    speeds: dict[str, float]
    """Images a second in training with a single loss, by network."""


def size_of(data: DataConfig) -> Size:
    """Return what a run on these data is shown: known sets by their known counts, so that nothing is downloaded.

    Road Marking's own counts are exact for the random split; a split by runs comes close to them.

    Example:
        >>> from evenhand.experiments.grid.runtime_estimate import size_of
        >>> from evenhand.runs.config import DataConfig
        >>> size_of(DataConfig(source="cifar10", imbalance="exp:100")).train
        12406
    """
    name = data.source.split(":")[0]
    if name in STANDARDS:
        known = STANDARDS[name]
        available, test = np.array(known.train_counts), known.test
        channels, image_size = known.shape[2], known.info.crop_size or known.shape[0]
    elif data.source in ("road-marking", "road-marking:split=runs"):
        whole = np.array(list(COUNTS.values())[:ROAD_CLASSES])
        tested = np.rint(data.test_fraction * whole).astype(np.int64)
        available, test, channels, image_size = whole - tested, int(tested.sum()), 3, ROAD_SIZE
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
    """Measure each kind of network for a second or two, and say how long these runs take with so many at a time.

    Args:
        configs: the runs; of images that stand in no memory yet, the time to decode them is left out.
        workers: runs at a time; each has its share of the processors.
    """
    trained = judged = 0
    each: list[float] = []
    speeds: dict[str, float] = {}
    trainings: set[str] = set()
    if configs:
        with threads(max(count_processors() // workers, 1)):
            beside = seconds_beside_images()
    for config in configs:
        size = size_of(config.data)
        training = (shares_training(config) or config).model_dump_json()
        seen = 0 if training in trainings else size.train * config.epochs
        trainings.add(training)
        tested = size.test * (config.epochs if config.track_test else 1)
        kind = f"{config.model.name} at {size.image_size}x{size.image_size}, batch {config.batch_size}"
        if kind not in speeds:
            with threads(max(count_processors() // workers, 1)):
                speeds[kind] = 1 / seconds_per_image(config, size, min(workers, len(configs)))
        trained, judged = trained + seen, judged + tested
        validated = config.data.val_fraction * seen if config.select != "last" else 0.0
        each.append(beside + (seen * config.objective.cost + (tested + validated) / 3) / speeds[kind])
    seconds = max(sum(each) / workers, max(each)) + START if each else 0.0
    return Estimate(len(configs), trained, judged, seconds, speeds)


@lru_cache
def seconds_beside_images() -> float:
    """Measure what a run takes beside its images, to begin, to be judged and to be written: a tiny one does it all."""
    with tempfile.TemporaryDirectory() as folder:
        tiny = make_config(data__imbalance="exp:20", epochs=1, select="last")
        return time_of(lambda: train_run(tiny, Path(folder) / "run"))


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Compute with so many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds_per_image(config: Config, size: Size, workers: int = 1) -> float:
    """Measure training steps with a single loss; a large network is measured with a part of the batch.

    As many steps go on at once as runs will: processors share caches, memory and more.
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
    """Return a function that takes one training step as the trainer does, on the same batch of noise each time."""
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
    objective = build_objective(config.objective, counts=size.counts)
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
    """Return how many seconds something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
