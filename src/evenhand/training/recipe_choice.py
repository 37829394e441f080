"""The default recipe of a source, and why. Does not import torch unless needed."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.core.extras import how_to_install
from evenhand.core.seeds import stream
from evenhand.data.benchmarks import BENCHMARKS
from evenhand.data.decode import BadImage, probe_image
from evenhand.data.sources import load_source
from evenhand.data.table import FilePixels
from evenhand.models.names import JOIN, LITES, lite_package, split_names
from evenhand.objectives.heads import Cosine
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.runs.config import Config, make_config
from evenhand.runs.run import Run

PHOTO_SIDE = 96
"""Images are photos if the median of their shorter side has at least this many pixels."""
FALLBACK = "efficientnet_b0"
"""The torchvision network that is used if the packages of all lites are missing."""
MANY_PHOTOS = 10_000
"""From this many photos on, the features of several networks take longer than a coffee: one network is used."""
FINE_TUNED = "balanced-softmax"
"""The objective of the recipe `photos` for all layers, whose last one does not start at class means."""
LAYER_DECAY = 0.1
"""For fine-tuning all of a pretrained network, as in the recipe `photos`."""
SAMPLE = 200
"""Number of image headers that are read."""


@dataclass(frozen=True)
class Choice:
    """A recipe for a source."""

    recipe: str = "small"
    flags: dict[str, Any] = field(default_factory=dict)
    """Settings over the recipe, as `make_config` takes them."""
    why: str = ""
    """The reason, and how to change it; empty for the usual recipe."""


def choose_recipe(
    source: str | Path | None,
    *,
    model: str | None = None,
    flip: bool | None = None,
    train: str | None = None,
    weights: Path | str | None = None,
    data_root: Path | str | None = None,
    allow_outside: bool | None = None,
) -> Choice:
    """Choose `photos` for photos if a pretrained network is available, else `small`.

    Args:
        source: as `load_source` takes it.
        model: a network that the user names; one without ImageNet weights is trained from scratch.
        flip: whether mirrored views are used.
        train: `head` or `all`, if given.
        weights: a run or a file to start from instead of the official weights.
        data_root: folder of the data sets.
        allow_outside: follow links out of the source.

    Example:
        >>> from evenhand.training.recipe_choice import choose_recipe
        >>> choose_recipe("digits")
        Choice(recipe='small', flags={}, why='')
    """
    try:
        found = _measure(source, data_root, allow_outside)
    except EvenhandError:
        return Choice()  # reported when the source is loaded
    if found is None or min(found[:2]) < PHOTO_SIDE:
        return Choice()
    width, height, number = found
    photos = f"photos of {width} x {height} px in the median"
    if model is not None and not _has_weights(model):
        return Choice(why=f"{photos}; training {model} from scratch (leave out --model for a pretrained network)")
    start = _run_of(weights)
    own = None if start is None else start.config.model.name
    several = train != "all" and weights is None and number < MANY_PHOTOS
    try:
        name = model or own or _find_backbone(3 if several else 1)
    except EvenhandError as error:
        return Choice(
            why=f"{photos}, but no pretrained network is available ({str(error).rstrip('.')}); training from scratch, "
            f"which is slower and much less accurate; {how_to_install('photos')} installs one"
        )
    views = "two views" if flip else "one view"
    joined = JOIN in name
    features, origin = (
        ("their ImageNet features", "their ImageNet weights")
        if joined
        else ("its ImageNet features", "its ImageNet weights")
    )
    if weights is not None:
        features, origin = f"features by the weights of {weights}", f"the weights of {weights}"
    what = f"the last layer of {name} on {features}, {views}"
    quicker = f"--model {split_names(name)[0]} is quicker and less accurate, " * joined
    otherwise = f"{quicker}--train all for the whole network, --recipe small to train from scratch"
    if train == "all":
        what, otherwise = f"all of {name} from {origin}", "--train head for the last layer only"
    return Choice("photos", {"model__name": name}, f"{photos}: {what} ({otherwise})")


def _run_of(weights: Path | str | None) -> Run | None:
    """Return the run that another one starts from; None: the weights are a file, or the official ones."""
    return None if weights is None or not Path(weights).is_dir() else Run(Path(weights))


def _for_all_layers(objective: ObjectiveSpec) -> ObjectiveSpec:
    """Return an objective without linear discriminants: training all layers changes the features they need."""
    parts = (part.model_copy(update={"lda": 0.0}) if isinstance(part, Cosine) else part for part in objective.parts)
    return ObjectiveSpec.of(tuple(parts))


def _measure(
    source: str | Path | None, data_root: Path | str | None, allow_outside: bool | None
) -> tuple[int, int, int] | None:
    """Return the median width and height of a folder's or manifest's images, and their number; None: it is neither."""
    if source is None or str(source).split(":")[0] in BENCHMARKS:
        return None
    table = load_source(source, data_root=data_root, download=False, allow_outside=bool(allow_outside))
    if not isinstance(table.pixels, FilePixels):
        return None
    pixels, sizes = table.pixels, []
    for row in stream(0, "sizes").permutation(len(pixels))[:SAMPLE].tolist():
        if pixels.boxes is not None:
            left, top, right, bottom = pixels.boxes[row].tolist()
            sizes.append((right - left, bottom - top))
        else:
            with suppress(BadImage):
                info = probe_image(pixels.path(row), pixels.content(row))
                sizes.append((info.width, info.height))
    if not sizes:
        return None
    width, height = np.median(sizes, axis=0).astype(int).tolist()
    return width, height, len(pixels)


def _has_weights(model: str) -> bool:
    from evenhand.models.build import list_models

    known = list_models(pretrained=True)
    return all(name.startswith("timm:") or name in known for name in split_names(model))


def _find_backbone(most: int) -> str:
    """Return the lites whose packages are installed, at most so many side by side; else the fallback."""
    installed = [name for name in LITES if find_spec(lite_package(name)) is not None]
    if installed:
        return JOIN.join(installed[:most])
    from evenhand.models.backbone import find_weights

    find_weights(FALLBACK)
    return FALLBACK


def make_run_config(
    recipe: str | None = None,
    config: Path | str | None = None,
    settings: Iterable[str] = (),
    **flags: Any,
) -> tuple[Config, str]:
    """Make a config as `make_config` does, with the default recipe of the source if none is named.

    Args:
        recipe: None: chosen by :func:`choose_recipe`, unless a file or the settings set the network.
        config: a YAML file over the recipe.
        settings: texts such as `optimizer.lr=0.05`.
        flags: values by dotted name with `__` for the dot; None: not given.

    Returns:
        The config, and why the recipe was chosen; empty for the usual recipe.

    Example:
        >>> from evenhand.training.recipe_choice import make_run_config
        >>> config, why = make_run_config(data__source="digits", epochs=3)
        >>> config.model.name, config.epochs, why
        ('resnet8', 3, '')
    """
    settings, given = list(settings), {key: value for key, value in flags.items() if value is not None}
    choice = Choice(recipe or "small")
    if recipe is None and config is None and not any(each.startswith("model.") for each in settings):
        choice = choose_recipe(
            given.get("data__source"),
            model=given.get("model__name"),
            flip=given.get("augmentation__flip"),
            train=given.get("start__train"),
            weights=given.get("start__weights"),
            data_root=given.get("data__root"),
            allow_outside=given.get("data__allow_outside"),
        )
    if choice.recipe == "photos" and given.get("start__train") == "all" and config is None:
        start = _run_of(given.get("start__weights"))  # its last layer is that of its objective
        given.setdefault("objective", FINE_TUNED if start is None else _for_all_layers(start.config.objective))
    if given.get("start__train") == "head" and "start__weights" not in given:
        given.setdefault("model__pretrained", True)  # a frozen body must be trained
    if given.get("start__train") == "all" and given.get("model__pretrained") and choice.recipe == "small":
        given.setdefault("optimizer__layer_decay", LAYER_DECAY)
    return make_config(choice.recipe, config, settings, **{**choice.flags, **given}), choice.why
