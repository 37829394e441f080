"""What the paper shows: every table and figure by its id, with what each sets side by side."""

import difflib
from dataclasses import dataclass

from evenhand.core.errors import EvenhandError
from evenhand.paper._published import published_tables

METHODS = {"ERM": "ce", "FL": "focal:gamma=2:alpha=0.25", "COT": "cot", "CCE": "cce"}
"""The paper's methods as objectives: focal loss with the factors of the authors' code, COT as its authors run it."""
PLAIN_FOCAL = "FL without alpha"
"""Beside FL, as its factor alpha acts as a smaller learning rate; a method that the paper does not print."""
RELEASED = "released"
"""The sign of the authors' released code, a method that the paper does not print."""
SMALL_GAMMAS = ("gamma=-20", "gamma=-5", "gamma=-1", "gamma=0", RELEASED, "gamma=5")

IMBALANCES = ("exp:10", "exp:100", "step:10", "step:100")


@dataclass(frozen=True)
class Panel:
    """Runs of one data set: all its networks, imbalances and methods with each other."""

    source: str
    networks: tuple[str, ...] = ("resnet34",)
    imbalances: tuple[str, ...] = IMBALANCES
    methods: tuple[str, ...] = tuple(METHODS)
    small_methods: tuple[str, ...] | None = None
    """None: the same."""


@dataclass(frozen=True)
class Study:
    """One thing that the paper shows."""

    id: str
    shows: str
    parts: tuple[Panel, ...] = ()
    """None for what needs no runs of its own."""
    both: bool = False
    """The test set is imbalanced too, so that accuracy is shown beside balanced accuracy."""

    @property
    def needs(self) -> str:
        """The data sets it needs, in words."""
        return ", ".join(dict.fromkeys(part.source for part in self.parts)) or "no data set"


def _table(name: str, shows: str, source: str, both: bool = False, small: tuple[str, ...] | None = None) -> Study:
    """Make the study of a published table: its networks, imbalances and methods are those that are printed."""
    columns = [column for column in published_tables()[name].columns if "reported" not in column.values]
    networks, imbalances, methods = (
        tuple(dict.fromkeys(each for column in columns for each in values(column)))
        for values in (lambda c: [c.row], lambda c: [c.imbalance], lambda c: c.values)
    )
    return Study(name, shows, (Panel(source, networks, imbalances, methods, small),), both)


_TWO = ("ERM", "CCE")
_ALL = (
    _table("table-cifar10", "four methods on imbalanced CIFAR-10, ResNet-34", "cifar10"),
    _table("table-cifar100", "four methods on imbalanced CIFAR-100, ResNet-34", "cifar100"),
    _table("table-fashion", "four methods on imbalanced Fashion-MNIST, ResNet-34", "fashion-mnist"),
    _table("table-tiny", "four methods on imbalanced Tiny ImageNet, ResNet-34", "tiny-imagenet"),
    _table("table-road", "four methods on Road Marking, six networks", "road-marking", both=True),
    _table("table-road-sota", "EfficientNet b0 with CCE beside other papers' results", "road-marking", both=True),
    _table("table-svhn", "four methods on SVHN, six networks", "svhn", both=True),
    _table("table-gamma", "the weight gamma of CCE on CIFAR-10, ResNet-34", "cifar10", small=SMALL_GAMMAS),
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
        both=True,
    ),
    Study(
        "figure-errors",
        "what CCE still gets wrong on long-tailed CIFAR-10",
        (Panel("cifar10", imbalances=("exp:10", "exp:100"), methods=("CCE",)),),
    ),
    Study("speed", "a training step with CCE (algorithm 2) beside COT (algorithm 1)"),
    Study("claims", "each claim of the text against the published tables and our own runs"),
)
STUDIES = {study.id: study for study in _ALL}


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
    hint = f"did you mean {near[0]}?" if near else "evenhand reproduce alone lists all."
    raise EvenhandError(f"The paper shows no {name!r}; {hint}")
