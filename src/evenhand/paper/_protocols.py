"""The protocols of `evenhand reproduce`: at what scale the paper's studies are run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ProtocolName = Literal["small", "fair", "paper"]


@dataclass(frozen=True)
class Protocol:
    """What the runs of a protocol share; settings are those of `make_config`."""

    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the recipe."""
    road_recipe: str = "small"
    road_settings: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the recipe for Road Marking, instead of `settings`."""
    network: str | None = None
    """Trained instead of the first network of a study; None: all networks of the study are trained."""
    second_network: str | None = None
    """Trained as well, where a study has several networks."""
    network_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Changes to the recipe by network."""
    plain_focal: bool = False
    """Whether tables have focal loss without alpha as an additional method."""
    few_gammas: bool = False
    """Whether `table-gamma` has a few gammas of both signs instead of those that the paper prints."""
    split_by_runs: bool = True
    """Whether Road Marking is split by drives as well, next to the paper's random split."""
    caveat: str = ""
    """What its results cannot show."""


SQUEEZENET = {"squeezenet": {"optimizer__lr": 0.01}}
"""Recipe small's rate of 0.1 is too high without batch normalisation: every image gets the same answer. On Road Marking
(32x32 pixels, 12 epochs, ce) balanced accuracy stayed at 11.1% (chance) with 0.05 and with 0.02, and reached 14.2% with
0.01; with 0.01 and 30 epochs, 35.8% (accuracy 68.3%; the largest class is 53.2%)."""

PROTOCOLS: dict[str, Protocol] = {
    "small": Protocol(
        recipe="small",
        settings={"select": "last", "epochs": 10, "data__fraction": 0.25},
        road_settings={"select": "last", "epochs": 20, "data__image_size": 32},
        network="resnet8",
        plain_focal=True,
        few_gammas=True,
        caveat="Protocol small is a quick check: rare classes have too few images and steps for it to decide anything "
        "about them; use --protocol fair.",
    ),
    "fair": Protocol(
        recipe="small",
        settings={"select": "last", "epochs": 30},
        # At 64x64 pixels SqueezeNet takes four times as long.
        road_settings={"select": "last", "epochs": 30, "data__image_size": 32},
        network="resnet8",
        second_network="squeezenet",
        network_settings=SQUEEZENET,
    ),
    "paper": Protocol(recipe="paper", road_recipe="road-marking", plain_focal=True, split_by_runs=False),
}
