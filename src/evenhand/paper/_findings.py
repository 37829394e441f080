"""The claims of the paper's text tested on finished runs."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_json
from evenhand.core.text import some
from evenhand.experiments.grid.naming import canonical_source
from evenhand.paper._finding import Finding, all_above, clear, difference_words, finding, one_difference
from evenhand.paper._groups import FOUR, Group, find_groups, score
from evenhand.paper._kept_comparisons import comparison_findings
from evenhand.paper._ordering import State, decided
from evenhand.paper._published import best_of_others, published_tables
from evenhand.paper._run_store import RunStore
from evenhand.paper._speed import PAPER
from evenhand.runs.comparison import Comparison
from evenhand.runs.filenames import FEATURES
from evenhand.runs.record import FinishedRun
from evenhand.runs.run import Run
from evenhand.statistics.paired import holm, paired_difference

CLUSTERS = ("T-shirt/top", "Pullover", "Dress", "Coat", "Shirt")
GAIN = 0.1102
TWICE = 2.0


def find_findings(store: RunStore, speed: Path, comparisons: Iterable[Comparison] = ()) -> dict[str, list[Finding]]:
    """Test every claim on the finished runs; an empty list where there are none for it.

    Args:
        store: the finished runs.
        speed: the `table.json` of the study `speed`, which may be missing.
        comparisons: of objectives with `ce`, whose runs may be gone.
    """
    groups = find_groups(store)
    tests: dict[str, Callable[[Group], Finding | None]] = {
        "cce-best": _cce_best,
        "rare-classes": _rare_classes,
        "every-class": _every_class,
        "cot-over-erm": lambda group: _better(group, FOUR["COT"], {"ERM": FOUR["ERM"]}),
        "resnet101": _gain,
        "road-best": _road_best,
        "gamma-best": _gamma_best,
        "gamma-falls": _gamma_falls,
        "clusters": _clusters,
        "fewer-epochs": _fewer_epochs,
    }
    found = {name: [each for each in map(test, groups) if each] for name, test in tests.items()}
    for comparison in comparisons:
        for name, own in comparison_findings(comparison).items():
            found[name].append(own)
    return found | {"twice": list(_speed_findings(speed, _twice)), "faster": list(_speed_findings(speed, _faster))}


def _better(group: Group, one: str, others: Mapping[str, str]) -> Finding | None:
    """Test the claim that one objective is better than all others."""
    found = {name: group.compare(one, objective, score) for name, objective in others.items()}
    known = {
        f"over {name}": (each, group.p_values.get((one, others[name])))
        for name, each in found.items()
        if each is not None
    }
    return all_above(group, known) if known else None


def _cce_best(group: Group) -> Finding | None:
    if not all(group.runs.get(objective) for objective in FOUR.values()):
        return None
    return _better(group, FOUR["CCE"], {name: objective for name, objective in FOUR.items() if name != "CCE"})


def _gain(group: Group) -> Finding | None:
    """Test the size of the gain on the paper's random split; with resnet8 it is shown without a decision."""
    config = group.config
    if canonical_source(config.data.source) != "road-marking" or config.model.name not in ("resnet101", "resnet8"):
        return None
    difference = group.compare(FOUR["CCE"], FOUR["ERM"], lambda run: run.summary.accuracy)
    if difference is None:
        return None
    detail = f"accuracy {difference_words(difference)}"
    if config.model.name != "resnet101":
        detail += f"; {config.model.name} decides nothing about ResNet-101"
        return Finding(group.where, "not decided", detail, reduced=True)
    state: State = "not decided"
    if difference.low is not None and difference.high is not None:
        state = "does not hold" if difference.high < GAIN else "holds" if difference.low > 0 else "not decided"
    return Finding(group.where, state, detail, against=0.0 if state == "does not hold" else 1.0)


def _road_best(group: Group) -> Finding | None:
    """Test whether EfficientNet b0 with CCE is above the best result of other papers, on the paper's random split."""
    config, runs = group.config, group.runs.get(FOUR["CCE"], {})
    if canonical_source(config.data.source) != "road-marking" or config.model.name != "efficientnet_b0" or not runs:
        return None
    paper, best = best_of_others(published_tables()["table-road-sota"])
    accuracies = [run.summary.accuracy for run in runs.values()]
    above = paired_difference(accuracies, [best / 100] * len(accuracies))
    words = difference_words(above)
    return one_difference(
        group, f"accuracy {100 * float(np.mean(accuracies)):.2f}, {words} over {best:.2f} ({paper})", above
    )


def _gamma_best(group: Group) -> Finding | None:
    gammas = group.gammas
    if -1 not in gammas or len(gammas) < 3:
        return None
    return _better(group, gammas[-1], {f"gamma={gamma:g}": each for gamma, each in gammas.items() if gamma != -1})


def _gamma_falls(group: Group) -> Finding | None:
    gammas = group.gammas
    known = {}
    for one, other in pairwise(gammas):
        found = group.compare(gammas[one], gammas[other], score)
        if found is not None:
            p = group.p_values.get((gammas[one], gammas[other]))
            known[f"for gamma={one:g} over gamma={other:g}"] = (found, p)
    return all_above(group, known) if len(known) > 1 else None


def _rare_classes(group: Group) -> Finding | None:
    """Test whether few-shot classes gain recall, and gain more than the other classes."""
    if not group.config.data.imbalance.startswith(("exp:", "step:")):
        return None
    members = [run for name in ("CCE", "ERM") for run in group.runs.get(FOUR[name], {}).values()]
    if any(math.isnan(_recall_of(run, few=each)) for run in members for each in (True, False)):
        return None
    few = group.compare(FOUR["CCE"], FOUR["ERM"], lambda run: _recall_of(run, few=True))
    more = group.compare(FOUR["CCE"], FOUR["ERM"], lambda run: _recall_of(run, few=True) - _recall_of(run, few=False))
    if few is None or more is None:
        return None
    corrected = holm([few.p, more.p])
    found = {"in few-shot recall": (few, corrected[0]), "relative to the other classes": (more, corrected[1])}
    return all_above(group, found)


def _recall_of(run: FinishedRun, *, few: bool) -> float:
    """Return the mean recall of few-shot classes, or of all others; NaN without any."""
    recalls = [row.recall for row in run.summary.per_class if row.recall is not None and (row.group == "few") is few]
    return float(np.mean(recalls)) if recalls else math.nan


def _every_class(group: Group) -> Finding | None:
    source = canonical_source(group.config.data.source)
    if not source.startswith("cifar") or not group.config.data.imbalance.startswith("exp:"):
        return None
    total = group.compare(FOUR["CCE"], FOUR["ERM"], score)
    if total is None:
        return None
    some_run = next(iter(group.runs[FOUR["CCE"]].values()))
    names = [row.name for row in some_run.summary.per_class if row.recall is not None]
    found = {name: group.compare(FOUR["CCE"], FOUR["ERM"], partial(_recall, name)) for name in names}
    known = {name: each for name, each in found.items() if each is not None}
    corrected = dict(zip(known, holm([each.p for each in known.values()]), strict=True))
    lower = sorted((name for name, each in known.items() if each.mean < 0), key=lambda name: known[name].mean)
    clearly = [name for name in lower if clear(corrected[name])]
    gained = sum(each.mean > 0 for each in known.values())
    all_gain = gained == len(known) and clear(total.p)
    against = min((p for name in clearly if (p := corrected[name]) is not None), default=1.0)
    detail = f"{gained} of {len(known)} classes gain on average"
    if lower:
        detail += f", {len(lower)} lose ({len(clearly)} beyond noise), most of all {some(lower, 3)}"
    return finding(group, f"{detail}; balanced accuracy {difference_words(total)}", holds=all_gain, against=against)


def _recall(name: str, run: FinishedRun) -> float:
    found = next(row.recall for row in run.summary.per_class if row.name == name)
    return math.nan if found is None else found


def separation(features: NDArray[np.float64], targets: NDArray[np.int64], classes: Sequence[int]) -> float:
    """Return the separation of classes in feature space: mean distance of their centres over their mean radius.

    The radius of a class is the root mean squared distance of its images to its centre. Scaling all features changes
    nothing.

    Args:
        features: (N, F).
        targets: (N,).
        classes: which classes.

    Example:
        >>> import numpy as np
        >>> from evenhand.paper._findings import separation
        >>> features = np.array([[-1.0, 0], [1, 0], [9, 0], [11, 0]])
        >>> separation(features, np.array([0, 0, 1, 1]), [0, 1])
        10.0
    """
    members = [features[targets == k] for k in classes]
    centres = [own.mean(axis=0) for own in members]
    radii = [np.sqrt(((own - own.mean(axis=0)) ** 2).sum(axis=1).mean()) for own in members]
    distances = [np.linalg.norm(one - other) for one, other in combinations(centres, 2)]
    return float(np.mean(distances) / np.mean(radii))


def _clusters(group: Group) -> Finding | None:
    data = group.config.data
    if canonical_source(data.source) != "fashion-mnist" or data.imbalance != "exp:10":
        return None
    # Records have no features, and a run may have none.
    folders: dict[str, dict[int, FinishedRun]] = {
        objective: {seed: run for seed, run in own.items() if isinstance(run, Run) and (run.path / FEATURES).is_file()}
        for objective, own in group.runs.items()
    }
    difference = replace(group, runs=folders).compare(FOUR["CCE"], FOUR["ERM"], _cluster_separation)
    if difference is None:
        return None
    detail = f"distance of class centres over class radius {difference_words(difference, unit='')}"
    return one_difference(group, detail, difference)


def _cluster_separation(run: FinishedRun) -> float:
    assert isinstance(run, Run)
    names = [row.name for row in run.summary.per_class]
    kept = run.features
    return separation(kept.features.astype(np.float64), kept.targets, [names.index(name) for name in CLUSTERS])


def _fewer_epochs(group: Group) -> Finding | None:
    """Compare the epochs until each first reaches an error that both reach: the larger of their last errors."""
    if canonical_source(group.config.data.source).split(":")[0] != "road-marking":
        return None
    runs = {name: group.runs.get(FOUR[name], {}) for name in ("CCE", "ERM")}
    curves = {name: {seed: _errors(run) for seed, run in own.items()} for name, own in runs.items()}
    common = sorted(seed for seed in curves["CCE"] if curves["CCE"][seed] and curves["ERM"].get(seed))
    if not common:
        return None
    needed: dict[str, list[float]] = {"CCE": [], "ERM": []}
    for seed in common:
        goal = max(curves[name][seed][-1] for name in needed)
        for name, own in needed.items():
            own.append(1 + next(k for k, error in enumerate(curves[name][seed]) if error <= goal))
    difference = paired_difference(needed["ERM"], needed["CCE"])
    detail = f"ERM needs {difference_words(difference, unit=' epochs', digits=1)} more than CCE for an error both reach"
    return one_difference(group, detail, difference)


def _errors(run: FinishedRun) -> list[float]:
    return [1 - row["test_accuracy"] for row in run.history if "test_accuracy" in row]


def _speed_findings(path: Path, test: Callable[[float, float], tuple[bool, str]]) -> Iterator[Finding]:
    """Test a claim about the time of COT in every setting of the study `speed`."""
    if not path.exists():
        return
    try:
        yield from [_one_speed(each, test) for each in read_json(path)["settings"]]
    except (EvenhandError, LookupError, TypeError, ValueError) as error:
        why = reason(error).removeprefix(f"Cannot read {path}: ")
        raise EvenhandError(f"Cannot read {path}: {why}; run evenhand reproduce speed again.") from error


def _one_speed(each: Mapping[str, Any], test: Callable[[float, float], tuple[bool, str]]) -> Finding:
    one, two = (float(each["ratios"][name]["median"]) for name in ("cot:forwards=1", "cot"))
    holds, paper = test(one, two)
    where = f"{each['network']}, batch {each['batch_size']}, {each['precision']}, {each['threads']} threads"
    forms = f"{one:.2f} times as printed, {two:.2f} times with two forward passes"
    return Finding(
        where,
        decided(holds=holds, fails=not holds, reduced=False),
        f"{forms} (paper: {paper}), {each['rounds']} rounds",
        against=1.0 if holds else 0.0,
    )


def _faster(one: float, two: float) -> tuple[bool, str]:
    """Test whether the paper's factor holds between the two forms of COT, or within a tenth of one of them."""
    return min(one, two) / 1.1 <= PAPER <= max(one, two) * 1.1, f"{PAPER}"


def _twice(one: float, two: float) -> tuple[bool, str]:
    """Approximately twice: within a fifth, in either form of COT."""
    return any(abs(each - TWICE) <= TWICE / 5 for each in (one, two)), "approximately 2"
