"""Compare runs of several objectives and seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.experiments.comparison import _render as render
from evenhand.experiments.comparison._failed_runs import (
    differences_without_failed,
    failed_objectives,
    failed_runs,
    failure_reasons,
)
from evenhand.experiments.comparison._hypothesis_tests import MARGIN, differences_on_images, image_errors
from evenhand.experiments.comparison._load import TestResult, TestSet, group_runs, read_results, read_run
from evenhand.experiments.comparison._tables import class_notes, class_rows, objective_rows
from evenhand.experiments.comparison._tuning import Pick, families_of, pick
from evenhand.experiments.comparison.verdict import keep_earlier, recommend, verdict_sentences
from evenhand.metrics.classification import balanced_accuracy, confusion_matrix
from evenhand.metrics.predictions import Predictions
from evenhand.runs.comparison import Comparison as Comparison
from evenhand.runs.comparison_schemas import PRIMARY, ComparedRun
from evenhand.runs.comparison_schemas import Difference as Difference
from evenhand.runs.filenames import COMPARISON, EXPLORATORY
from evenhand.runs.run import Run
from evenhand.statistics.paired import LEVEL, balanced_resolution


class ComparisonResult(Comparison):
    """A comparison that can be printed; in a notebook it shows itself as Markdown."""

    def table(self, width: int = 100) -> str:
        """Return tables and verdict as text for a terminal of about this width."""
        return render.terminal_text(self, width)

    def markdown(self) -> str:
        """Return everything as a page of Markdown."""
        return render.markdown(self)

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def with_differences(self, differences: Sequence[Difference]) -> "ComparisonResult":
        """Return the comparison with these differences, and the verdicts and method that follow from them.

        All numbers are those of all seeds: of a difference that was decided with fewer, only the decision stays.
        """
        now = {(each.metric, each.objective): each for each in self.differences}
        differences = [
            keep_earlier(now.get((each.metric, each.objective), each), each) if each.seeds < len(self.seeds) else each
            for each in differences
        ]
        failed = {row.objective: row.failed for row in self.rows if row.failed}
        best = recommend(differences, self.baseline, failed)
        return self.model_copy(
            update={
                "differences": differences,
                "verdicts": [*verdict_sentences(differences), best.sentence],
                "recommended": best.objective,
                "certainty": best.certainty,
                "ensemble": self._ensemble_of(best.objective),
                "method": render.method(differences, len(self.seeds)),
            }
        )

    def _ensemble_of(self, objective: str) -> float | None:
        """Return the balanced accuracy of an objective's runs averaged; None where test sets rotate."""
        if self.ensemble is None or objective == self.recommended:
            return self.ensemble
        return _ensemble([Run(run.folder).predictions for run in self.runs if run.objective == objective])


def compare_runs(
    runs: Sequence[Path | str],
    *,
    baseline: str | None = None,
    tune: bool = False,
    level: float = LEVEL,
    margin: float = MARGIN,
) -> ComparisonResult:
    """Compare finished runs that differ in objective and seed only.

    Runs of one seed share their images, initial weights and batch order, so differences are paired by seed. The target
    is the expected paired difference over seeds, and over test images of which these are a sample. Where seeds rotate
    through the images, it is that over new images and new training sets of this size.

    Several settings of one objective (`cce:gamma=-0.5`, `cce:gamma=-1`) are all in the table and all tested, unless
    they are to be tuned.

    Args:
        runs: folders of finished runs.
        baseline: the objective that the others are compared with; None: `ce` or `erm`, or else the first.
        tune: where an objective was run with several settings, pick the one of best mean validation balanced accuracy,
            and read the test scores of that one only.
        level: the significance level of all claims together.
        margin: smaller differences do not matter, as a fraction.

    Raises:
        EvenhandError: the runs cannot be compared, with the reason.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.experiments.comparison import compare_runs
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.training.run import train_run
        >>> root, runs = Path(tempfile.mkdtemp()), []
        >>> for objective in ("ce", "cce"):
        ...     for seed in (0, 1):
        ...         config = make_config(objective=objective, seed=seed, epochs=1, data__imbalance="exp:50")
        ...         runs.append(train_run(config, root / f"{objective}-{seed}").path)
        >>> comparison = compare_runs(runs)
        >>> comparison.baseline, comparison.objectives, comparison.seeds
        ('ce', ['ce', 'cce'], [0, 1])
        >>> [(each.objective, each.metric) for each in comparison.differences]
        [('cce', 'balanced_accuracy'), ('cce', 'few')]
    """
    grouped, notes = group_runs([read_run(path) for path in runs])
    picks = pick(grouped, families_of(list(grouped)) if tune else {each: [each] for each in grouped})
    chosen = _baseline(picks, baseline)
    picked = {each.picked: grouped[each.picked] for each in picks}
    test_set, results = read_results(picked)
    seeds, first = list(picked[chosen]), next(iter(picked[chosen].values()))
    tested, few_note = _tested_values(results)
    failed = failure_reasons(results)
    few = results[chosen][0].groups.few
    images = image_errors(
        {name: test_set.correct(own) for name, own in results.items()},
        chosen,
        test_set.targets,
        {metric: few if metric == "few" else None for metric in tested},
        test_set.groups,
        train_counts=np.rint(np.mean([each.train_counts for each in results[chosen]], axis=0)).astype(np.int64),
        test_fraction=first.config.data.test_fraction,
    )
    if len(seeds) > 1:
        steps = _resolutions(test_set, results[chosen])
        differences = differences_without_failed(
            tested, chosen, failed, resolutions=steps, images=images, level=level, margin=margin
        )
    else:
        differences = differences_on_images(images, chosen)
    broken = failed_objectives(failed)
    best = recommend(differences, chosen, broken)
    ensemble = None if test_set.rotated else _ensemble([run.predictions for run in picked[best.objective].values()])
    scores = {
        (name, seed): own.scores for name in picked for seed, own in zip(picked[name], results[name], strict=True)
    }
    return ComparisonResult(
        source=first.summary.source,
        imbalance=first.config.data.imbalance,
        model=first.config.model.name,
        baseline=chosen,
        objectives=list(picked),
        seeds=seeds,
        test_images=len(test_set.ids),
        shot_rule=results[chosen][0].groups.rule,
        runs=[
            ComparedRun(
                objective=name, seed=seed, folder=run.path, picked=name in picked, test=scores.get((name, seed))
            )
            for name, members in grouped.items()
            for seed, run in members.items()
        ],
        rows=[
            row.model_copy(update={"failed": broken.get(row.objective, "")}) if row.picked else row
            for each in picks
            for row in objective_rows(each, grouped, results, test_set)
        ],
        differences=differences,
        per_class=class_rows(test_set, results, chosen),
        failures=failed_runs(results, seeds),
        verdicts=[*verdict_sentences(differences), best.sentence],
        recommended=best.objective,
        certainty=best.certainty,
        ensemble=ensemble,
        method=render.method(differences, len(seeds)),
        notes=[
            *_seed_notes(test_set, results[chosen], first.config.data.test_fraction),
            *_pick_notes(picks, baseline),
            *few_note,
            *class_notes(test_set, results),
            *notes,
            *dict.fromkeys(note for own in picked.values() for run in own.values() for note in run.summary.notes),
        ],
    )


def write_comparison(comparison: Comparison, folder: Path | str, *, raw: bool = False) -> list[Path]:
    """Write `comparison.json`, `comparison.csv`, `per_class.csv` and `comparison.md`; return their paths.

    An exploratory comparison replaces none that is not: it is written next to it, as `exploratory.json` and so on.

    Args:
        comparison: what to write.
        folder: where to.
        raw: write names into the CSV files as they are, even where a spreadsheet would run them.
    """
    file = comparison.write(folder, EXPLORATORY if kept_comparison(comparison, folder) else COMPARISON)
    return [file, *render.write_tables(comparison, file, raw=raw)]


def kept_comparison(comparison: Comparison, folder: Path | str) -> Comparison | None:
    """Return the comparison of a folder that an exploratory one must not replace; None where it may be written."""
    if not comparison.exploratory:
        return None
    try:
        before = Comparison.read(folder)
    except EvenhandError:
        return None
    return None if before.exploratory else before


def _ensemble(predictions: Sequence[Predictions]) -> float:
    """Return the balanced accuracy of the mean probabilities of runs with the same test images."""
    mean = np.mean([np.exp(each.log_probabilities()) for each in predictions], axis=0)
    first = predictions[0]
    return balanced_accuracy(confusion_matrix(first.targets, mean.argmax(1), first.num_classes))


def _rotation_words(test_set: TestSet, results: Sequence[TestResult], test_fraction: float) -> str:
    """Return which images seeds are tested on."""
    tested = f"{len(test_set.ids):,} images"
    if test_set.groups is not None:
        return f"Each seed is tested on a random draw of whole groups of its own ({tested} in all)"
    folds = max(1, round(1 / test_fraction))
    used = min(folds, len(results))
    if len(results) > folds:
        return f"Seeds are tested on {folds} folds in turn ({folds}-fold cross-validation), {tested} in all"
    which = f"all {folds} folds were" if used == folds else f"{used} of {folds} folds {'was' if used == 1 else 'were'}"
    return f"Each seed is tested on a different fold ({folds}-fold cross-validation): {which} used, {tested}"


def _seed_notes(test_set: TestSet, results: Sequence[TestResult], test_fraction: float) -> list[str]:
    notes = []
    if test_set.rotated:
        notes.append(
            f"{_rotation_words(test_set, results, test_fraction)}; claims are about new images and new training sets "
            "of this size, and account for the training images that seeds share."
        )
    if len(results) == 1:
        notes.append("One seed: intervals cover test images, not training noise; run 3 seeds or more.")
    elif len(results) == 2:
        notes.append("Two seeds hardly show the spread over seeds; only very large differences can be detected.")
    return notes


def _baseline(picks: Sequence[Pick], wanted: str | None) -> str:
    """Return the picked setting of the objective that the others are compared with."""
    if wanted is None:
        return next((each.picked for each in picks if each.family in ("ce", "erm")), picks[0].picked)
    for each in picks:
        if wanted.strip() in (each.family, *each.validation):
            return each.picked
    known = ", ".join(setting for each in picks for setting in each.validation)
    raise EvenhandError(f"The baseline {wanted!r} is not among the compared objectives; there are {known}.")


def _tested_values(
    results: Mapping[str, Sequence[TestResult]],
) -> tuple[dict[str, dict[str, list[float]]], list[str]]:
    """Return for each tested metric and objective one value per seed."""
    counts = next(iter(results.values()))[0].train_counts
    values = {
        metric: {
            name: [score for each in own if (score := each.scores[metric]) is not None] for name, own in results.items()
        }
        for metric in (PRIMARY, "few")
    }
    if not any(each.groups.few for own in results.values() for each in own):
        sizes = " to ".join(f"{each:,}" for each in sorted({counts.min(), counts.max()}))
        return {PRIMARY: values[PRIMARY]}, [f"Classes have {sizes} training images, so shot groups are not compared."]
    if all(len(values["few"][name]) == len(own) for name, own in results.items()):
        return values, []
    return {PRIMARY: values[PRIMARY]}, ["No few-shot class has a test image, so balanced accuracy alone is compared."]


def _resolutions(test_set: TestSet, results: Sequence[TestResult]) -> dict[str, float]:
    """Return what one test image changes; the largest where seeds differ in which classes are few-shot."""
    tested = np.isin(test_set.ids, results[0].ids)
    support = np.bincount(test_set.targets[tested], minlength=len(test_set.class_names))
    few = [balanced_resolution(support[list(each.groups.few)].tolist()) for each in results]
    return {PRIMARY: balanced_resolution(support.tolist()), "few": max(few)}


def _pick_notes(picks: Sequence[Pick], baseline: str | None) -> list[str]:
    notes = []
    for each in (each for each in picks if each.tuned):
        notes.append(each.note())
        if baseline in each.validation and baseline != each.picked:
            notes.append(f"The baseline is {each.picked}, the picked setting, not {baseline}.")
    return notes
