"""Options that several verbs take."""

from pathlib import Path
from typing import Annotated, Any

import typer

Source = Annotated[str | None, typer.Argument(help="A data set's name, a folder of class folders, a .csv or a .npz.")]
ImbalanceSpec = Annotated[str | None, typer.Option(help="exp:RATIO, step:RATIO or none.")]
ModelName = Annotated[str | None, typer.Option(help="resnet8, resnet32, lite0, convnext_tiny, ... or timm:NAME.")]
Recipe = Annotated[
    str | None, typer.Option(help="small, photos, paper or road-marking; what suits the images if not given.")
]
Pretrained = Annotated[bool | None, typer.Option("--pretrained", help="Start from ImageNet weights.")]
TrainedPart = Annotated[
    str | None, typer.Option("--train", help="head (the last layer, on features of a frozen network) or all.")
]
Weights = Annotated[Path | None, typer.Option(help="A file of weights of the network, to start from.")]
Flip = Annotated[bool | None, typer.Option("--flip/--no-flip", help="Mirror training images.")]
StemName = Annotated[str | None, typer.Option(help="small or imagenet; by the image size if not given.")]
ClassOrder = Annotated[str | None, typer.Option(help="Which classes keep most under an imbalance.")]
ConfigFile = Annotated[Path | None, typer.Option(help="A YAML file over the recipe.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, such as optimizer.lr=0.05.")
]
Epochs = Annotated[int | None, typer.Option(help="How often every training image is seen.")]
DataRoot = Annotated[Path | None, typer.Option(help="Where data sets lie.")]
ImageSize = Annotated[int | None, typer.Option(help="Height and width to bring images to.")]
DropSmall = Annotated[bool | None, typer.Option("--drop-small", help="Leave out classes too small to split.")]
SkipBad = Annotated[bool | None, typer.Option("--skip-bad", help="Leave out unreadable images.")]
AllowOutside = Annotated[
    bool | None, typer.Option("--allow-outside", help="Follow links and paths of a folder or manifest to elsewhere.")
]
Jobs = Annotated[int | None, typer.Option(help="Runs at a time; one a processor or GPU if not given.")]
Engine = Annotated[str, typer.Option(help="local, or ray.")]
RayAddress = Annotated[str | None, typer.Option(help="Of a Ray cluster, with --engine ray.")]
Status = Annotated[bool, typer.Option("--status", help="Only say how far the runs are.")]
EnsembleOfRuns = Annotated[
    bool, typer.Option("--ensemble", help="Of a comparison: average all seeds of what it recommends.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Only errors.")]


def start_flags(trained: str | None, weights: Path | None) -> dict[str, Any]:
    """Return what `--train` and `--weights` mean for a config."""
    if weights is None:
        return {"start__train": trained}
    return {"start__train": trained, "start__weights": str(weights), "start__load": "body"}
