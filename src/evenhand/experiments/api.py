"""What Python users call: which objective is better, by how much, and how sure that is."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.core.files import check_folder, read_json
from evenhand.core.text import slug
from evenhand.data.batches import flip_warning
from evenhand.data.sources import load_source
from evenhand.data.splits import drop_small_classes
from evenhand.experiments.comparison._comparison import Comparison, write_comparison
from evenhand.experiments.comparison._hypothesis_tests import MARGIN
from evenhand.experiments.comparison._sequential import MOST_SEEDS, Plan, compare_in_looks
from evenhand.experiments.grid._source_check import refuse_changed_source
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.experiments.grid.progress import GridCallback
from evenhand.experiments.grid.running import check_engine, run_on_engine
from evenhand.objectives.registry import tuning_candidates
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.runs.config import Config, validate
from evenhand.runs.run import Run
from evenhand.training.prepare import warm_features
from evenhand.training.recipe_choice import make_run_config

OBJECTIVES = ("ce", "cce", "balanced-softmax", "balanced-softmax+mixup")
RunJobs = Callable[[Sequence[Job]], list[Failure]]
Tell = Callable[[str], None]


def compare(
    source: str | Path | None = None,
    *,
    objectives: Sequence[str] = OBJECTIVES,
    seeds: int | None = None,
    most_seeds: int = MOST_SEEDS,
    margin: float = MARGIN,
    baseline: str | None = None,
    tune: bool = False,
    out: str | Path | None = None,
    recipe: str | None = None,
    config: str | Path | Config | None = None,
    settings: Iterable[str] = (),
    imbalance: str | None = None,
    model: str | None = None,
    pretrained: bool | None = None,
    trained: str | None = None,
    epochs: int | None = None,
    image_size: int | None = None,
    data_root: str | Path | None = None,
    jobs: int | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    callback: GridCallback | None = None,
) -> Comparison:
    """Train with several objectives and seeds, and compare them; called again, it goes on from the runs that are there.

    Its tables are written into the folder of the runs. In a script, the call has to stand behind
    `if __name__ == "__main__":`, since the runs are processes of their own.

    Args:
        source: a data set's name, a folder of class folders, a `.csv` or a `.npz`; `digits` if not given.
        objectives: at least two, which all stand in the table; `evenhand objectives` lists what they are made of.
        seeds: runs of each objective, for one look; None: looks at 3, 5, 8 and 12, until everything is decided.
        most_seeds: without `seeds`: stop at so many, decided or not.
        margin: as a share, 0.01 is one point: differences that are smaller do not matter.
        baseline: what the others are compared with; `ce` if it is there.
        imbalance: `exp:RATIO`, `step:RATIO` or `none`.
        model: a name of :func:`~evenhand.list_models`, or `timm:NAME`.
        pretrained: start from ImageNet weights.
        trained: `head` (the last layer, on features of a frozen network) or `all`.
        epochs: how often every training image is seen.
        image_size: height and width to bring images to.
        data_root: where data sets lie.
        out: the comparison's folder; under `runs/` if not given.
        recipe: `small`, `photos`, `paper` or `road-marking`; what suits the images if not given.
        config: a YAML file over the recipe, or a whole config instead of everything above.
        settings: any others, such as `["optimizer.lr=0.05"]`.
        tune: try the few settings that each part declares (:func:`~evenhand.objectives.settings_to_try`), pick
            on validation at the first look, and test only what was picked; parts given with settings stay as given.
        jobs: runs at a time; one a processor or GPU if not given.
        engine: `local` or `ray`.
        ray_address: of a Ray cluster.
        callback: who looks on.

    Returns:
        What was found; runs that failed are named in its notes.

    Example:
        >>> import tempfile
        >>> import evenhand
        >>> found = evenhand.compare("digits", objectives=["ce", "cce"], seeds=1, epochs=1, out=tempfile.mkdtemp())
        >>> found.objectives, found.seeds, found.baseline
        (['ce', 'cce'], [0], 'ce')
    """
    flags: dict[str, Any] = {
        "data__source": None if source is None else str(source),
        "data__root": None if data_root is None else str(data_root),
        "data__imbalance": imbalance,
        "data__image_size": image_size,
        "model__name": model,
        "model__pretrained": pretrained,
        "start__train": trained,
        "epochs": epochs,
    }
    base = config if isinstance(config, Config) else make_run_config(recipe, config, settings, **flags)[0]
    plan = plan_comparison(
        base, objectives, out=out, seeds=seeds, most_seeds=most_seeds, margin=margin, baseline=baseline, tune=tune
    )
    check_engine(engine, workers=jobs, address=ray_address)
    return make_comparison(
        plan, lambda look: run_on_engine(look, engine, workers=jobs, address=ray_address, callback=callback)
    )[0]


def plan_comparison(
    base: Config,
    objectives: Sequence[str] = OBJECTIVES,
    *,
    out: str | Path | None = None,
    seeds: int | None = None,
    most_seeds: int = MOST_SEEDS,
    margin: float = MARGIN,
    baseline: str | None = None,
    tune: bool = False,
) -> Plan:
    """Return what is compared, and how far it may go; the arguments are those of :func:`compare`.

    Seeds take turns with the test images (`data.rotate`), unless the base says what they do, the source fixes a test
    set, training starts from weights, which may have seen any image, or settings are tuned: what is picked by the
    validation images of all seeds must be tested on none of them.

    Raises:
        EvenhandError: one sentence about what cannot be compared.
    """
    for name, value in (("--seeds", seeds), ("--most-seeds", most_seeds)):
        if value is not None and value < 1:
            raise EvenhandError(f"A comparison needs at least 1 seed, got {name} {value}.")
    if out is not None:
        check_folder(out)
    if not 0 <= margin < 1:
        raise EvenhandError(f"A margin is a share from 0 to 1, such as 0.01 for one point, got {margin:g}.")
    base = base if tune else _rotated(base)
    if tune and base.data.rotate:
        raise EvenhandError(
            "--tune picks settings on validation images of all seeds, and with data.rotate=true these are test images "
            "of other seeds; leave out one of the two."
        )
    named = [ObjectiveSpec(spec) for spec in objectives]
    for spec in named:
        validate(base.model_dump() | {"objective": spec})  # before data are read
    given = ",".join(objectives)
    if len(set(named)) < 2:
        raise EvenhandError(f"A comparison needs at least 2 objectives, got {given!r}.")
    tried = _settings_tried(base, objectives) if tune else {}
    chosen = None if baseline is None else ObjectiveSpec(baseline)
    if chosen is not None and chosen not in {*named, *(each for settings in tried.values() for each in settings)}:
        raise EvenhandError(f"The baseline {baseline!r} is not among the objectives {given!r}.")
    folder = _default_folder(base) if out is None else Path(out)
    return Plan(folder, base, tuple(objectives), chosen, seeds, most_seeds, margin, tried)


def _rotated(base: Config) -> Config:
    if "rotate" in base.data.model_fields_set or base.start.weights is not None:
        return base
    table = load_source(base.data.source, data_root=base.data.root, allow_outside=base.data.allow_outside)
    if table.splits is not None:
        return base
    return base.model_copy(update={"data": base.data.model_copy(update={"rotate": True})})


def _settings_tried(base: Config, objectives: Sequence[str]) -> dict[str, list[str]]:
    """Return of each objective that can be tuned its settings; one that stands in the table by itself is not tried."""
    if base.select == "last":
        raise EvenhandError("--tune picks on validation, which select: last does without; leave out one of the two.")
    table = load_source(base.data.source, data_root=base.data.root, allow_outside=base.data.allow_outside)
    num_classes = (drop_small_classes(table) if base.data.drop_small else table).num_classes
    taken = {ObjectiveSpec(spec) for spec in objectives}
    tried: dict[str, list[str]] = {}
    for spec in objectives:
        own, *others = tuning_candidates(spec, num_classes)
        fresh = [each for each in others if each not in taken]
        taken |= set(fresh)
        if fresh:
            tried[spec] = [own, *fresh]
    if not tried:
        raise EvenhandError(
            f"--tune finds nothing to try in {','.join(objectives)!r}; name parts without settings, such as cce."
        )
    return tried


def make_comparison(plan: Plan, run: RunJobs, *, tell: Tell = lambda _: None) -> tuple[Comparison, list[Path]]:
    """Run what is missing, compare, and write the tables.

    Args:
        plan: what is compared.
        run: finishes runs, and returns those that failed.
        tell: hears what a person should know meanwhile.

    Returns:
        What was found, and the files that were written.
    """
    warned: list[str] = []

    def run_unchanged(look: Sequence[Job]) -> list[Failure]:
        refuse_changed_source(look)
        if not warned and not all(Run(job.folder).finished for job in look):
            warned.append(_flip_warning(plan.base))
            if warned[0]:
                tell(warned[0])  # now, while it can still be changed: in the notes it comes after all runs
        warm_features(plan.base, keep=plan.folder)
        return run(look)

    comparison, failures = compare_in_looks(plan, run_unchanged, tell=tell)
    left_out = [
        f"{failure.job.config.objective} with seed {failure.job.config.seed} failed and is left out: {failure.reason}"
        for failure in failures
    ]
    comparison = replace(comparison, notes=[*left_out, *_trained_longer(comparison), *comparison.notes])
    replaced = _replaced(plan.folder / "comparison.json", comparison)
    if replaced:
        tell(replaced)
    return comparison, write_comparison(comparison, plan.folder)


def _trained_longer(comparison: Comparison) -> list[str]:
    """Say which objectives were trained for more epochs than the others."""
    stages = {each: ObjectiveSpec(each).stage for each in comparison.objectives}
    return [
        f"{each} was trained longer than the others: a second stage (epochs: {stage.epochs}) after the first."
        for each, stage in stages.items()
        if stage is not None
    ]


def _flip_warning(base: Config) -> str:
    if base.start.train == "head" and not base.augmentation.flip:
        return ""  # features of images as they are
    table = load_source(base.data.source, data_root=base.data.root, allow_outside=base.data.allow_outside)
    return flip_warning(table, base.augmentation.flip)


def _replaced(path: Path, comparison: Comparison) -> str:
    """Say that the tables of another comparison give way; its runs are kept, so it can be made again at once."""
    try:
        before = read_json(path)
        named = f"{', '.join(before['objectives'])} with {len(before['seeds'])} seeds"
        same = (before["objectives"], before["seeds"]) == (comparison.objectives, comparison.seeds)
    except (OSError, ValueError, LookupError, TypeError, EvenhandError):
        return ""
    return "" if same else f"the comparison of {named} in {path.parent} is replaced; its runs are kept"


def _default_folder(base: Config) -> Path:
    source, imbalance = base.data.source, base.data.imbalance
    name = Path(source).name if "/" in source else source
    return Path("runs") / slug("compare", name, *([] if imbalance == "none" else [imbalance]), base.model.name)
