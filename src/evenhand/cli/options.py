"""Options that several commands share. Those that are settings of a run are made from the config's fields."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from evenhand.cli.help import TRAINING, panel
from evenhand.runs.config import RECIPES
from evenhand.runs.settings import find_field, option_type

RUN_SETTINGS = {
    "imbalance": "data.imbalance",
    "model": "model.name",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "data_root": "data.root",
    "image_size": "data.image_size",
    "flip": "augmentation.flip",
    "pretrained": "model.pretrained",
    "train": "start.train",
    "weights": "start.weights",
    "stem": "model.stem",
    "class_order": "data.class_order",
    "drop_small": "data.drop_small",
    "skip_bad": "data.skip_bad",
    "allow_outside": "data.allow_outside",
}
"""Options of all commands that train, and the settings they set."""

TRAIN_SETTINGS = {
    "objective": "objective",
    "seed": "seed",
    "select": "select",
    "precision": "compute.precision",
    "devices": "compute.devices",
    "nodes": "compute.nodes",
    "sync_batchnorm": "compute.sync_batchnorm",
    "compile": "compute.compile",
    "track_test": "track_test",
    "log": "compute.log",
}
"""Options of `train` alone."""


def setting_option(name: str, key: str) -> Any:
    """Return the type of a command's parameter for a setting: its name, kind and help are those of the field.

    Example:
        >>> from evenhand.cli.options import setting_option
        >>> setting_option("skip_bad", "data.skip_bad").__metadata__[0].help
        'Leave out unreadable images.'
    """
    field, flag = find_field(key), f"--{name.replace('_', '-')}"
    kind = option_type(field)
    if kind is bool and field.default is None:
        flag += f"/--no-{name.replace('_', '-')}"
    help_line = (field.description or "").partition("\n")[0]
    return Annotated[kind | None, typer.Option(flag, help=help_line, rich_help_panel=panel(key))]


RECIPE_NAMES = f"{', '.join(RECIPES[:-1])} or {RECIPES[-1]}"
Source = Annotated[str | None, typer.Argument(help=(find_field("data.source").description or "").partition("\n")[0])]
Recipe = Annotated[str | None, typer.Option(help=f"Preset: {RECIPE_NAMES}.", rich_help_panel=TRAINING)]
ConfigFile = Annotated[Path | None, typer.Option(help="YAML file that overrides the recipe.", rich_help_panel=TRAINING)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a setting; see evenhand config show.", rich_help_panel=TRAINING
    ),
]
DataRoot = Annotated[Path | None, typer.Option(help="Folder of the data sets.")]
Jobs = Annotated[int | None, typer.Option(help="Runs at a time; default: one per CPU or GPU.")]
Engine = Annotated[str, typer.Option(help="Where runs execute: local, ray or slurm.")]
RayAddress = Annotated[str | None, typer.Option(help="Address of a Ray cluster, for --engine ray.")]
Slurm = Annotated[
    str | None,
    typer.Option(metavar="KEY=VALUE,...", help="Job options for --engine slurm, such as partition=gpu,time=2:00:00."),
]
Status = Annotated[bool, typer.Option("--status", help="Show the runs and the analyses, and exit.")]
EnsembleOfRuns = Annotated[bool, typer.Option("--ensemble", help="Average all recommended runs of a comparison.")]
Costs = Annotated[Path | None, typer.Option(help="CSV of costs per class, or true x predicted.")]
Prior = Annotated[str | None, typer.Option(help="Class shares in use: train, uniform or CSV.")]
Coverage = Annotated[float | None, typer.Option(help="Prediction sets with this coverage of each class.")]
MinPrecision = Annotated[float | None, typer.Option(help="Answer with this precision, else unsure.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only.")]


@dataclass(frozen=True)
class RunOptions:
    """The values of the options that describe a run."""

    recipe: str | None
    config: Path | None
    settings: list[str]
    flags: dict[str, Any]
    """By the name of the setting, with `__` for the dot; None: not given."""

    def given(self) -> list[str]:
        """Return the names of the options that were given."""
        named = {"recipe": self.recipe, "config": self.config, "settings": self.settings or None, **self.flags}
        return [name for name, value in named.items() if value is not None]

    @property
    def default_source(self) -> bool:
        """Whether no source is given, so that it is the built-in digits."""
        elsewhere = self.config is not None or any(each.startswith("data") for each in self.settings)
        return self.flags["data__source"] is None and not elsewhere


def _with_options(settings: Mapping[str, str], command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a run in front of a command's own; it gets their values as `options`."""
    first = {"source": Source, "recipe": Recipe, "config": ConfigFile, "settings": Settings}
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in {**first, **{name: setting_option(name, key) for name, key in settings.items()}}.items()
    ]
    own = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in inspect.signature(command).parameters.items()
        if name != "options"
    ]

    def call(**given: Any) -> None:
        recipe, config, overrides = given.pop("recipe"), given.pop("config"), given.pop("settings") or []
        flags = {"data__source": given.pop("source")}
        flags |= {key.replace(".", "__"): given.pop(name) for name, key in settings.items()}
        if flags["start__weights"] is not None:
            # A run knows its classes; a plain file of weights does not.
            flags["start__load"] = "all" if Path(flags["start__weights"]).is_dir() else "body"
        command(**given, options=RunOptions(recipe, config, overrides, flags))

    call.__name__, call.__doc__, call.__module__ = command.__name__, command.__doc__, command.__module__
    call.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in (*shared, *own)}
    return call


with_run_options = partial(_with_options, RUN_SETTINGS)
with_train_options = partial(_with_options, {**RUN_SETTINGS, **TRAIN_SETTINGS})
