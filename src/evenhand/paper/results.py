"""A study's finished runs as a table: measured beside published, column by column."""

import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.experiments.grid.jobs import Job, read_failure
from evenhand.metrics.paired import PairedDifference, balanced_resolution, paired_difference
from evenhand.paper._choices import open_choices
from evenhand.paper._ordering import Ordering, beyond_noise, correct_together, judge_ordering
from evenhand.paper._published import NETWORKS, imbalance_words
from evenhand.paper.planning import StudyCell, StudyOptions, deviations, plan
from evenhand.paper.studies import PLAIN_FOCAL, RELEASED, Study
from evenhand.runs.content import Summary
from evenhand.runs.folder import Run

MEASURES = {"balanced_accuracy": "balanced accuracy", "accuracy": "accuracy"}


@dataclass(frozen=True)
class Measured:
    """One measure of one cell, as a share."""

    values: dict[int, float]
    """By seed."""
    resolution: float = 0.0
    """What one test image changes."""

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
    """A cell with what its finished runs came to."""

    cell: StudyCell
    measured: dict[str, Measured]
    """By measure; empty where no run is finished."""
    runs: tuple[Job, ...]
    """The finished ones."""
    majority: dict[str, float]
    """What always answering the largest class would have reached, as a share, by measure; empty without a run."""
    failed: bool
    """Whether half of its runs or more learned nothing."""

    @property
    def n(self) -> int:
        """Finished runs."""
        return len(self.runs)

    def difference(self, measure: str) -> float | None:
        """Return measured minus published, as shares; None where that compares nothing."""
        if self.cell.published is None or not self.cell.comparable or measure not in self.measured:
            return None
        return self.measured[measure].mean - self.cell.published


@dataclass(frozen=True)
class MeasuredColumn:
    """The methods under one set of conditions."""

    cells: tuple[MeasuredCell, ...]
    orderings: dict[str, Ordering]
    """By measure; empty where the paper prints no two methods there."""
    sign: dict[str, PairedDifference]
    """CCE with the paper's sign minus that with the released code's, in shares, by measure; empty without both."""
    alpha: dict[str, PairedDifference]
    """Focal loss with its alpha minus that without, in shares, by measure; empty without both."""

    @property
    def stand_in(self) -> bool:
        """Whether another network stands in for the paper's."""
        return self.cells[0].cell.config.model.name not in NETWORKS

    @property
    def title(self) -> str:
        """Say which conditions."""
        cell = self.cells[0].cell
        trained, row = cell.config.model.name, NETWORKS.get(cell.row, cell.row)
        network = row if NETWORKS.get(trained, trained) == row else f"{trained} (in the paper {row})"
        return f"{cell.config.data.source}, {imbalance_words(cell.config.data.imbalance)}, {network}"


@dataclass(frozen=True)
class Reproduction:
    """What a study came to so far."""

    study: Study
    options: StudyOptions
    columns: tuple[MeasuredColumn, ...]
    wanted: int
    """Runs of the whole study."""
    failed: tuple[str, ...]
    """Runs that failed, each with its reason."""
    made: dict[str, Any]
    """On what, with which versions, and when the finished runs were made."""
    command: str = ""

    @property
    def finished(self) -> int:
        """Runs that are finished."""
        return len({run.folder for column in self.columns for cell in column.cells for run in cell.runs})

    @property
    def measures(self) -> tuple[str, ...]:
        """What is shown: accuracy too where the test set is imbalanced."""
        return tuple(MEASURES) if self.study.both else ("balanced_accuracy",)

    def deviations(self) -> list[str]:
        """Say where it differs from what the paper did."""
        return deviations(self.study, self.options)

    def choices(self) -> list[str]:
        """Say what the paper leaves open and was chosen here."""
        return open_choices(self.study)

    def failures(self) -> list[str]:
        """Say first what failed."""
        return [
            f"{', '.join(each.cell.method for each in column.cells if each.failed)} learned nothing at {column.title}: "
            "nothing is concluded from that."
            for column in self.columns
            if any(each.failed for each in column.cells)
        ]

    def conclusions(self) -> list[str]:
        """Say in a few sentences what came out."""
        missing = self.wanted - self.finished
        lines = self.failures()
        lines += [f"{missing} of {self.wanted} runs are missing: what follows is partial."] if missing else []
        for measure in self.measures:
            orderings = [column.orderings[measure] for column in self.columns if measure in column.orderings]
            judged = [each for each in orderings if each.state is not None]
            pairs = [pair for each in judged for pair in each.pairs]
            if not pairs:
                continue
            agree, against = ([pair for pair in pairs if pair.agrees is wanted] for wanted in (True, False))
            states = Counter(str(each.state) for each in judged)
            said = ", ".join(f"{state} in {count}" for state, count in states.items())
            lines.append(
                f"By {MEASURES[measure]}, the published order of methods, {len(judged)} columns: {said}; "
                f"{len(agree)} of {len(pairs)} pairs agree ({beyond_noise(agree)}), {len(against)} stand the other "
                f"way round ({beyond_noise(against)})."
            )
        return lines


def check_sources(cells: Iterable[StudyCell]) -> None:
    """Load every data set once, before any run begins: what is missing is said, or downloaded, here."""
    for source, root in dict.fromkeys((cell.config.data.source, cell.config.data.root) for cell in cells):
        load_source(source, data_root=root)


def read_reproduction(study: Study, options: StudyOptions, root: Path, *, command: str = "") -> Reproduction:
    """Read what is finished of a study.

    Args:
        study: of a table or a figure.
        options: as its runs were made.
        root: the folder of the run folders.
        command: what was typed, for the record.
    """
    cells = plan(study, options)
    columns: dict[tuple[str, str, str], list[MeasuredCell]] = {}
    for cell in cells:
        columns.setdefault(cell.column, []).append(_measure(cell, root))
    jobs = {job.folder: job for cell in cells for job in cell.jobs(root)}
    done = [run for members in columns.values() for cell in members for run in cell.runs]
    unfinished = [job for job in jobs.values() if not Run(job.folder).finished]
    return Reproduction(
        study=study,
        options=options,
        columns=_corrected([_column(members) for members in columns.values()]),
        wanted=len(jobs),
        failed=tuple(f"{each.job.folder.name}: {each.reason}" for each in map(read_failure, unfinished) if each),
        made=how_made([run.folder for run in done]),
        command=command,
    )


def _measure(cell: StudyCell, root: Path) -> MeasuredCell:
    finished = [job for job in cell.jobs(root) if Run(job.folder).finished]
    summaries = {job.config.seed: Run(job.folder).summary for job in finished}
    measured = {
        measure: Measured(
            {seed: float(getattr(each, measure)) for seed, each in summaries.items()},
            max(_resolution(measure, each) for each in summaries.values()),
        )
        for measure in (MEASURES if finished else ())
    }
    nothing = sum(learned_nothing(each) for each in summaries.values())
    return MeasuredCell(
        cell,
        measured,
        tuple(finished),
        _majority(list(summaries.values())),
        bool(nothing) and 2 * nothing >= len(finished),
    )


def learned_nothing(summary: Summary) -> bool:
    """Whether a run is no better than always answering one class, by its summary."""
    tested = sum(row.test_count > 0 for row in summary.per_class)
    told = any(each.startswith("learned nothing") for each in summary.failures)
    return told or summary.balanced_accuracy <= 1 / tested


def _majority(summaries: Sequence[Summary]) -> dict[str, float]:
    """Return what always answering the class with most training images would reach, as a share."""
    if not summaries:
        return {}
    shares, chances = [], []
    for each in summaries:
        largest = max(each.per_class, key=lambda row: row.train_count)
        shares.append(largest.test_count / sum(row.test_count for row in each.per_class))
        chances.append(1 / sum(row.test_count > 0 for row in each.per_class))
    return {"balanced_accuracy": statistics.fmean(chances), "accuracy": statistics.fmean(shares)}


def _corrected(columns: Sequence[MeasuredColumn]) -> tuple[MeasuredColumn, ...]:
    """Correct the pairs of all columns of a page together, for each measure."""
    found: list[dict[str, Ordering]] = [{} for _ in columns]
    for measure in MEASURES:
        places = [place for place, column in enumerate(columns) if measure in column.orderings]
        together = correct_together([columns[place].orderings[measure] for place in places])
        for place, ordering in zip(places, together, strict=True):
            found[place][measure] = ordering
    return tuple(replace(column, orderings=own) for column, own in zip(columns, found, strict=True))


def _resolution(measure: str, summary: Summary) -> float:
    counts = [row.test_count for row in summary.per_class]
    return balanced_resolution(counts) if measure == "balanced_accuracy" else 1 / sum(counts)


def _column(cells: Sequence[MeasuredCell]) -> MeasuredColumn:
    published = {each.cell.method: each.cell.published for each in cells if each.cell.published is not None}
    orderings: dict[str, Ordering] = {}
    signs: dict[str, PairedDifference] = {}
    alphas: dict[str, PairedDifference] = {}
    stand_in = cells[0].cell.config.model.name not in NETWORKS
    failed = [each.cell.method for each in cells if each.failed]
    for measure in MEASURES:
        found = {each.cell.method: each.measured[measure] for each in cells if measure in each.measured}
        values = {method: own.values for method, own in found.items()}
        step = max((own.resolution for own in found.values()), default=0.0)
        if len(published) > 1:
            orderings[measure] = judge_ordering(published, values, resolution=step, stand_in=stand_in, failed=failed)
        ours = "CCE" if "CCE" in values else "gamma=-1"
        for found_in, one, other in ((signs, ours, RELEASED), (alphas, "FL", PLAIN_FOCAL)):
            common = sorted(set(values.get(one, {})) & set(values.get(other, {})))
            if common:
                pairs = ([values[method][seed] for seed in common] for method in (one, other))
                found_in[measure] = paired_difference(*pairs, resolution=step)
    return MeasuredColumn(tuple(cells), orderings, signs, alphas)


def how_made(folders: Sequence[Path]) -> dict[str, Any]:
    """Gather on what, with which versions and when runs were made; each as the list of what occurs.

    Host names are in none of it.
    """
    found: dict[str, list[str]] = {"machines": [], "versions": [], "code": [], "dates": []}
    for folder in folders:
        try:
            made_on = Run(folder).environment
        except EvenhandError:
            continue  # it serves the record only
        if made_on.started is None:
            continue
        machine = (
            f"{made_on.cpus} processors ({made_on.processor}), {made_on.device}, {made_on.precision}, "
            f"{made_on.threads} threads a run"
        )
        versions = ", ".join(f"{name} {number}" for name, number in made_on.versions.items())
        new = (machine, f"Python {made_on.python}, {versions}", str(made_on.code), made_on.started[:10])
        for values, value in zip(found.values(), new, strict=True):
            if value not in values:
                values.append(value)
    return {name: sorted(values) for name, values in found.items()} | {"written": time.strftime("%Y-%m-%d")}
