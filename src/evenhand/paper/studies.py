"""The tables and figures of the paper, by id, with the data sets, networks and methods of each."""

import difflib
from dataclasses import dataclass

from evenhand.core.errors import EvenhandError
from evenhand.paper._published import published_tables

METHODS = {"ERM": "ce", "FL": "focal:gamma=2:alpha=0.25", "COT": "cot", "CCE": "cce"}
"""The paper's methods as objectives: focal loss with the factors of the authors' code, COT as its authors run it."""
PLAIN_FOCAL = "FL without alpha"
"""Compared with FL, as its factor alpha acts like a smaller learning rate; a method that the paper does not print."""
RELEASED = "released"
"""The sign of the authors' released code, a method that the paper does not print."""
FEW_GAMMAS = ("gamma=-20", "gamma=-5", "gamma=-1", "gamma=0", RELEASED, "gamma=5")

IMBALANCES = ("exp:10", "exp:100", "step:10", "step:100")


@dataclass(frozen=True)
class Panel:
    """Runs of one data set: every network with every imbalance and every method."""

    source: str
    networks: tuple[str, ...] = ("resnet34",)
    imbalances: tuple[str, ...] = IMBALANCES
    methods: tuple[str, ...] = tuple(METHODS)
    few_methods: tuple[str, ...] | None = None
    """Those of a protocol with `few_gammas`; None: the same."""


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper, or what is checked without one: `speed` and `claims`."""

    id: str
    shows: str
    panels: tuple[Panel, ...] = ()
    """Empty for a study without runs of its own."""
    imbalanced_test: bool = False
    """Whether the test set is imbalanced, so that accuracy is shown next to balanced accuracy."""

    @property
    def needs(self) -> str:
        """The data sets it needs."""
        return ", ".join(dict.fromkeys(panel.source for panel in self.panels)) or "no data set"


def _table(
    name: str, shows: str, source: str, *, imbalanced_test: bool = False, few: tuple[str, ...] | None = None
) -> Study:
    """Return the study of a published table, with the networks, imbalances and methods that are printed."""
    columns = [column for column in published_tables()[name].columns if "reported" not in column.values]
    networks, imbalances, methods = (
        tuple(dict.fromkeys(each for column in columns for each in values(column)))
        for values in (lambda c: [c.row], lambda c: [c.imbalance], lambda c: c.values)
    )
    return Study(name, shows, (Panel(source, networks, imbalances, methods, few),), imbalanced_test)


_TWO = ("ERM", "CCE")
_ALL = (
    _table("table-cifar10", "four methods on imbalanced CIFAR-10, ResNet-34", "cifar10"),
    _table("table-cifar100", "four methods on imbalanced CIFAR-100, ResNet-34", "cifar100"),
    _table("table-fashion", "four methods on imbalanced Fashion-MNIST, ResNet-34", "fashion-mnist"),
    _table("table-tiny", "four methods on imbalanced Tiny ImageNet, ResNet-34", "tiny-imagenet"),
    _table("table-road", "four methods on Road Marking, six networks", "road-marking", imbalanced_test=True),
    _table(
        "table-road-sota",
        "EfficientNet b0 with CCE against other papers' results",
        "road-marking",
        imbalanced_test=True,
    ),
    _table("table-svhn", "four methods on SVHN, six networks", "svhn", imbalanced_test=True),
    _table("table-gamma", "the weight gamma of CCE on CIFAR-10, ResNet-34", "cifar10", few=FEW_GAMMAS),
    Study(
        "figure-overview",
        "what CCE does to the probabilities of wrong classes",
        (Panel("fashion-mnist", imbalances=("exp:100",), methods=_TWO),),
    ),
    Study("figure-distributions", "class distributions of all training sets, from known counts"),
    Study(
        "figure-confusion",
        "confusion matrices of ERM and CCE on long-tailed CIFAR, ratio 100",
        tuple(Panel(source, imbalances=("exp:100",), methods=_TWO) for source in ("cifar10", "cifar100")),
    ),
    Study(
        "figure-tsne",
        "features of ERM and CCE on long-tailed Fashion-MNIST, ratio 10",
        (Panel("fashion-mnist", imbalances=("exp:10",), methods=_TWO),),
    ),
    Study(
        "figure-convergence",
        "test error by epoch on Road Marking, ResNet-101",
        (Panel("road-marking", ("resnet101",), ("none",)),),
        imbalanced_test=True,
    ),
    Study(
        "figure-errors",
        "what CCE still gets wrong on long-tailed CIFAR-10",
        (Panel("cifar10", imbalances=("exp:10", "exp:100"), methods=("CCE",)),),
    ),
    Study("speed", "a training step with CCE (algorithm 2) against COT (algorithm 1)"),
    Study("claims", "each claim of the text against the published tables and our own runs"),
)
STUDIES = {study.id: study for study in _ALL}


def paper_networks(source: str) -> set[str]:
    """Return the networks that the paper trains on a data set.

    Example:
        >>> from evenhand.paper.studies import paper_networks
        >>> paper_networks("cifar10")
        {'resnet34'}
    """
    panels = [panel for study in STUDIES.values() for panel in study.panels]
    return {network for panel in panels if panel.source == source for network in panel.networks}


def find_study(name: str) -> Study:
    """Return a study by its id.

    Example:
        >>> from evenhand.paper.studies import find_study
        >>> find_study("table-road").needs
        'road-marking'
    """
    if name in STUDIES:
        return STUDIES[name]
    near = difflib.get_close_matches(name.lower(), STUDIES, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else "evenhand reproduce lists all."
    raise EvenhandError(f"There is no study {name!r}; {hint}")
