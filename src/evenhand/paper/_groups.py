"""Finished runs in groups that differ in objective and seed only, with corrected p-values of all pairs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from evenhand.experiments.grid.naming import canonical_source
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.paper._published import imbalance_words
from evenhand.paper._run_store import RunStore, half_learned_nothing
from evenhand.paper.planning import is_reduced, objective_of, resplits
from evenhand.runs.config import Config
from evenhand.runs.record import FinishedRun
from evenhand.statistics.paired import PairedDifference, balanced_resolution, holm, paired_difference

FOUR = {method: ObjectiveSpec(objective_of(method)) for method in ("ERM", "FL", "COT", "CCE")}


@dataclass(frozen=True)
class Group:
    """Finished runs that differ in objective and seed only."""

    config: Config
    """Of one of them."""
    runs: dict[str, dict[int, FinishedRun]]
    """By objective and seed; without objectives that learned nothing."""
    p_values: dict[tuple[str, str], float | None] = field(default_factory=dict)
    """Of two objectives in balanced accuracy, corrected for all pairs of the page."""

    @property
    def reduced(self) -> bool:
        """Whether its runs differ from the paper's training."""
        return is_reduced(self.config)

    @property
    def page(self) -> tuple[object, ...]:
        """What the columns of a page share."""
        config, data = self.config, self.config.data
        source = canonical_source(data.source).split(":")[0]
        return source, data.fraction, data.image_size, config.epochs, config.batch_size, config.schedule

    @property
    def where(self) -> str:
        """The conditions of its runs, in words."""
        data = self.config.data
        part = f", {data.fraction:g} of the images" if data.fraction < 1 else ""
        words = imbalance_words(data.imbalance)
        return f"{data.source} {words}, {self.config.model.name}, {self.config.epochs} epochs{part}"

    @property
    def gammas(self) -> dict[float, str]:
        """Its objectives with gamma below 0, which the claims are about, by gamma, the smallest weight first."""
        gammas = {}
        for objective in self.runs:
            name, _, option = objective.partition(":gamma=")
            if name == "cce" and option != "released":
                gammas[float(option or -1)] = objective
        return {gamma: gammas[gamma] for gamma in sorted(gammas, reverse=True) if gamma < 0}

    def compare(self, one: str, other: str, measure: Callable[[FinishedRun], float]) -> PairedDifference | None:
        """Return one objective minus the other in a measure; None without common seeds."""
        common = sorted(set(self.runs.get(one, {})) & set(self.runs.get(other, {})))
        if not common:
            return None
        ours, theirs = ([measure(self.runs[each][seed]) for seed in common] for each in (one, other))
        counts = [row.test_count for row in self.runs[one][common[0]].summary.per_class]
        return paired_difference(ours, theirs, resolution=balanced_resolution(counts) if measure is score else 0.0)


def find_groups(store: RunStore) -> list[Group]:
    """Sort all finished runs into groups whose objectives can be compared."""
    groups: dict[str, Group] = {}
    for run in store.runs():
        config = run.config
        shared = config.model_dump(mode="json", exclude={"objective", "seed", "track_test"})
        shared["data"] |= {"root": None, "source": canonical_source(config.data.source)}
        if resplits(config):
            shared["data"] |= {"split_seed": None}
        shared["compute"] = config.compute.precision
        group = groups.setdefault(json.dumps(shared, sort_keys=True), Group(config, {}))
        group.runs.setdefault(config.objective, {})[config.seed] = run
    return _with_p_values([replace(group, runs=_learned(group.runs)) for group in groups.values()])


def score(run: FinishedRun) -> float:
    """Return balanced accuracy."""
    return run.summary.balanced_accuracy


def _learned(runs: dict[str, dict[int, FinishedRun]]) -> dict[str, dict[int, FinishedRun]]:
    """Return the objectives without those that learned nothing."""
    return {objective: own for objective, own in runs.items() if not half_learned_nothing(own.values())}


def _with_p_values(groups: Sequence[Group]) -> list[Group]:
    """Correct the p-values of all pairs of a page together, methods and gammas apart, as the page itself does."""
    families: dict[tuple[object, ...], list[tuple[Group, str, str, float | None]]] = {}
    for group in groups:
        for kind, objectives in (("methods", list(FOUR.values())), ("gammas", list(group.gammas.values()))):
            for one, other in combinations([each for each in objectives if each in group.runs], 2):
                found = group.compare(one, other, score)
                if found is not None:
                    families.setdefault((kind, *group.page), []).append((group, one, other, found.p))
    for members in families.values():
        for (group, one, other, _), p in zip(members, holm([p for *_, p in members]), strict=True):
            group.p_values[one, other] = group.p_values[other, one] = p
    return list(groups)
