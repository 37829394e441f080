"""Training from Python, in one line."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evenhand.core.text import slug
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.training._notebook import notebook_callback
from evenhand.training.loop import Callback
from evenhand.training.recipe_choice import make_run_config
from evenhand.training.run import begin_run, holding


def train(
    source: str | Path | None = None,
    *,
    objective: str | None = None,
    imbalance: str | None = None,
    model: str | None = None,
    pretrained: bool | None = None,
    trained: str | None = None,
    epochs: int | None = None,
    seed: int | None = None,
    image_size: int | None = None,
    data_root: str | Path | None = None,
    out: str | Path | None = None,
    recipe: str | None = None,
    config: str | Path | Config | None = None,
    settings: Iterable[str] = (),
    callback: Callback | None = None,
) -> Run:
    """Train a classifier and evaluate it; settings that are not given come from the recipe.

    Args:
        source: a data set's name, a folder, a `.csv`, `.npz` or `.parquet`, or `hf:NAME`; `digits` if not given.
        objective: parts of :func:`~evenhand.list_objectives` joined by `+`, such as `cce:gamma=-2` or
            `balanced-softmax+cce`.
        imbalance: `exp:RATIO`, `step:RATIO` or `none`.
        model: a name of :func:`~evenhand.list_models`, or `timm:NAME`.
        pretrained: start from ImageNet weights.
        trained: what to train: `head` (the last layer, on features of a frozen network) or `all`.
        epochs: number of epochs.
        seed: random seed.
        image_size: resize the shorter side to this many pixels.
        data_root: folder of the data sets.
        out: folder of the run, which must be empty; under `runs/` if not given.
        recipe: a name of `evenhand.runs.config.RECIPES`, such as `paper`; chosen by the images if not given.
        config: a YAML file over the recipe, or a whole config, which replaces all arguments above but `out`.
        settings: any other settings, such as `["optimizer.lr=0.05"]`.
        callback: progress callback; None: a bar in a notebook, else nothing.

    Returns:
        The finished run.

    Example:
        >>> import tempfile
        >>> import evenhand
        >>> run = evenhand.train("digits", objective="cce", epochs=1, out=f"{tempfile.mkdtemp()}/run")
        >>> len(evenhand.load(run).class_names)
        10
    """
    flags: dict[str, Any] = {
        "data__source": None if source is None else str(source),
        "data__root": None if data_root is None else str(data_root),
        "data__imbalance": imbalance,
        "data__image_size": image_size,
        "objective": objective,
        "model__name": model,
        "model__pretrained": pretrained,
        "start__train": trained,
        "epochs": epochs,
        "seed": seed,
    }
    run_config = config if isinstance(config, Config) else make_run_config(recipe, config, settings, **flags)[0]
    with holding(default_folder(run_config) if out is None else out, number=out is None) as folder:
        return begin_run(run_config, folder, callback=callback or notebook_callback(run_config.epochs))


def default_folder(config: Config) -> Path:
    """Return the default folder of a run, under `runs/`."""
    source = Path(config.data.source).name if "/" in config.data.source else config.data.source
    parts = [source, config.data.imbalance, config.objective, config.model.name, f"seed{config.seed}"]
    return Path("runs") / slug(*(part for part in parts if part != "none"))
