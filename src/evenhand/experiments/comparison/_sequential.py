"""Compare in a sequence of interim analyses: no more seeds than the verdict needs."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evenhand.core.errors import EvenhandError
from evenhand.data.table import SampleTable
from evenhand.experiments.comparison._alpha_spending import (
    analyses_note,
    decided_elsewhere,
    folder_alpha,
    keep_decided,
    worth_more_seeds,
)
from evenhand.experiments.comparison._comparison import ComparisonResult, compare_runs
from evenhand.experiments.comparison._hypothesis_tests import MARGIN
from evenhand.experiments.comparison._load import read_run
from evenhand.experiments.comparison._tuning import Pick, pick, with_tuned_settings
from evenhand.experiments.comparison.verdict import IN_A_NEW_COMPARISON, MOST_SEEDS, NEW_COMPARISON, listed
from evenhand.experiments.grid.jobs import Failure, Job, make_grid
from evenhand.experiments.grid.progress import GridCallback
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.runs.comparison import Comparison, is_comparison
from evenhand.runs.comparison_schemas import PRIMARY, Difference
from evenhand.runs.config import Config
from evenhand.runs.filenames import INTERIM_ANALYSES
from evenhand.runs.interim_analyses import (
    InterimAnalysis,
    add_interim_analysis,
    locked_ledger,
    read_interim_analyses,
    read_ledger,
)
from evenhand.runs.run import Run
from evenhand.statistics.alpha_spending import ROUNDING, planned_analyses
from evenhand.statistics.paired import LEVEL

SAME = 1e-9
"""Differences of means up to this are rounding."""
RunJobs = Callable[[Sequence[Job]], list[Failure]]
"""Finishes runs, and returns those that failed."""


@dataclass(frozen=True)
class Plan:
    """What is compared, and with how many seeds at most."""

    folder: Path
    base: Config
    objectives: tuple[str, ...]
    """Specs, all of which are in the table."""
    table: SampleTable = field(repr=False, compare=False)
    """The source, opened once."""
    baseline: str | None = None
    seeds: int | None = None
    """For a single analysis; None: as many analyses as it takes."""
    most_seeds: int = MOST_SEEDS
    margin: float = MARGIN
    tuned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of each objective that is tuned, all settings: one is picked on validation at the first analysis, and stays."""
    costs: str = ""
    """Identifies the costs that are tested too, with half of the alpha; empty: none."""

    @property
    def settings(self) -> list[str]:
        """All that is trained for the first analysis."""
        return [setting for each in self.objectives for setting in self.tuned.get(each, (each,))]

    @property
    def planned(self) -> list[int]:
        """The numbers of seeds at which it is analysed."""
        return planned_analyses(self.most_seeds) if self.seeds is None else [self.seeds]

    @property
    def most_runs(self) -> int:
        """How many runs it takes if the last analysis is needed; of settings, all are trained for the first only."""
        first, last = self.planned[0], self.planned[-1]
        return len(self.objectives) * last + (len(self.settings) - len(self.objectives)) * first

    def jobs(self, seeds: int, objectives: Sequence[str] | None = None) -> list[Job]:
        """Return the runs of an analysis."""
        return make_grid(self.folder, self.base, objectives=objectives or self.settings, seeds=range(seeds))

    @property
    def family(self) -> str:
        """A name for this comparison among those of its folder: from its runs and its baseline."""
        names = sorted(job.folder.name for job in self.jobs(1))
        # These words are hashed: another one would not find the analyses of existing comparisons.
        tuned = [f"{each}: {len(settings)} tried" for each, settings in sorted(self.tuned.items())]
        specs = [ObjectiveSpec(each) for each in self.objectives]
        baseline = self.baseline or ("ce" if "ce" in specs else specs[0])
        named = "" if baseline == "ce" else baseline
        return hashlib.sha256("\n".join([*names, *tuned, named]).encode()).hexdigest()[:12]

    def next_jobs(self) -> list[Job]:
        """Return the runs that the next analysis needs."""
        analyses = read_interim_analyses(self.folder, self.family)
        coming = [seeds for seeds in self.planned if all(each.seeds < seeds for each in analyses)]
        picked = analyses[0].picked if analyses else None
        return self.jobs(coming[0] if coming else self.planned[-1], picked)


def compare_sequentially(
    plan: Plan, run: RunJobs, callback: GridCallback | None = None
) -> tuple[ComparisonResult, list[Failure]]:
    """Train and compare until every primary difference is decided or the seeds run out.

    A comparison is analysed with 3, 5, 8 and 12 seeds, each time with a part of the 5%, so that the whole sequence
    makes at most 5% false claims. What an analysis decided stays, and so do settings that were tuned for the first.
    A comparison with a fixed number of seeds is a single analysis at 5%; seeds added later are exploratory.

    Args:
        plan: what is compared.
        run: does the runs that are not finished yet, and returns those that failed.
        callback: progress callback.

    Raises:
        EvenhandError: nothing can be compared.
    """
    callback = callback or GridCallback()
    analyses, planned = read_interim_analyses(plan.folder, plan.family), plan.planned
    tuning = _tune(plan, run, analyses, callback) if plan.tuned else _Tuning(plan.settings)
    picked, baseline = tuning.objectives, tuning.picked_setting(plan.baseline)
    complete: ComparisonResult | None = None
    for seeds in planned:
        jobs = plan.jobs(seeds, picked)
        failures = [each for each in tuning.failures if each.job in jobs] if seeds == tuning.seeds else run(jobs)
        lost = {failure.job.folder for failure in failures}
        finished = [job.folder for job in jobs if job.folder not in lost]
        if not finished:
            raise EvenhandError(f"None of the {len(jobs)} runs finished; see what failed.")
        last = seeds == planned[-1]
        if failures:
            why = f"{len(failures)} of {len(jobs)} runs failed; nothing is spent"
            if complete is not None:
                comparison = _try_again(complete)  # its decisions are final
                note = f"The analysis with {seeds} seeds waits: {why}. This is the one with {len(comparison.seeds)}."
                comparison = comparison.model_copy(update={"notes": [note, *comparison.notes]})
            else:
                comparison = compare_runs(finished, baseline=baseline, margin=plan.margin)
                if len(comparison.seeds) > 1:
                    comparison = _exploratory(_try_again(comparison), why)
            break
        with locked_ledger(plan.folder):
            comparison, analysis, why = _analyse(plan, finished, baseline, picked, seeds)
            ledger = read_ledger(plan.folder)
            analyses = ledger.get(plan.family, [])
        if analysis is None:
            break  # nothing can be claimed, so nothing is spent
        known = analysis
        comparison = _with_analyses(comparison, known, analyses, planned, why)
        if known.exploratory and (before := decided_elsewhere(ledger, plan.family)):
            first, *notes = comparison.notes
            comparison = comparison.model_copy(update={"notes": [first + before, *notes]})
        if last or not worth_more_seeds(comparison.differences):
            break
        complete, picked, baseline = comparison, known.picked, comparison.baseline
        coming = planned[planned.index(seeds) + 1]
        callback.message(f"undecided with {seeds} seeds; continuing with {coming}")
    lost_before = [each for each in tuning.failures if each.job not in jobs]
    return with_tuned_settings(comparison, tuning.picks, tuning.grouped), [*lost_before, *failures]


def _analyse(
    plan: Plan, finished: Sequence[Path], baseline: str | None, picked: Sequence[str], seeds: int
) -> tuple[ComparisonResult, InterimAnalysis | None, str]:
    """Compare runs at the alpha that the folder has left, and add the analysis to its ledger unless it is there.

    Returns:
        The comparison; its analysis, None where nothing can be claimed; and why it is exploratory, if that is known.
    """
    ledger, why = read_ledger(plan.folder), ""
    if not ledger and (lost := _lost_analysis(plan.folder)):
        add_interim_analysis(plan.folder, "restored", lost)
        ledger = read_ledger(plan.folder)
        why = f"the folder has a comparison, whose analyses are missing in {INTERIM_ANALYSES}, so that its 5% are spent"
    own = ledger.get(plan.family, [])
    known = next((each for each in own if each.seeds == seeds and each.margin == plan.margin), None)
    base = baseline or next((each for each in picked if each in ("ce", "erm")), picked[0])
    last = seeds == plan.planned[-1]
    alpha = known.level if known else 0.0
    if known is None:
        alpha = folder_alpha(
            seeds, ledger, plan.family, objectives=picked, baseline=base, last=last, margin=plan.margin
        )
    half = 0.5 if (known.costs if known else plan.costs) else 1.0  # the other half is that of the costs
    comparison = compare_runs(finished, baseline=baseline, level=half * (alpha or LEVEL), margin=plan.margin)
    if len(comparison.seeds) < 2:
        return comparison, None, why
    if known is None:
        known = InterimAnalysis(
            seeds=len(comparison.seeds),
            level=alpha or LEVEL,
            margin=plan.margin,
            picked=comparison.objectives,
            differences=comparison.differences,
            exploratory=not alpha,
            costs=plan.costs,
        )
        add_interim_analysis(plan.folder, plan.family, known)
    elif _changed(known.differences, comparison.differences):
        why = f"results of runs have changed since the analysis with {seeds} seeds"
    return comparison, known.model_copy(update={"exploratory": known.exploratory or bool(why)}), why


def _lost_analysis(folder: Path) -> InterimAnalysis | None:
    """Return the analysis of a comparison in a folder whose ledger was removed, as one that spent the 5%."""
    try:
        found = Comparison.read(folder) if is_comparison(folder) else None
    except EvenhandError:
        return None  # it is written again
    if found is None or found.exploratory:
        return None
    return InterimAnalysis(
        seeds=len(found.seeds),
        level=LEVEL,
        margin=found.differences[0].margin if found.differences else MARGIN,
        picked=found.objectives,
        differences=found.differences,
    )


def _changed(before: Sequence[Difference], now: Sequence[Difference]) -> bool:
    """Whether runs have other results than those that were analysed: a second draw would be a second chance."""
    means = {each.objective: each.mean for each in before if each.metric == PRIMARY}
    return any(abs(each.mean - means.get(each.objective, each.mean)) > SAME for each in now if each.metric == PRIMARY)


def cost_alpha(plan: Plan, seeds: int) -> float:
    """Return the alpha of the claims about costs: half of that of the analysis, which was planned with them.

    It is 0, and they are exploratory, where an analysis of the folder was made without them or with other ones.
    """
    ledger = read_ledger(plan.folder)
    made = [each for analyses in ledger.values() for each in analyses if not each.exploratory]
    own = next((each for each in ledger.get(plan.family, []) if each.seeds == seeds and not each.exploratory), None)
    return own.level / 2 if own and all(each.costs == plan.costs for each in made) else 0.0


def _try_again(comparison: ComparisonResult) -> ComparisonResult:
    """Return the comparison with a verdict that names what finishes the runs that failed."""
    *sentences, last = (each.partition(IN_A_NEW_COMPARISON)[0] for each in comparison.verdicts)
    last = f"{last.partition('; ' + NEW_COMPARISON)[0].rstrip('.')}; the same command tries the failed runs again."
    return comparison.model_copy(update={"verdicts": [*sentences, last]})


def _exploratory(comparison: ComparisonResult, why: str) -> ComparisonResult:
    """Return the comparison as one that claims nothing."""
    *sentences, last = comparison.verdicts
    verdicts = [*sentences, f"Exploratory: {last[0].lower()}{last[1:]}"]
    note = f"Exploratory: {why}. Results suggest what to try next and prove nothing."
    changes = {"verdicts": verdicts, "certainty": "undecided", "notes": [note, *comparison.notes]}
    return comparison.model_copy(update=changes)


@dataclass(frozen=True)
class _Tuning:
    """What is compared after tuning, if there was any."""

    objectives: list[str]
    seeds: int | None = None
    """With how many all settings were trained."""
    picks: list[Pick] = field(default_factory=list)
    grouped: dict[str, dict[int, Run]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def picked_setting(self, objective: str | None) -> str | None:
        """Return the picked setting of an objective that was tuned, or else the objective."""
        return next((each.picked for each in self.picks if objective in (each.family, *each.validation)), objective)


def _tune(plan: Plan, run: RunJobs, analyses: Sequence[InterimAnalysis], callback: GridCallback) -> _Tuning:
    """Train all settings with the seeds of the first analysis, and pick by validation; what was picked before stays.

    A setting of which a run failed is not picked; an objective of which every setting failed is left out.
    """
    seeds = analyses[0].seeds if analyses else plan.planned[0]
    jobs = plan.jobs(seeds)
    if not analyses:
        counts = ", ".join(f"{len(settings)} of {name}" for name, settings in plan.tuned.items())
        callback.message(
            f"tuning on validation: {len(jobs) // seeds} settings x {seeds} seed{'s' * (seeds != 1)} ({counts})"
        )
    failures = run(jobs)
    lost = {failure.job.config.objective for failure in failures}
    grouped: dict[str, dict[int, Run]] = {}
    for job in jobs:
        if job.config.objective not in lost:
            grouped.setdefault(job.config.objective, {})[job.config.seed] = read_run(job.folder)
    families = {name: [each for each in settings if each in grouped] for name, settings in plan.tuned.items()}
    families = {name: settings for name, settings in families.items() if settings}
    picks = pick(grouped, families, frozen=analyses[0].picked if analyses else ())
    picked = {each.family: each.picked for each in picks}
    objectives = [picked.get(name, name) for name in plan.objectives if name in picked or name not in plan.tuned]
    if not objectives:
        raise EvenhandError(f"No setting finished its {seeds} runs; see what failed.")
    return _Tuning(objectives, seeds, picks, grouped, failures)


def _with_analyses(
    comparison: ComparisonResult,
    analysis: InterimAnalysis,
    analyses: Sequence[InterimAnalysis],
    planned: Sequence[int],
    why: str,
) -> ComparisonResult:
    """Keep what earlier analyses decided, and add a note about them."""
    spent = [each for each in analyses if not each.exploratory]
    if why:
        return _exploratory(comparison, why)
    if analysis.exploratory and not spent:
        return _exploratory(comparison, "other analyses in this folder share its 5% and were made before")
    if analysis.exploratory:
        at = listed([str(each.seeds) for each in spent])
        after = f"{'an analysis' if len(spent) == 1 else 'analyses'} at {at} seeds"
        whole = sum(each.level for each in spent) > LEVEL - ROUNDING
        note = (
            f"Exploratory: {f'the 5% were spent at {at} seeds' if whole else f'{after} came first'}, so results with "
            f"{analysis.seeds} seeds suggest what to try next and prove nothing."
        )
        *sentences, last = comparison.verdicts
        verdicts = [*sentences, f"Exploratory, after {after}: {last[0].lower()}{last[1:]}"]
        changes = {"verdicts": verdicts, "certainty": "undecided", "notes": [note, *comparison.notes]}
        return comparison.model_copy(update=changes)
    before = [each for each in spent if each.seeds < analysis.seeds]
    comparison = comparison.with_differences(keep_decided(comparison.differences, before))
    return comparison.model_copy(update={"notes": [*comparison.notes, analyses_note([*before, analysis], planned)]})
