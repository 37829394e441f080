"""Load finished runs, and refuse those that cannot be compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.metrics.classification import class_recall, mean_recall
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.registry import METRICS
from evenhand.metrics.shot_groups import ShotGroups, find_shot_groups
from evenhand.runs.comparison_schemas import Scores
from evenhand.runs.config import Config
from evenhand.runs.failures import ended_at_worst, learned_nothing, no_few_shot
from evenhand.runs.filenames import SPLITS
from evenhand.runs.run import Run
from evenhand.runs.schemas import Environment, precision_name

FREE = ("objective", "seed", "data.root", "data.allow_outside", "track_test")
"""Settings that may differ between compared runs: what is compared, and what does not change the result of a run."""


def read_run(path: Path | str) -> Run:
    """Read config and summary of a finished run; its predictions are read later.

    Raises:
        EvenhandError: it is no run, is not finished, or its files cannot be read.
    """
    run = Run(Path(path))
    _ = run.config, run.summary
    return run


def group_runs(runs: Sequence[Run]) -> tuple[dict[str, dict[int, Run]], list[str]]:
    """Sort comparable runs by objective and seed, with the same seeds for each objective.

    Returns:
        For each objective, in the order given, its runs by seed; and notes.

    Raises:
        EvenhandError: a setting differs, the images differ, a run comes twice, or no seed is common to all.
    """
    if not runs:
        raise EvenhandError("There are no runs to compare; give the folders of finished ones.")
    grouped: dict[str, dict[int, Run]] = {}
    for run in runs:
        refuse_unlike(runs[0], run)
        members = grouped.setdefault(run.config.objective, {})
        if run.config.seed in members:
            first = members[run.config.seed].path
            raise EvenhandError(
                f"{run.config.objective} with seed {run.config.seed} comes twice, as {first} and {run.path}; give one."
            )
        same = next(iter(members.values()), run)
        if same.config.class_weights != run.config.class_weights:
            raise EvenhandError(
                f"Cannot compare {same.path} with {run.path}: the weights in the file of {run.config.objective} "
                "differ; give them two file names."
            )
        members[run.config.seed] = run
    common = sorted(set.intersection(*(set(members) for members in grouped.values())))
    if not common:
        seen = "; ".join(f"{name}: {_numbers(members)}" for name, members in grouped.items())
        raise EvenhandError(f"No seed was run with every objective, so nothing is paired ({seen}); run the same seeds.")
    left_out = {seed for members in grouped.values() for seed in members} - set(common)
    notes = []
    if left_out:
        notes.append(
            f"Only seeds that every objective has are compared ({_numbers(common)}), not {_numbers(left_out)}."
        )
    grouped = {name: {seed: members[seed] for seed in common} for name, members in grouped.items()}
    _refuse_other_images(grouped)
    return grouped, notes + _mixtures(grouped)


def refuse_unlike(one: Run, other: Run) -> None:
    """Refuse two runs that differ in more than objective and seed, naming the first setting that does."""
    ours, theirs = _settings(one.config), _settings(other.config)
    staged = _is_second_stage(one.config) or _is_second_stage(other.config)
    for key, value in ours.items():
        if staged and (key == "epochs" or key.startswith("start.")):
            continue  # the objective names what a second stage changes
        if value != theirs[key]:
            raise EvenhandError(
                f"Cannot compare {one.path} with {other.path}: {key} is {value!r} in one and {theirs[key]!r} in the "
                "other; compare runs that differ in objective and seed only."
            )


@dataclass(frozen=True, eq=False)
class TestResult:
    """One run on its test set."""

    __test__ = False  # or pytest takes it for a test by its name

    scores: Scores
    recall: NDArray[np.float64]
    """(K,), NaN for a class without a test image."""
    groups: ShotGroups
    train_counts: NDArray[np.int64]
    """(K,)."""
    ids: NDArray[np.str_]
    """(n,): its test images."""
    correct: NDArray[np.bool_]
    """(n,): whether each of them was classified correctly."""
    failed: str | None
    """Why nothing is concluded from the run."""
    no_few: str | None
    """Why nothing is concluded about few-shot classes."""


@dataclass(frozen=True, eq=False)
class TestSet:
    """The test images of all compared runs together."""

    __test__ = False

    ids: NDArray[np.str_]
    targets: NDArray[np.int64]
    class_names: tuple[str, ...]
    groups: NDArray[np.str_] | None
    """Which images belong together; None: all are independent."""
    rotated: bool = False
    """Whether every seed has its own test images."""

    def correct(self, results: Sequence[TestResult]) -> NDArray[np.float64]:
        """Return (n, N), whether each image was classified correctly in each run, NaN where it was not tested."""
        order = np.argsort(self.ids)
        found = np.full((len(results), len(self.ids)), np.nan)
        for own, each in zip(found, results, strict=True):
            own[order[np.searchsorted(self.ids, each.ids, sorter=order)]] = each.correct
        return found


def read_results(grouped: Mapping[str, Mapping[int, Run]]) -> tuple[TestSet, dict[str, list[TestResult]]]:
    """Evaluate the predictions of runs.

    Returns:
        The test set, and for each objective the results of its runs in the order of seeds.

    Raises:
        EvenhandError: predictions cannot be read, or are not of the same images, classes and training counts.
    """
    tested: dict[int | None, TestSet] = {}
    counts: dict[int, NDArray[np.int64]] = {}
    results: dict[str, list[TestResult]] = {}
    for objective, members in grouped.items():
        for seed, run in members.items():
            found = run.predictions
            own = TestSet(found.ids, found.targets, found.class_names, found.groups)
            shared = tested.setdefault(seed if run.config.data.rotate else None, own)
            if found.class_names != next(iter(tested.values())).class_names:
                raise EvenhandError(f"Cannot compare {run.path}: its classes are not those of the other runs.")
            if not (np.array_equal(found.ids, shared.ids) and np.array_equal(found.targets, shared.targets)):
                raise EvenhandError(
                    f"Cannot compare {run.path}: its {len(found):,} test images are not those of the other runs, "
                    f"{len(shared.ids):,}, in the same order; use one data.split_seed and one state of the source."
                )
            if not np.array_equal(counts.setdefault(seed, found.train_counts), found.train_counts):
                raise EvenhandError(
                    f"Cannot compare {run.path}: its training counts are not those of the other runs of seed {seed}."
                )
            results.setdefault(objective, []).append(_evaluate(found, run))
    return _joined(list(tested.values())), results


def _joined(parts: Sequence[TestSet]) -> TestSet:
    """Return the images of several test sets, each once."""
    if len(parts) == 1:
        return parts[0]
    ids, first = np.unique(np.concatenate([each.ids for each in parts]), return_index=True)
    targets = np.concatenate([each.targets for each in parts])[first]
    grouped = [each.groups for each in parts if each.groups is not None]
    groups = np.concatenate(grouped)[first] if len(grouped) == len(parts) else None
    return TestSet(ids, targets, parts[0].class_names, groups, rotated=True)


def _evaluate(predictions: Predictions, run: Run) -> TestResult:
    groups = find_shot_groups(predictions.train_counts)
    metrics = {name: metric.function(predictions) for name, metric in METRICS.items()}
    shots = {name: mean_recall(predictions.confusion, getattr(groups, name)) for name in ("many", "medium", "few")}
    return TestResult(
        scores={**metrics, **shots},
        recall=class_recall(predictions.confusion),
        groups=groups,
        train_counts=predictions.train_counts,
        ids=predictions.ids,
        correct=predictions.correct(),
        failed=ended_at_worst(run.history, run.summary.selected.epoch) or learned_nothing(predictions),
        no_few=no_few_shot(predictions),
    )


def _is_second_stage(config: Config) -> bool:
    return config.start.weights is not None and config.objective.stage is not None


def _settings(config: Config) -> dict[str, Any]:
    """Return all settings that must be equal, by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in config.model_dump(mode="json", exclude={"class_weights"}).items():
        flat |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    # Devices and workers do not change the result; the precision does.
    return {
        k: v for k, v in flat.items() if k not in FREE and (not k.startswith("compute.") or k.endswith("precision"))
    }


def _refuse_other_images(grouped: dict[str, dict[int, Run]]) -> None:
    """Refuse runs of one seed on other images: the source was changed between them."""
    first, *others = grouped.values()
    for seed, run in first.items():
        for members in others:
            if _fingerprint(members[seed]) != _fingerprint(run):
                raise EvenhandError(
                    f"Cannot compare {run.path} with {members[seed].path}: seed {seed} was not trained and "
                    "tested on the same images, so the source has changed in between; run one of them again."
                )


def _mixtures(grouped: dict[str, dict[int, Run]]) -> list[str]:
    """Return notes about differences that do not forbid a comparison."""
    environments = [_environment(run) for members in grouped.values() for run in members.values()]
    notes = []
    codes = {made.code for made in environments if made.code}
    if len(codes) > 1:
        notes.append(f"The runs were made with {len(codes)} versions of the code ({', '.join(sorted(codes))}).")
    for what, values in (
        ("threads", _recorded(grouped, lambda made: made.threads)),
        ("processors", _recorded(grouped, lambda made: _known_processor(made.processor))),
        ("devices", _recorded(grouped, lambda made: (made.device or "").partition(":")[0] or None)),
    ):
        if len(values) > 1:
            seen = "; ".join(f"{value}: {', '.join(names)}" for value, names in sorted(values.items()))
            notes.append(
                f"The runs were computed with different {what} ({seen}), which changes results, so that a part of the "
                "differences may come from it; run one group again."
            )
    precisions = sorted({precision_name(made.precision) for made in environments if made.precision})
    if len(precisions) > 1:
        notes.append(
            f"The runs were computed in {len(precisions)} precisions ({', '.join(precisions)}), so their numbers "
            "differ by more than objective and seed; set compute.precision to use one."
        )
    elif precisions:
        notes.append(f"Computed in {precisions[0]}.")
    return notes


def _recorded(grouped: Mapping[str, Mapping[int, Run]], read: Callable[[Environment], object]) -> dict[str, list[str]]:
    """Return for each recorded value which objectives have it, with their seeds."""
    found: dict[str, dict[str, list[int]]] = {}
    for name, members in grouped.items():
        for seed, run in members.items():
            value = read(_environment(run))
            if value is not None:
                found.setdefault(str(value), {}).setdefault(name, []).append(seed)
    return {
        value: [f"{name} seed{'s' * (len(seeds) > 1)} {_numbers(seeds)}" for name, seeds in own.items()]
        for value, own in found.items()
    }


def _known_processor(name: str | None) -> str | None:
    """Return a processor's model; None for an architecture, which older runs recorded instead."""
    return None if name in (None, "", "x86_64", "AMD64", "i386", "arm", "arm64", "aarch64") else name


def _environment(run: Run) -> Environment:
    try:
        return run.environment
    except EvenhandError:
        return Environment()  # needed for a note only


def _fingerprint(run: Run) -> str | None:
    return run.splits.fingerprint if run.has(SPLITS) else None


def _numbers(numbers: Any) -> str:
    return ", ".join(str(each) for each in sorted(numbers))
