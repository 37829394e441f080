"""Finished runs sorted into groups that differ in objective and seed only, with the noise between them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from evenhand.experiments.grid.naming import canonical_source
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.paper._published import NETWORKS, imbalance_words
from evenhand.paper.planning import objective_of, splits_anew
from evenhand.paper.reproducing import learned_nothing
from evenhand.runs.config import Config
from evenhand.runs.run import Run, runs_in
from evenhand.statistics.paired import PairedDifference, balanced_resolution, holm, paired_difference

FOUR = {method: ObjectiveSpec(objective_of(method)) for method in ("ERM", "FL", "COT", "CCE")}


@dataclass(frozen=True)
class Group:
    """Finished runs that differ in objective and seed only."""

    config: Config
    """Of one of them."""
    runs: dict[str, dict[int, Run]]
    """By objective and seed; without objectives that learned nothing."""
    noise: dict[tuple[str, str], float | None] = field(default_factory=dict)
    """Of two objectives: p in balanced accuracy, corrected for all pairs of the page."""

    @property
    def stand_in(self) -> bool:
        """Whether another network stands in for the paper's."""
        return self.config.model.name not in NETWORKS

    @property
    def page(self) -> tuple[object, ...]:
        """What the columns of one page share."""
        data = self.config.data
        return canonical_source(data.source).split(":")[0], self.config.epochs, data.fraction, data.image_size

    @property
    def where(self) -> str:
        """Say which runs."""
        data = self.config.data
        part = f", {data.fraction:g} of the images" if data.fraction < 1 else ""
        words = imbalance_words(data.imbalance)
        return f"{data.source} {words}, {self.config.model.name}, {self.config.epochs} epochs{part}"

    @property
    def gammas(self) -> dict[float, str]:
        """Its objectives by gamma, those below 0 only, the smallest weight first: the claims are about these."""
        gammas = {}
        for objective in self.runs:
            name, _, option = objective.partition(":gamma=")
            if name == "cce" and option != "released":
                gammas[float(option or -1)] = objective
        return {gamma: gammas[gamma] for gamma in sorted(gammas, reverse=True) if gamma < 0}

    def compare(self, one: str, other: str, measure: Callable[[Run], float]) -> PairedDifference | None:
        """Return how much larger a measure is with one objective than with the other; None without common seeds."""
        common = sorted(set(self.runs.get(one, {})) & set(self.runs.get(other, {})))
        if not common:
            return None
        ours, theirs = ([measure(self.runs[each][seed]) for seed in common] for each in (one, other))
        resolution = _one_image(self.runs[one][common[0]]) if measure is score else 0.0
        return paired_difference(ours, theirs, resolution=resolution)


def find_groups(root: Path) -> list[Group]:
    """Read all finished runs under a folder, and sort them into groups that can be compared."""
    groups: dict[str, Group] = {}
    for run in runs_in(root):
        if not run.finished:
            continue
        config = run.config
        shared = config.model_dump(mode="json", exclude={"objective", "seed", "track_test"})
        shared["data"] |= {"root": None, "source": canonical_source(config.data.source)}
        if splits_anew(config):
            shared["data"] |= {"split_seed": None}
        shared["compute"] = config.compute.precision
        group = groups.setdefault(json.dumps(shared, sort_keys=True), Group(config, {}))
        group.runs.setdefault(config.objective, {})[config.seed] = run
    return _with_noise([replace(group, runs=_sound(group.runs)) for group in groups.values()])


def score(run: Run) -> float:
    """Return balanced accuracy."""
    return run.summary.balanced_accuracy


def _one_image(run: Run) -> float:
    """Return what one test image changes in a score; other measures are whole images, or no shares of any."""
    return balanced_resolution(row.test_count for row in run.summary.per_class)


def _sound(runs: dict[str, dict[int, Run]]) -> dict[str, dict[int, Run]]:
    """Leave out objectives of which half of the runs or more learned nothing."""
    return {
        objective: own
        for objective, own in runs.items()
        if 2 * sum(learned_nothing(run.summary) for run in own.values()) < len(own)
    }


def _with_noise(groups: Sequence[Group]) -> list[Group]:
    """Correct all pairs of a page together, as its own sentences do: methods among themselves, and gammas."""
    families: dict[tuple[object, ...], list[tuple[Group, str, str, float | None]]] = {}
    for group in groups:
        for kind, objectives in (("methods", list(FOUR.values())), ("gammas", list(group.gammas.values()))):
            for one, other in combinations([each for each in objectives if each in group.runs], 2):
                found = group.compare(one, other, score)
                if found is not None:
                    families.setdefault((kind, *group.page), []).append((group, one, other, found.p))
    for members in families.values():
        for (group, one, other, _), p in zip(members, holm([p for *_, p in members]), strict=True):
            group.noise[one, other] = group.noise[other, one] = p
    return list(groups)
