"""Options that several verbs take."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
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
Weights = Annotated[Path | None, typer.Option(help="A run, or a file of weights of the network, to start from.")]
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


RUN_OPTIONS: dict[str, tuple[Any, str]] = {
    "source": (Source, "data__source"),
    "imbalance": (ImbalanceSpec, "data__imbalance"),
    "model": (ModelName, "model__name"),
    "recipe": (Recipe, ""),
    "config": (ConfigFile, ""),
    "settings": (Settings, ""),
    "epochs": (Epochs, "epochs"),
    "data_root": (DataRoot, "data__root"),
    "image_size": (ImageSize, "data__image_size"),
    "flip": (Flip, "augmentation__flip"),
    "pretrained": (Pretrained, "model__pretrained"),
    "trained": (TrainedPart, "start__train"),
    "weights": (Weights, "start__weights"),
    "stem": (StemName, "model__stem"),
    "class_order": (ClassOrder, "data__class_order"),
    "drop_small": (DropSmall, "data__drop_small"),
    "skip_bad": (SkipBad, "data__skip_bad"),
    "allow_outside": (AllowOutside, "data__allow_outside"),
}
"""What a run can be told by every verb that trains: the option, and its name in a config, if it is a setting."""


@dataclass(frozen=True)
class RunOptions:
    """What the options that all training verbs share were given."""

    recipe: str | None
    config: Path | None
    settings: list[str]
    flags: dict[str, Any]
    """By dotted name with `__` for the dot; None: not given."""

    def given(self) -> list[str]:
        """Return the names of what was given."""
        named = {"recipe": self.recipe, "config": self.config, "settings": self.settings or None, **self.flags}
        return [name for name, value in named.items() if value is not None]


def with_run_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of `RUN_OPTIONS`, before its own; it gets what was given as `options`."""
    own = [each for name, each in inspect.signature(verb).parameters.items() if name != "options"]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, (kind, _) in RUN_OPTIONS.items()
    ]

    def call(**given: Any) -> None:
        values = {name: given.pop(name) for name in RUN_OPTIONS}
        flags = {key: _plain(values[name]) for name, (_, key) in RUN_OPTIONS.items() if key}
        if flags["start__weights"] is not None:
            # A run knows its classes; a file of others does not.
            flags["start__load"] = "all" if Path(flags["start__weights"]).is_dir() else "body"
        options = RunOptions(values["recipe"], values["config"], values["settings"] or [], flags)
        verb(**given, options=options)

    call.__name__, call.__doc__, call.__module__ = verb.__name__, verb.__doc__, verb.__module__
    parameters = [*shared, *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own)]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
