"""The finished runs of a study as a table: measured against published, column by column."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.experiments.grid.jobs import read_failure
from evenhand.paper._deviations import deviations
from evenhand.paper._open_choices import open_choices
from evenhand.paper._ordering import Ordering, beyond_noise, compare_order, correct_together
from evenhand.paper._provenance import provenance
from evenhand.paper._published import NETWORKS, imbalance_words
from evenhand.paper._run_store import RunStore, half_learned_nothing
from evenhand.paper.planning import StudyCell, StudyOptions, is_reduced, jobs_of, plan
from evenhand.paper.studies import PLAIN_FOCAL, RELEASED, Study
from evenhand.runs.record import FinishedRun, RunRecord
from evenhand.runs.schemas import Summary
from evenhand.statistics.paired import PairedDifference, balanced_resolution, paired_difference

MEASURES = {"balanced_accuracy": "balanced accuracy", "accuracy": "accuracy"}


@dataclass(frozen=True)
class Measured:
    """One measure of one cell, 0 to 1."""

    values: dict[int, float]
    """By seed."""
    resolution: float = 0.0
    """How much one test image changes it."""

    @property
    def mean(self) -> float:
        """Over seeds."""
        return statistics.fmean(self.values.values())

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; None with one."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None


@dataclass(frozen=True)
class MeasuredCell:
    """A cell with the results of its finished runs."""

    cell: StudyCell
    measured: dict[str, Measured]
    """By measure; empty without a finished run."""
    runs: tuple[FinishedRun, ...]
    majority: dict[str, float]
    """What always predicting the largest class would reach, 0 to 1, by measure; empty without a finished run."""
    failed: bool
    """Whether half of its runs or more learned nothing."""

    @property
    def n(self) -> int:
        """Finished runs."""
        return len(self.runs)

    @property
    def missing(self) -> list[int]:
        """Seeds without a finished run."""
        return sorted(set(self.cell.seeds) - {run.config.seed for run in self.runs})

    def difference(self, measure: str) -> float | None:
        """Return measured minus published, None where they cannot be compared."""
        if self.cell.published is None or not self.cell.comparable or measure not in self.measured:
            return None
        return self.measured[measure].mean - self.cell.published


@dataclass(frozen=True)
class MeasuredColumn:
    """The methods under one set of conditions; differences are of values 0 to 1, by measure."""

    cells: tuple[MeasuredCell, ...]
    orderings: dict[str, Ordering]
    """Empty where the paper prints fewer than two methods."""
    gains: dict[str, dict[str, PairedDifference]]
    """CCE (or gamma=-1) minus each other method, by measure and method."""
    alpha: dict[str, PairedDifference]
    """Focal loss with its alpha minus without; empty without both."""

    @property
    def reference(self) -> str:
        """The method that the others are compared with."""
        return "CCE" if any(each.cell.method == "CCE" for each in self.cells) else "gamma=-1"

    @property
    def signs(self) -> dict[str, PairedDifference]:
        """CCE with the paper's sign minus that with the released code's; empty without both."""
        return {measure: found[RELEASED] for measure, found in self.gains.items() if RELEASED in found}

    @property
    def finished(self) -> int:
        """Finished runs."""
        return sum(each.n for each in self.cells)

    @property
    def title(self) -> str:
        """The data set, the imbalance and the network."""
        cell = self.cells[0].cell
        trained, row = cell.config.model.name, NETWORKS.get(cell.row, cell.row)
        network = row if trained == cell.row else f"{trained} (in the paper {row})"
        return f"{cell.config.data.source}, {imbalance_words(cell.config.data.imbalance)}, {network}"

    def not_run(self) -> str:
        """Return the methods and seeds without a finished run, empty if there are none."""
        missing = [f"{each.cell.method} ({_seed_words(each.missing)})" for each in self.cells if each.missing]
        return ", ".join(missing) if self.finished else "no run"


@dataclass(frozen=True)
class Reproduction:
    """The results of a study so far."""

    study: Study
    options: StudyOptions
    columns: tuple[MeasuredColumn, ...]
    wanted: int
    """Runs of the whole study."""
    failed: tuple[str, ...]
    """Runs that failed, each with its reason."""
    provenance: dict[str, Any]
    """Machines, versions, dates and hours of the finished runs, see :func:`~evenhand.paper._provenance.provenance`."""
    command: str = ""

    @property
    def finished(self) -> int:
        """Finished runs."""
        return len({run.name for column in self.columns for cell in column.cells for run in cell.runs})

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that are shown: accuracy too where the test set is imbalanced."""
        return tuple(MEASURES) if self.study.imbalanced_test else ("balanced_accuracy",)

    def deviations(self) -> list[str]:
        """Return where it differs from what the paper did."""
        return deviations(self.study, self.options)

    def open_choices(self) -> list[str]:
        """Return what the paper leaves open, and the choice made here."""
        return open_choices([each.cell for column in self.columns for each in column.cells])

    def not_run(self) -> list[str]:
        """Return what was not run, by column."""
        return [f"{column.title}: {column.not_run()}" for column in self.columns if column.not_run()]

    def conclusions(self) -> list[str]:
        """Return the results in a few sentences, failures first."""
        missing = self.wanted - self.finished
        lines = [
            f"{', '.join(each.cell.method for each in column.cells if each.failed)} learned nothing at {column.title}: "
            "nothing is concluded from that."
            for column in self.columns
            if any(each.failed for each in column.cells)
        ]
        lines += [f"{missing} of {self.wanted} runs are missing: the results are partial."] if missing else []
        for measure in self.measures:
            orderings = [column.orderings[measure] for column in self.columns if measure in column.orderings]
            known = [each for each in orderings if each.state is not None]
            pairs = [pair for each in known for pair in each.pairs]
            if not pairs:
                continue
            agree, against = ([pair for pair in pairs if pair.agrees is wanted] for wanted in (True, False))
            states = Counter(str(each.state) for each in known)
            counted = ", ".join(f"{state} in {count}" for state, count in states.items())
            columns = f"{len(known)} column{'s' * (len(known) != 1)}"
            lines.append(
                f"By {MEASURES[measure]}, the published order of methods, {columns}: {counted}; "
                f"{len(agree)} of {len(pairs)} pairs agree ({beyond_noise(agree)}), {len(against)} are reversed "
                f"({beyond_noise(against)})."
            )
        return lines


def read_reproduction(
    study: Study, options: StudyOptions, root: Path, *, records: Iterable[RunRecord] = (), command: str = ""
) -> Reproduction:
    """Read what is finished of a study.

    Args:
        study: a table or a figure.
        options: those of its runs.
        root: the folder of the run folders.
        records: of further runs.
        command: the command line, for the page.
    """
    store, cells = RunStore(root, records), plan(study, options)
    members: dict[tuple[str, str, str], list[MeasuredCell]] = {}
    for cell in cells:
        members.setdefault(cell.column, []).append(_measure(cell, store))
    columns = tuple(map(_column, members.values()))
    _correct(columns)
    jobs = jobs_of(cells, root)
    finished = {run.name: run for column in columns for each in column.cells for run in each.runs}
    failures = (read_failure(job) for job in jobs if store.find(job) is None)
    return Reproduction(
        study=study,
        options=options,
        columns=columns,
        wanted=len(jobs),
        failed=tuple(f"{each.job.folder.name}: {each.reason}" for each in failures if each),
        provenance=provenance(finished.values()),
        command=command,
    )


def _measure(cell: StudyCell, store: RunStore) -> MeasuredCell:
    runs = [run for run in map(store.find, cell.jobs(store.root)) if run is not None]
    summaries = {run.config.seed: run.summary for run in runs}
    measured = {
        measure: Measured(
            {seed: float(getattr(each, measure)) for seed, each in summaries.items()},
            max(_resolution(measure, each) for each in summaries.values()),
        )
        for measure in (MEASURES if runs else ())
    }
    return MeasuredCell(cell, measured, tuple(runs), _majority(list(summaries.values())), half_learned_nothing(runs))


def _majority(summaries: Sequence[Summary]) -> dict[str, float]:
    """Return what always predicting the class with most training images would reach, 0 to 1, by measure."""
    if not summaries:
        return {}
    shares, chances = [], []
    for each in summaries:
        largest = max(each.per_class, key=lambda row: row.train_count)
        shares.append(largest.test_count / sum(row.test_count for row in each.per_class))
        chances.append(1 / sum(row.test_count > 0 for row in each.per_class))
    return {"balanced_accuracy": statistics.fmean(chances), "accuracy": statistics.fmean(shares)}


def _correct(columns: Sequence[MeasuredColumn]) -> None:
    """Correct the pairs of all columns of a page together, for each measure."""
    for measure in MEASURES:
        ordered = [column for column in columns if measure in column.orderings]
        corrected = correct_together([column.orderings[measure] for column in ordered])
        for column, ordering in zip(ordered, corrected, strict=True):
            column.orderings[measure] = ordering


def _resolution(measure: str, summary: Summary) -> float:
    counts = [row.test_count for row in summary.per_class]
    return balanced_resolution(counts) if measure == "balanced_accuracy" else 1 / sum(counts)


def _column(cells: Sequence[MeasuredCell]) -> MeasuredColumn:
    published = {each.cell.method: each.cell.published for each in cells if each.cell.published is not None}
    first = cells[0].cell
    reduced = is_reduced(first.config) or not first.comparable
    failed = [each.cell.method for each in cells if each.failed]
    column = MeasuredColumn(tuple(cells), {}, {}, {})
    for measure in MEASURES:
        found = {each.cell.method: each.measured[measure] for each in cells if measure in each.measured}
        values = {method: own.values for method, own in found.items()}
        step = max((own.resolution for own in found.values()), default=0.0)
        if len(published) > 1:
            column.orderings[measure] = compare_order(
                published, values, resolution=step, reduced=reduced, failed=failed
            )
        gains = {other: _paired(values, column.reference, other, step) for other in values if other != column.reference}
        column.gains[measure] = {other: gain for other, gain in gains.items() if gain is not None}
        alpha = _paired(values, "FL", PLAIN_FOCAL, step)
        if alpha is not None:
            column.alpha[measure] = alpha
    return column


def _paired(
    values: Mapping[str, Mapping[int, float]], one: str, other: str, resolution: float
) -> PairedDifference | None:
    """Compare two methods over the seeds that both have, None without any."""
    common = sorted(set(values.get(one, {})) & set(values.get(other, {})))
    if not common:
        return None
    return paired_difference(
        *([values[method][seed] for seed in common] for method in (one, other)), resolution=resolution
    )


def _seed_words(seeds: Sequence[int]) -> str:
    consecutive = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    numbers = f"{seeds[0]}-{seeds[-1]}" if consecutive else ", ".join(map(str, seeds))
    return f"seed{'s' * (len(seeds) > 1)} {numbers}"
