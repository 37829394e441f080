"""A study as runs: each cell of a table with its config, by the paper's recipe or cut down for a small computer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.jobs import Job
from evenhand.experiments.grid.naming import run_folder
from evenhand.paper._published import NETWORKS, published_tables
from evenhand.paper.studies import METHODS, PLAIN_FOCAL, RELEASED, Panel, Study
from evenhand.runs.config import Config, ScheduleConfig, make_config

Protocol = Literal["small", "paper"]

SMALL_FRACTION, SMALL_EPOCHS, SMALL_ROAD_EPOCHS, SMALL_ROAD_SIZE = 0.25, 10, 20, 32

FLIPPED = {
    "road-marking": "The paper mirrors every training set: here every second leftturn is shown as a rightturn and the "
    "other way round, and 35, 40 and the words are shown in mirror writing.",
    "svhn": "The paper mirrors every training set: here every second digit is shown in mirror writing.",
}
"""What mirroring does to a data set that should not be mirrored."""


@dataclass(frozen=True)
class StudyOptions:
    """How a study is made."""

    protocol: Protocol = "small"
    seeds: int = 3
    released: bool = False
    """One more method: the released code's sign."""
    epochs: int | None = None
    """None: as the protocol says."""
    source: str | None = None
    """Another data set, or another split of the same, in place of the study's own."""
    data_root: str | None = None
    only: tuple[str, ...] = ()
    """Some cells: names of networks, methods, data sets and imbalances; those of a kind are alternatives."""

    def __post_init__(self) -> None:
        if self.protocol not in ("small", "paper"):
            raise EvenhandError(f"The protocol is small or paper, got {self.protocol!r}.")
        if self.seeds < 1:
            raise EvenhandError(f"A study needs at least 1 seed, got {self.seeds}.")
        if self.epochs is not None and self.epochs < 1:
            raise EvenhandError(f"A run needs at least 1 epoch, got {self.epochs}.")


@dataclass(frozen=True)
class StudyCell:
    """One cell of a table: one method under one set of conditions, for all seeds."""

    row: str
    """The network that the paper used there."""
    method: str
    config: Config
    """Of seed 0."""
    published: float | None = None
    """What the paper prints there, as a share."""
    comparable: bool = True
    """Whether it was trained on the data set of the paper's number."""
    seeds: tuple[int, ...] = (0,)

    @property
    def column(self) -> tuple[str, str, str]:
        """What it shares with the methods it is compared with: row, source and imbalance."""
        return self.row, self.config.data.source, self.config.data.imbalance

    def jobs(self, root: Path) -> list[Job]:
        """Return its runs, one a seed, in folders under the root; where whole drives are split, each splits anew."""
        configs = [self.config.model_copy(update={"seed": seed}) for seed in self.seeds]
        if splits_anew(self.config):
            # One split of a few drives says more about those drives than about the method.
            configs = [
                each.model_copy(update={"data": each.data.model_copy(update={"split_seed": each.seed})})
                for each in configs
            ]
        return [Job(config, run_folder(root, config)) for config in configs]


def splits_anew(config: Config) -> bool:
    """Whether every seed has a test set of its own: where whole drives are kept together."""
    return config.data.source.startswith("road-marking:") and "split=runs" in config.data.source


def plan(study: Study, options: StudyOptions) -> list[StudyCell]:
    """Return the cells of a study, with the config that each is trained with.

    Example:
        >>> from evenhand.paper.planning import StudyOptions, plan
        >>> from evenhand.paper.studies import STUDIES
        >>> cells = plan(STUDIES["table-fashion"], StudyOptions(protocol="small"))
        >>> len(cells), cells[0].config.model.name, cells[0].config.epochs, cells[0].published
        (20, 'resnet8', 10, 0.9145)
    """
    unique: dict[str, StudyCell] = {}  # with another source, two parts of a study may come to the same
    for part in study.parts:
        for cell in _cells(study, part, options):
            unique.setdefault(cell.config.model_dump_json(), cell)
    return _only(list(unique.values()), options.only)


def _only(cells: list[StudyCell], words: Sequence[str]) -> list[StudyCell]:
    """Keep the cells that were asked for."""
    kinds: list[Callable[[StudyCell], set[str]]] = [
        lambda cell: {cell.row, cell.config.model.name},
        lambda cell: {cell.method, cell.config.objective},
        lambda cell: {cell.config.data.source, cell.config.data.source.split(":")[0]},
        lambda cell: {cell.config.data.imbalance},
    ]
    known = [{name.lower() for cell in cells for name in names(cell)} for names in kinds]
    wanted = {word.strip().lower() for word in words}
    unknown = wanted - set().union(*known)
    if cells and unknown:
        there = ", ".join(sorted(set().union(*known)))
        raise EvenhandError(f"No cell of this study is called {sorted(unknown)[0]!r}; there are {there}.")
    for names, called in zip(kinds, known, strict=True):
        if wanted & called:
            cells = [cell for cell in cells if wanted & {name.lower() for name in names(cell)}]
    return cells


def jobs_of(cells: Sequence[StudyCell], root: Path) -> list[Job]:
    """Return all runs of some cells, each once; those of a seed stand together, so that what is done first compares."""
    jobs = [job for cell in cells for job in cell.jobs(root)]
    return list({job.folder: job for job in sorted(jobs, key=lambda job: job.config.seed)}.values())


def objective_of(method: str) -> str:
    """Return the objective of a method, as the paper names it.

    Example:
        >>> from evenhand.paper.planning import objective_of
        >>> [objective_of(method) for method in ("ERM", "gamma=-5", "gamma=-1", "released")]
        ['ce', 'cce:gamma=-5', 'cce', 'cce:gamma=released']
    """
    # Those that other tables have too, so that they share runs, and those that no table has.
    same = {"gamma=-1": "cce", "gamma=0": "ce", RELEASED: "cce:gamma=released", PLAIN_FOCAL: "focal:gamma=2"}
    return METHODS.get(method) or same.get(method) or f"cce:{method}"


def _cells(study: Study, part: Panel, options: StudyOptions) -> Iterator[StudyCell]:
    small = options.protocol == "small"
    table = published_tables().get(study.id)
    methods = part.small_methods if small and part.small_methods else part.methods
    if "FL" in methods and table:
        methods = (*methods, PLAIN_FOCAL)
    if options.released and RELEASED not in methods:
        methods = (*methods, RELEASED)
    comparable = options.source is None or options.source.split(":")[0] == part.source.split(":")[0]
    for source in _sources(part, options):
        for row, network in _networks(part, small):
            for imbalance in part.imbalances:
                for method in methods:
                    config = make_study_config(source, imbalance, network, objective_of(method), options)
                    printed = table.value(row, imbalance, method) if table else None
                    published = None if printed is None else printed / 100
                    yield StudyCell(row, method, config, published, comparable, tuple(range(options.seeds)))


def _sources(part: Panel, options: StudyOptions) -> tuple[str, ...]:
    if options.source is not None:
        return (options.source,)
    if options.protocol == "small" and part.source == "road-marking":
        return ("road-marking", "road-marking:split=runs")
    return (part.source,)


def _networks(part: Panel, small: bool) -> list[tuple[str, str]]:
    """Return the networks of the paper, and what is trained for each; resnet8 stands in for the first."""
    if not small:
        return [(network, network) for network in part.networks]
    return [(part.networks[0], "resnet8")] + [("squeezenet",) * 2] * ("squeezenet" in part.networks)


def make_study_config(source: str, imbalance: str, network: str, objective: str, options: StudyOptions) -> Config:
    """Return the config of seed 0 for one cell under a protocol."""
    road = source.split(":")[0] == "road-marking"
    flags: dict[str, Any] = {
        "data__source": source,
        "data__root": options.data_root,
        "data__imbalance": imbalance,
        "model__name": network,
        "objective": objective,
        "track_test": road,  # its tables and its figure of convergence then share their runs
    }
    if options.protocol == "paper":
        recipe = "road-marking" if road else "paper"
    else:
        recipe = "small"
        flags |= {"select": "last", "epochs": SMALL_ROAD_EPOCHS if road else SMALL_EPOCHS}
        flags |= {"data__image_size": SMALL_ROAD_SIZE} if road else {"data__fraction": SMALL_FRACTION}
    config = make_config(recipe, **flags)
    return config if options.epochs in (None, config.epochs) else _with_epochs(config, options.epochs or 1)


def _with_epochs(config: Config, epochs: int) -> Config:
    """Change the number of epochs; warm-up and milestones move with it, so that the schedule keeps its shape."""
    share = epochs / config.epochs
    schedule = config.schedule
    moved = ScheduleConfig(
        kind=schedule.kind,
        milestones=tuple(max(round(milestone * share), 1) for milestone in schedule.milestones),
        factor=schedule.factor,
        warmup_epochs=schedule.warmup_epochs * share,
    )
    return config.model_copy(update={"epochs": epochs, "schedule": moved})


def deviations(study: Study, options: StudyOptions) -> list[str]:
    """Say in sentences where a study differs from what the paper did, or where the paper's way has a catch.

    Example:
        >>> from evenhand.paper.planning import StudyOptions, deviations
        >>> from evenhand.paper.studies import STUDIES
        >>> for sentence in deviations(STUDIES["table-fashion"], StudyOptions(protocol="small", epochs=5)):
        ...     print(sentence)
        Of the training images a quarter is kept, with the same imbalance ratio.
        The network is resnet8, standing in for ResNet-34.
        Training lasts 5 epochs (protocol small: 10, the paper: 200), with warm-up and schedule scaled to that.
        Recipe small: batch 64, Nesterov momentum, warm-up, cosine to 0; the last epoch is judged, as in protocol paper.
    """
    cells = plan(study, options)
    if not cells:
        return []
    sentences = []
    if options.source is not None:
        own = study.needs
        sentences.append(f"The data are {options.source} instead of {own}.")
        if not all(cell.comparable for cell in cells):
            sentences[-1] = f"The data are {options.source} instead of {own}: only the ordering can be compared."
    if options.protocol == "small":
        sentences += _small_deviations(cells)
    sentences += _epochs_cut(study, cells, options)
    if options.protocol == "small":
        sentences.append(
            "Recipe small: batch 64, Nesterov momentum, warm-up, cosine to 0; the last epoch is judged, as in protocol "
            "paper."
        )
    else:
        sources = dict.fromkeys(cell.config.data.source.split(":")[0] for cell in cells)
        sentences += [FLIPPED[source] for source in sources if source in FLIPPED]
    return sentences


def _small_deviations(cells: Sequence[StudyCell]) -> list[str]:
    sentences = []
    if any(cell.config.data.fraction < 1 for cell in cells):
        sentences.append("Of the training images a quarter is kept, with the same imbalance ratio.")
    if any(cell.config.data.image_size for cell in cells):
        sentences.append(f"Images of Road Marking are {SMALL_ROAD_SIZE}x{SMALL_ROAD_SIZE} instead of 64x64.")
    pairs = dict.fromkeys((cell.config.model.name, NETWORKS[cell.row]) for cell in cells)
    stand_ins = [f"{trained}, standing in for {row}" for trained, row in pairs if trained not in NETWORKS]
    kept = [trained for trained, _ in pairs if trained in NETWORKS]
    if stand_ins:
        sentences.append(f"The network is {', and '.join([*stand_ins, *kept])}.")
    if any(cell.config.data.source == "road-marking:split=runs" for cell in cells):
        sentences.append(
            "Beside the paper's random split stands one by runs, which keeps frames of one drive together and is drawn "
            "anew for every seed."
        )
    return sentences


def _epochs_cut(study: Study, cells: Sequence[StudyCell], options: StudyOptions) -> list[str]:
    """Say how long training is, where that is not what the paper did."""
    used = cells[0].config.epochs
    protocol = plan(study, replace(options, epochs=None))[0].config.epochs
    paper = plan(study, StudyOptions(protocol="paper"))[0].config.epochs
    if used == paper:
        return []
    if used == protocol:
        return [f"Training lasts {used} epochs (the paper: {paper})."]
    whole = f"protocol small: {protocol}, the paper: {paper}" if options.protocol == "small" else f"the paper: {paper}"
    return [f"Training lasts {used} epoch{'s' * (used != 1)} ({whole}), with warm-up and schedule scaled to that."]
