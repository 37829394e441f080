"""A study as runs: each cell of a table with its config under a protocol."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.jobs import Job
from evenhand.experiments.grid.naming import run_folder
from evenhand.models.build import require_model
from evenhand.paper._protocols import PROTOCOLS, Protocol, ProtocolName
from evenhand.paper._published import published_tables
from evenhand.paper.studies import METHODS, PLAIN_FOCAL, RELEASED, Panel, Study, paper_networks
from evenhand.runs.config import Config, make_config

ROAD = "road-marking"


@dataclass(frozen=True)
class StudyOptions:
    """How a study is run."""

    protocol: ProtocolName = "small"
    seeds: Sequence[int] = range(3)
    released: bool = False
    """Add CCE with the sign of the released code as a method."""
    epochs: int | None = None
    """None: those of the protocol."""
    source: str | None = None
    """Another data set, or another split of the same, instead of the study's own."""
    data_root: str | None = None
    only: tuple[str, ...] = ()
    """Some cells: names of networks, methods, data sets and imbalances; those of a kind are alternatives."""
    model: str | None = None
    """A network to train instead of the study's own."""

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise EvenhandError(f"The protocol must be one of {', '.join(PROTOCOLS)}, got {self.protocol!r}.")
        if isinstance(self.seeds, int):
            raise EvenhandError(f"seeds must be a sequence such as range({self.seeds}), got {self.seeds}.")
        if not self.seeds:
            raise EvenhandError("A study needs at least 1 seed, got 0.")
        if self.epochs is not None and self.epochs < 1:
            raise EvenhandError(f"A run needs at least 1 epoch, got {self.epochs}.")
        if self.model is not None:
            require_model(self.model)

    @property
    def settings(self) -> Protocol:
        """The settings of the protocol."""
        return PROTOCOLS[self.protocol]


def parse_seeds(text: str) -> range:
    """Return the seeds of a number, counted from 0, or of a range that includes both ends.

    Example:
        >>> from evenhand.paper.planning import parse_seeds
        >>> list(parse_seeds("3")), list(parse_seeds("100-104"))
        ([0, 1, 2], [100, 101, 102, 103, 104])
    """
    first, dash, last = (part.strip() for part in text.partition("-"))
    if not first.isdecimal() or (dash and not last.isdecimal()) or len(text) > 40:
        raise EvenhandError(f"Seeds must be a number such as 3 or a range such as 100-104, got {text[:40]!r}.")
    return range(int(first), int(last) + 1) if dash else range(int(first))


@dataclass(frozen=True)
class StudyCell:
    """One cell of a table: one method under one set of conditions, for all seeds."""

    row: str
    """The network of the published value."""
    method: str
    config: Config
    """Of the first seed."""
    published: float | None = None
    """The published value, 0 to 1."""
    comparable: bool = True
    """Whether the published value is of the same data set."""
    seeds: tuple[int, ...] = (0,)

    @property
    def column(self) -> tuple[str, str, str]:
        """What the methods of a column share: row, source and imbalance."""
        return self.row, self.config.data.source, self.config.data.imbalance

    def jobs(self, root: Path) -> list[Job]:
        """Return its runs, one per seed, in folders under the root; a split by drives is drawn again for every seed."""
        configs = [self.config.model_copy(update={"seed": seed}) for seed in self.seeds]
        if resplits(self.config):
            # One split of a few drives says more about those drives than about the method.
            configs = [
                each.model_copy(update={"data": each.data.model_copy(update={"split_seed": each.seed})})
                for each in configs
            ]
        return [Job(config, run_folder(root, config)) for config in configs]


def resplits(config: Config) -> bool:
    """Return whether every seed has a test set of its own: where drives are kept together."""
    return config.data.source.startswith(f"{ROAD}:") and "split=runs" in config.data.source


def is_reduced(config: Config) -> bool:
    """Return whether a run differs from the paper's training: in network, data or recipe.

    Example:
        >>> from evenhand.paper.planning import is_reduced
        >>> from evenhand.runs.config import make_config
        >>> paper = make_config("paper", data__source="cifar10", data__imbalance="exp:100", objective="ce", seed=5)
        >>> is_reduced(paper), is_reduced(paper.model_copy(update={"epochs": 30}))
        (False, True)
    """
    data, network = config.data, config.model.name
    source = data.source.split(":")[0]
    if network not in paper_networks(source):
        return True
    paper = _config(source, data.imbalance, network, config.objective, StudyOptions("paper", (config.seed,)))
    own = {"source": source, "root": None, "split_seed": paper.data.split_seed}  # another split is not a reduction
    same = {"data": data.model_copy(update=own), "compute": paper.compute, "track_test": paper.track_test}
    return config.model_copy(update=same) != paper


def plan(study: Study, options: StudyOptions) -> list[StudyCell]:
    """Return the cells of a study, each with the config it is trained with.

    Example:
        >>> from evenhand.paper.planning import StudyOptions, plan
        >>> from evenhand.paper.studies import STUDIES
        >>> cells = plan(STUDIES["table-fashion"], StudyOptions(protocol="fair"))
        >>> len(cells), cells[0].config.model.name, cells[0].config.epochs, cells[0].published
        (16, 'resnet8', 30, 0.9145)
    """
    unique: dict[str, StudyCell] = {}  # with another source, two panels of a study may be the same
    for panel in study.panels:
        for cell in _cells(study, panel, options):
            unique.setdefault(cell.config.model_dump_json(), cell)
    return _select(list(unique.values()), options.only)


def _select(cells: list[StudyCell], words: Sequence[str]) -> list[StudyCell]:
    """Return the cells that match the words of `only`."""
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
        choices = ", ".join(sorted(set().union(*known)))
        raise EvenhandError(f"This study has no cell {sorted(unknown)[0]!r}; choose from {choices}.")
    for names, values in zip(kinds, known, strict=True):
        if wanted & values:
            cells = [cell for cell in cells if wanted & {name.lower() for name in names(cell)}]
    return cells


def jobs_of(cells: Sequence[StudyCell], root: Path) -> list[Job]:
    """Return all runs of some cells, each once, seed by seed, so that a partial study can be compared."""
    jobs = [job for cell in cells for job in cell.jobs(root)]
    return list({job.folder: job for job in sorted(jobs, key=lambda job: job.config.seed)}.values())


def objective_of(method: str) -> str:
    """Return the objective of a method, as the paper names it.

    Example:
        >>> from evenhand.paper.planning import objective_of
        >>> [objective_of(method) for method in ("ERM", "gamma=-5", "gamma=-1", "released")]
        ['ce', 'cce:gamma=-5', 'cce', 'cce:gamma=released']
    """
    # Spelled as in the other tables, so that runs are shared.
    same = {"gamma=-1": "cce", "gamma=0": "ce", RELEASED: "cce:gamma=released", PLAIN_FOCAL: "focal:gamma=2"}
    return METHODS.get(method) or same.get(method) or f"cce:{method}"


def _cells(study: Study, panel: Panel, options: StudyOptions) -> Iterator[StudyCell]:
    protocol, table = options.settings, published_tables().get(study.id)
    methods = panel.few_methods if protocol.few_gammas and panel.few_methods else panel.methods
    if "FL" in methods and table and protocol.plain_focal:
        methods = (*methods, PLAIN_FOCAL)
    if options.released and RELEASED not in methods:
        methods = (*methods, RELEASED)
    comparable = options.source is None or options.source.split(":")[0] == panel.source.split(":")[0]
    for source in _sources(panel, options):
        for row, network in _networks(panel, options):
            for imbalance in panel.imbalances:
                for method in methods:
                    config = _config(source, imbalance, network, objective_of(method), options)
                    printed = table.value(row, imbalance, method) if table else None
                    published = None if printed is None else printed / 100
                    yield StudyCell(row, method, config, published, comparable, tuple(options.seeds))


def _sources(panel: Panel, options: StudyOptions) -> tuple[str, ...]:
    if options.source is not None:
        return (options.source,)
    if options.settings.split_by_runs and panel.source == ROAD:
        return (ROAD, f"{ROAD}:split=runs")
    return (panel.source,)


def _networks(panel: Panel, options: StudyOptions) -> list[tuple[str, str]]:
    """Return pairs of the network that the paper used and the one that is trained."""
    protocol, model = options.settings, options.model
    if model is not None:
        return [(model if model in panel.networks else panel.networks[0], model)]
    if protocol.network is None:
        return [(network, network) for network in panel.networks]
    pairs, second = [(panel.networks[0], protocol.network)], protocol.second_network
    if second is not None and len(panel.networks) > 1:
        pairs.append((second if second in panel.networks else panel.networks[1], second))
    return pairs


def _config(source: str, imbalance: str, network: str, objective: str, options: StudyOptions) -> Config:
    """Return the config of the first seed for one cell under a protocol."""
    protocol, road = options.settings, source.split(":")[0] == ROAD
    flags: dict[str, Any] = {
        "data__source": source,
        "data__root": options.data_root,
        "data__imbalance": imbalance,
        "model__name": network,
        "objective": objective,
        "seed": options.seeds[0],
        "track_test": road,  # so that the tables and the figure of convergence share their runs
        **(protocol.road_settings if road else protocol.settings),
        **protocol.network_settings.get(network, {}),
    }
    config = make_config(protocol.road_recipe if road else protocol.recipe, **flags)
    return config if options.epochs in (None, config.epochs) else _with_epochs(config, options.epochs or 1)


def _with_epochs(config: Config, epochs: int) -> Config:
    """Change the number of epochs; warm-up and milestones are scaled with it."""
    scale, schedule = epochs / config.epochs, config.schedule
    milestones = tuple(max(round(milestone * scale), 1) for milestone in schedule.milestones)
    scaled = {"milestones": milestones, "warmup_epochs": schedule.warmup_epochs * scale}
    return config.model_copy(update={"epochs": epochs, "schedule": schedule.model_copy(update=scaled)})
