"""The numbers that the paper prints, cell by cell."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

NETWORKS = {
    "resnet34": "ResNet-34",
    "resnet50": "ResNet-50",
    "resnet101": "ResNet-101",
    "squeezenet": "SqueezeNet",
    "resnext50": "ResNeXt-50",
    "densenet121": "DenseNet-121",
    "efficientnet_b0": "EfficientNet b0",
    "efficientnet_b1": "EfficientNet b1",
    "efficientnet_b7": "EfficientNet b7",
}
"""The paper's names of the networks."""


def imbalance_words(imbalance: str) -> str:
    """Return an imbalance in the words of the paper.

    Example:
        >>> from evenhand.paper._published import imbalance_words
        >>> [imbalance_words(spec) for spec in ("exp:100", "step:10", "none")]
        ['LT 100', 'Step 10', 'original']
    """
    kind, _, ratio = imbalance.partition(":")
    return {"exp": f"LT {ratio}", "step": f"Step {ratio}"}.get(kind, "original")


@dataclass(frozen=True)
class PublishedColumn:
    """The methods that the paper compares for one row (mostly a network) and one imbalance."""

    table: str
    """The study's id, such as `table-cifar10`."""
    title: str
    """Of the data set."""
    row: str
    """A network, or what the row names instead."""
    imbalance: str
    values: dict[str, float]
    """Percent, by method: ERM, FL, COT and CCE, or gamma=-1 to gamma=-50."""
    bold: tuple[str, ...]
    """The methods printed in bold."""

    def __str__(self) -> str:
        """Return the data set with the imbalance, or with the network where tables have one row per network."""
        by_row = self.table in ("table-road", "table-road-sota", "table-svhn")
        return f"{self.title} {NETWORKS.get(self.row, self.row) if by_row else imbalance_words(self.imbalance)}"

    @property
    def best(self) -> tuple[str, ...]:
        """The methods with the highest value: several where they tie."""
        highest = max(self.values.values())
        return tuple(method for method, value in self.values.items() if value == highest)


@dataclass(frozen=True)
class PublishedTable:
    """One table of the paper."""

    id: str
    title: str
    """The data set."""
    latex: str
    """Its label in the paper's LaTeX."""
    columns: tuple[PublishedColumn, ...]

    def value(self, row: str, imbalance: str, method: str) -> float | None:
        """Return the printed value in percent, None where there is none.

        Example:
            >>> from evenhand.paper import published_tables
            >>> published_tables()["table-cifar10"].value("resnet34", "exp:100", "CCE")
            71.98
        """
        for column in self.columns:
            if (column.row, column.imbalance) == (row, imbalance):
                return column.values.get(method)
        return None


@cache
def published_tables() -> dict[str, PublishedTable]:
    """Return every table of the paper by its id.

    Example:
        >>> from evenhand.paper import published_tables
        >>> sum(len(column.values) for table in published_tables().values() for column in table.columns)
        168
    """
    text = (files("evenhand.paper") / "published.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return {
        name: PublishedTable(name, table["title"], table["latex"], tuple(_columns(name, table)))
        for name, table in content.items()
    }


def _columns(name: str, table: dict[str, Any]) -> Iterator[PublishedColumn]:
    for row, columns in table["cells"].items():
        for imbalance, values in columns.items():
            numbers = {method: float(value) for method, value in values.items() if method != "bold"}
            yield PublishedColumn(name, table["title"], row, imbalance, numbers, tuple(values["bold"]))


def best_of_others(table: PublishedTable) -> tuple[str, float]:
    """Return the best result that the paper reports of other papers, and whose it is.

    Example:
        >>> from evenhand.paper._published import best_of_others, published_tables
        >>> best_of_others(published_tables()["table-road-sota"])
        ('Bailo et al. (PCANet + SVM)', 99.1)
    """
    reported = {column.row: column.values["reported"] for column in table.columns if "reported" in column.values}
    return max(reported.items(), key=lambda each: each[1])
