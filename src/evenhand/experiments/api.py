"""The Python API of comparisons: which objective is better, by how much, and with which confidence."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.core.files import check_folder
from evenhand.core.text import slug
from evenhand.data.batches import flip_warning
from evenhand.data.sources import load_source
from evenhand.data.splits import drop_small_classes
from evenhand.data.table import SampleTable
from evenhand.experiments.comparison._comparison import ComparisonResult, kept_comparison, write_comparison
from evenhand.experiments.comparison._hypothesis_tests import MARGIN
from evenhand.experiments.comparison._sequential import Plan, compare_sequentially
from evenhand.experiments.comparison.verdict import MOST_SEEDS
from evenhand.experiments.grid._notebook import notebook_grid_callback
from evenhand.experiments.grid._source_check import refuse_changed_source
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.experiments.grid.progress import GridCallback
from evenhand.experiments.grid.running import check_engine, run_on_engine
from evenhand.objectives.registry import tuning_candidates
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.runs.comparison import Comparison
from evenhand.runs.config import Config, validate
from evenhand.runs.filenames import EXPLORATORY
from evenhand.runs.run import Run
from evenhand.training.prepare import split, warm_features
from evenhand.training.recipe_choice import make_run_config

OBJECTIVES = ("ce", "cce", "balanced-softmax", "balanced-softmax+mixup")
"""What is compared by default, with the objective of the config, which a recipe may choose."""


def compare(
    source: str | Path | None = None,
    *,
    objectives: Sequence[str] | None = None,
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
    slurm: str | None = None,
    callback: GridCallback | None = None,
) -> ComparisonResult:
    """Train with several objectives and seeds, and compare them; a second call continues from the finished runs.

    The tables are written into the folder of the runs. In a script, call it under `if __name__ == "__main__":`, since
    each run is a process of its own.

    Args:
        source: a data set's name, a folder, a `.csv`, `.npz` or `.parquet`, or `hf:NAME`; `digits` if not given.
        objectives: at least two, all of which are in the table; `evenhand objectives` lists their parts. None:
            those of :func:`default_objectives`.
        seeds: runs per objective, for a single analysis; None: interim analyses at 3, 5, 8 and 12 seeds until
            everything is decided.
        most_seeds: without `seeds`: stop at this number, decided or not.
        margin: as a fraction, 0.01 is one point: smaller differences do not matter.
        baseline: the objective that the others are compared with; `ce` if it is listed.
        tune: try the few settings that each part declares (:func:`~evenhand.objectives.tuning_candidates`), pick on
            validation at the first analysis, and test only the picked one; parts given with settings stay as given.
        out: the folder of the comparison; under `runs/` if not given.
        recipe: `small`, `photos`, `paper` or `road-marking`; chosen from the images if not given.
        config: a YAML file over the recipe, or a whole config instead of everything above.
        settings: any others, such as `["optimizer.lr=0.05"]`.
        imbalance: `exp:RATIO`, `step:RATIO` or `none`.
        model: a name of :func:`~evenhand.list_models`, or `timm:NAME`.
        pretrained: start from ImageNet weights.
        trained: `head` (the last layer, on features of a frozen network) or `all`.
        epochs: passes over the training images.
        image_size: height and width of the images.
        data_root: the folder of data sets.
        jobs: runs at a time; one per processor or GPU if not given.
        engine: `local`, `ray` or `slurm`.
        ray_address: of a Ray cluster.
        slurm: what each job of SLURM asks for, such as `partition=gpu,time=2:00:00`.
        callback: progress callback; None: a bar in a notebook, else nothing.

    Returns:
        The comparison; runs that failed are named in its notes.

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
    shown = callback or notebook_grid_callback()
    return make_comparison(plan, engine=engine, workers=jobs, address=ray_address, slurm=slurm, callback=shown)[0]


def plan_comparison(
    base: Config,
    objectives: Sequence[str] | None = None,
    *,
    out: str | Path | None = None,
    seeds: int | None = None,
    most_seeds: int = MOST_SEEDS,
    margin: float = MARGIN,
    baseline: str | None = None,
    tune: bool = False,
) -> Plan:
    """Plan a comparison, and open its source; the arguments are those of :func:`compare`.

    Test sets rotate over seeds (`data.rotate`), unless the base sets it, the source fixes a test set, training starts
    from weights, which may have seen any image, or settings are tuned: what is picked on the validation images of all
    seeds must be tested on none of them.

    Raises:
        EvenhandError: something cannot be compared.
    """
    for name, value in (("--seeds", seeds), ("--most-seeds", most_seeds)):
        if value is not None and value < 1:
            raise EvenhandError(f"A comparison needs at least 1 seed, got {name} {value}.")
    if out is not None:
        check_folder(out)
    if not 0 <= margin < 1:
        raise EvenhandError(f"The margin is a fraction from 0 to 1, such as 0.01 for one point, got {margin:g}.")
    if tune and base.data.rotate:
        raise EvenhandError(
            "--tune picks settings on validation images of all seeds, and with data.rotate=true these are test images "
            "of other seeds; leave out one of the two."
        )
    if tune and base.select == "last":
        raise EvenhandError("--tune picks on validation, and select: last has none; leave out one of the two.")
    objectives = default_objectives(base) if objectives is None else objectives
    specs, given = [ObjectiveSpec(spec) for spec in objectives], ",".join(objectives)
    for spec in specs:
        validate(base.model_dump() | {"objective": spec})  # before data are read
    if len(set(specs)) < 2:
        raise EvenhandError(f"A comparison needs at least 2 objectives, got {given!r}.")
    table = load_source(base.data.source, data_root=base.data.root, allow_outside=base.data.allow_outside)
    split(base, drop_small_classes(table) if base.data.drop_small else table)  # refuses what no run could be trained on
    tuned = _tuned_settings(base, objectives, table) if tune else {}
    chosen = None if baseline is None else ObjectiveSpec(baseline)
    if chosen is not None and chosen not in {*specs, *(each for settings in tuned.values() for each in settings)}:
        raise EvenhandError(f"The baseline {baseline!r} is not among the objectives {given!r}; add it to --objectives.")
    folder = _default_folder(base) if out is None else Path(out)
    fixed = "rotate" in base.data.model_fields_set or base.start.weights is not None or table.splits is not None
    if not (tune or fixed):
        base = base.model_copy(update={"data": base.data.model_copy(update={"rotate": True})})
    return Plan(folder, base, tuple(objectives), table, chosen, seeds, most_seeds, margin, tuned)


def default_objectives(base: Config) -> tuple[str, ...]:
    """Return the objectives that are compared if none are named.

    Example:
        >>> from evenhand.experiments.api import default_objectives
        >>> from evenhand.runs.config import make_config
        >>> default_objectives(make_config())
        ('ce', 'cce', 'balanced-softmax', 'balanced-softmax+mixup')
        >>> default_objectives(make_config("photos"))[-1]
        'ce+cosine:lda=0.3:scale=20+post-hoc:tau=1'
    """
    return OBJECTIVES if base.objective in OBJECTIVES else (*OBJECTIVES, base.objective)


def _tuned_settings(base: Config, objectives: Sequence[str], table: SampleTable) -> dict[str, list[str]]:
    """Return the settings of each objective that can be tuned; what is listed by itself is not tried again."""
    num_classes = (drop_small_classes(table) if base.data.drop_small else table).num_classes
    taken = {ObjectiveSpec(spec) for spec in objectives}
    tuned: dict[str, list[str]] = {}
    for spec in objectives:
        own, *others = tuning_candidates(spec, num_classes)
        fresh = [each for each in others if each not in taken]
        taken |= set(fresh)
        if fresh:
            tuned[spec] = [own, *fresh]
    if not tuned:
        raise EvenhandError(
            f"--tune finds nothing to try in {','.join(objectives)!r}; name parts without settings, such as cce."
        )
    return tuned


def make_comparison(
    plan: Plan,
    *,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    slurm: str | None = None,
    command: str = "",
    callback: GridCallback | None = None,
) -> tuple[ComparisonResult, list[Path]]:
    """Do the runs that are missing, compare, and write the tables.

    Args:
        plan: what is compared.
        engine: `local`, `ray` or `slurm`, see :func:`~evenhand.experiments.grid.running.run_on_engine`.
        workers: runs at a time; None: as the engine chooses.
        address: of a Ray cluster; None: one on this machine.
        slurm: what each job of SLURM asks for.
        command: the command line, kept at the top of each config.
        callback: progress callback.

    Returns:
        The comparison, and the files that were written.
    """
    check_engine(engine, workers=workers, address=address, slurm=slurm)
    progress = callback or GridCallback()
    flip = plan.base.augmentation.flip
    unflipped = plan.base.start.train == "head" and not flip  # features of images as they are
    warnings = [] if unflipped else [flip_warning(plan.table, flip)]

    def run(jobs: Sequence[Job]) -> list[Failure]:
        refuse_changed_source(jobs, plan.table)
        if any(warnings) and not all(Run(job.folder).finished for job in jobs):
            progress.message(warnings.pop())  # before the runs: a note in the tables would come too late
        # A login node of SLURM is not for work: there, jobs divide the extraction among themselves.
        warm_features(plan.base, keep=plan.folder, extract=engine != "slurm")
        return run_on_engine(
            jobs, engine, workers=workers, address=address, slurm=slurm, command=command, callback=progress
        )

    comparison, failures = compare_sequentially(plan, run, progress)
    notes = [
        f"{failure.job.config.objective} with seed {failure.job.config.seed} failed and is left out: {failure.reason}"
        for failure in failures
    ]
    notes += [
        f"{each} was trained longer than the others: a second stage (epochs: {stage.epochs}) after the first."
        for each in comparison.objectives
        if (stage := ObjectiveSpec(each).stage) is not None
    ]
    comparison = comparison.model_copy(update={"notes": [*notes, *comparison.notes]})
    if replaced := _replaced(plan.folder, comparison):
        progress.message(replaced)
    return comparison, write_comparison(comparison, plan.folder)


def _replaced(folder: Path, comparison: Comparison) -> str:
    """Return a message if the tables of another comparison are replaced, or kept since this one is exploratory."""
    if kept := kept_comparison(comparison, folder):
        return (
            f"this comparison is exploratory, so that it is written as {EXPLORATORY}; the comparison of "
            f"{', '.join(kept.objectives)} with {len(kept.seeds)} seeds in {folder} and its report are kept"
        )
    try:
        before = Comparison.read(folder)
    except EvenhandError:
        return ""
    if (before.objectives, before.seeds) == (comparison.objectives, comparison.seeds):
        return ""
    return (
        f"the comparison of {', '.join(before.objectives)} with {len(before.seeds)} seeds in {folder} is replaced; its "
        "runs are kept"
    )


def _default_folder(base: Config) -> Path:
    source, imbalance = base.data.source, base.data.imbalance
    name = Path(source).name if "/" in source else source
    return Path("runs") / slug("compare", name, *([] if imbalance == "none" else [imbalance]), base.model.name)
