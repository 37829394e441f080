"""A comparison from its first run to its verdict: as many looks as it needs, and no more seeds than that."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evenhand.core.errors import EvenhandError
from evenhand.experiments.comparison._alpha_spending import (
    Look,
    looks_note,
    planned_looks,
    read_looks,
    settled,
    share_of,
    worth_more_seeds,
    write_look,
)
from evenhand.experiments.comparison._comparison import Comparison, compare_runs
from evenhand.experiments.comparison._hypothesis_tests import MARGIN
from evenhand.experiments.comparison._load import read_run
from evenhand.experiments.comparison._tried import with_tried
from evenhand.experiments.comparison._tuning import Pick, pick
from evenhand.experiments.comparison.verdict import conclusion, verdict_sentences
from evenhand.experiments.grid.jobs import Failure, Job, make_grid
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.statistics.paired import LEVEL

MOST_SEEDS = 12


@dataclass(frozen=True)
class Plan:
    """What is compared, and how far it may go."""

    folder: Path
    base: Config
    objectives: tuple[str, ...]
    """Specs, which all stand in the table."""
    baseline: str | None = None
    seeds: int | None = None
    """One look with so many; None: as many looks as it takes."""
    most_seeds: int = MOST_SEEDS
    margin: float = MARGIN
    tried: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of each objective that is tuned, all settings: one is picked on validation at the first look, and stays."""

    @property
    def settings(self) -> list[str]:
        """All that is trained for the first look."""
        return [setting for each in self.objectives for setting in self.tried.get(each, (each,))]

    @property
    def planned(self) -> list[int]:
        """At how many seeds it is looked at."""
        return planned_looks(self.most_seeds) if self.seeds is None else [self.seeds]

    def jobs(self, seeds: int, objectives: Sequence[str] | None = None) -> list[Job]:
        """Return the runs of a look."""
        return make_grid(self.folder, self.base, objectives=objectives or self.settings, seeds=range(seeds))

    @property
    def family(self) -> str:
        """A name for this comparison among those of its folder: from its runs and its baseline."""
        names = sorted(job.folder.name for job in self.jobs(1))
        tuned = [f"{each}: {len(settings)} tried" for each, settings in sorted(self.tried.items())]
        return hashlib.sha256("\n".join([*names, *tuned, self.baseline or ""]).encode()).hexdigest()[:12]

    def next_jobs(self) -> list[Job]:
        """Return the runs that the next look needs."""
        looks = read_looks(self.folder, self.family)
        coming = [seeds for seeds in self.planned if all(look.seeds < seeds for look in looks)]
        picked = looks[0].picked if looks else None
        return self.jobs(coming[0] if coming else self.planned[-1], picked)


def compare_in_looks(
    plan: Plan, run: Callable[[Sequence[Job]], list[Failure]], *, tell: Callable[[str], None] = lambda _: None
) -> tuple[Comparison, list[Failure]]:
    """Train and compare until every primary question is answered or the seeds run out.

    A comparison is looked at with 3, 5, 8 and 12 seeds, each time with a share of the 5%, so that the whole sequence
    makes at most 5% false claims. What was decided at a look stays, and so do settings that were tuned for the first.
    A comparison with a fixed number of seeds is one look at 5%; more seeds after that are exploratory, and called so.

    Args:
        plan: what is compared.
        run: does the runs of a look that are not finished yet, and returns those that failed.
        tell: hears what comes next.

    Raises:
        EvenhandError: nothing can be compared.
    """
    looks, planned = read_looks(plan.folder, plan.family), plan.planned
    tuned = _tune(plan, run, looks, tell) if plan.tried else _Tuned(plan.settings)
    picked, baseline = tuned.objectives, tuned.standing_for(plan.baseline)
    for seeds in planned:
        jobs = plan.jobs(seeds, picked)
        failures = [each for each in tuned.failures if each.job in jobs] if seeds == tuned.seeds else run(jobs)
        lost = {failure.job.folder for failure in failures}
        finished = [job.folder for job in jobs if job.folder not in lost]
        if not finished:
            raise EvenhandError(f"None of the {len(jobs)} runs finished; see what failed.")
        known = next((look for look in looks if look.seeds == seeds and look.margin == plan.margin), None)
        level = known.level if known else share_of(seeds, looks, last=seeds == planned[-1], margin=plan.margin)
        comparison = compare_runs(finished, baseline=baseline, level=level or LEVEL, margin=plan.margin)
        if len(comparison.seeds) < 2:
            break  # nothing can be claimed, so nothing is spent
        if known is None:
            known = _look(comparison, level, plan.margin)
            write_look(plan.folder, plan.family, known)
            looks.append(known)
        comparison = _with_looks(comparison, known, looks, planned)
        if seeds == planned[-1] or not worth_more_seeds(comparison.differences):
            break
        picked, baseline = list(known.picked), comparison.baseline
        coming = planned[planned.index(seeds) + 1]
        tell(f"with {seeds} seeds not everything is decided; going on to {coming}")
    lost_before = [each for each in tuned.failures if each.job not in jobs]
    return with_tried(comparison, tuned.picks, tuned.grouped), [*lost_before, *failures]


@dataclass(frozen=True)
class _Tuned:
    """What is compared after tuning, if there was any."""

    objectives: list[str]
    seeds: int | None = None
    """With so many all settings were trained."""
    picks: list[Pick] = field(default_factory=list)
    grouped: dict[str, dict[int, Run]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def standing_for(self, objective: str | None) -> str | None:
        """Return the picked setting of an objective that was tuned, or else the objective."""
        return next((each.picked for each in self.picks if objective in (each.family, *each.validation)), objective)


def _tune(
    plan: Plan, run: Callable[[Sequence[Job]], list[Failure]], looks: Sequence[Look], tell: Callable[[str], None]
) -> _Tuned:
    """Train all settings with the seeds of the first look, and pick by validation; what was picked before stays.

    A setting of which a run failed is not picked; an objective of which every setting failed is left out.
    """
    seeds = looks[0].seeds if looks else plan.planned[0]
    jobs = plan.jobs(seeds)
    if not looks:
        counts = ", ".join(f"{len(settings)} of {name}" for name, settings in plan.tried.items())
        tell(f"tuning on validation: {len(jobs) // seeds} settings x {seeds} seed{'s' * (seeds != 1)} ({counts})")
    failures = run(jobs)
    lost = {failure.job.config.objective for failure in failures}
    grouped: dict[str, dict[int, Run]] = {}
    for job in jobs:
        if job.config.objective not in lost:
            grouped.setdefault(job.config.objective, {})[job.config.seed] = read_run(job.folder)
    families = {name: [each for each in settings if each in grouped] for name, settings in plan.tried.items()}
    families = {name: settings for name, settings in families.items() if settings}
    picks = pick(grouped, families, frozen=looks[0].picked if looks else ())
    stands = {each.family: each.picked for each in picks}
    objectives = [stands.get(name, name) for name in plan.objectives if name in stands or name not in plan.tried]
    if not objectives:
        raise EvenhandError(f"No setting finished its {seeds} runs; see what failed.")
    return _Tuned(objectives, seeds, picks, grouped, failures)


def _look(comparison: Comparison, level: float, margin: float) -> Look:
    return Look(
        seeds=len(comparison.seeds),
        level=level or LEVEL,
        margin=margin,
        picked=tuple(comparison.objectives),
        differences=tuple(comparison.differences),
        exploratory=not level,
    )


def _with_looks(comparison: Comparison, look: Look, looks: Sequence[Look], planned: Sequence[int]) -> Comparison:
    """Let stand what was decided before, and say how often was looked."""
    spent = [each for each in looks if not each.exploratory]
    if look.exploratory:
        first = spent[0].seeds if spent else look.seeds
        note = (
            f"Exploratory: the 5% were spent on {first} seeds, so what {look.seeds} show can suggest what to try next, "
            "and proves nothing."
        )
        *sentences, last = comparison.verdicts
        verdicts = [*sentences, f"Exploratory, after a look at {first} seeds: {last[0].lower()}{last[1:]}"]
        return replace(comparison, verdicts=verdicts, notes=[note, *comparison.notes])
    before = [each for each in spent if each.seeds < look.seeds]
    differences = settled(comparison.differences, before)
    return replace(
        comparison,
        differences=differences,
        verdicts=[*verdict_sentences(differences), conclusion(differences, comparison.baseline)],
        notes=[*comparison.notes, looks_note([*before, look], planned)],
    )
