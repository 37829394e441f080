"""Runs of several objectives and seeds set side by side: how good, how different, how sure."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.experiments.comparison import _render as writing
from evenhand.experiments.comparison._failed_runs import failures_told, judge_sound
from evenhand.experiments.comparison._hypothesis_tests import MARGIN, differences_on_images, image_errors
from evenhand.experiments.comparison._load import (
    TestFigures,
    TestSet,
    group_runs,
    read_figures,
    read_run,
)
from evenhand.experiments.comparison._tables import (
    ClassRow,
    ObjectiveRow,
    class_notes,
    class_rows,
    figure_rows,
    scores_of,
)
from evenhand.experiments.comparison._tuning import Pick, families_of, pick
from evenhand.experiments.comparison.verdict import Difference, candidates, conclusion, verdict_sentences
from evenhand.metrics.classification import balanced_accuracy, confusion_matrix
from evenhand.metrics.predictions import Predictions
from evenhand.statistics.image_sampling import ImageError
from evenhand.statistics.paired import LEVEL, balanced_resolution


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare_runs` found."""

    source: str
    imbalance: str
    model: str
    baseline: str
    objectives: list[str]
    """Those with test figures, in the order of the runs."""
    seeds: list[int]
    test_images: int
    shot_rule: str
    rows: list[ObjectiveRow]
    """A row for each objective and each setting that was not picked."""
    differences: list[Difference]
    per_class: list[ClassRow]
    """Sorted by training count, largest first."""
    failures: list[str]
    """What failed, which is told first and from which nothing is concluded."""
    verdicts: list[str]
    """A sentence for each difference that is known, one for those that are not, and at last what to use."""
    notes: list[str]
    runs: list[tuple[str, int, Path]]
    """Objective, seed and folder."""
    scores: dict[str, dict[int, dict[str, float | None]]]
    """By objective and seed, the test figures of each run that the means in `rows` are of."""
    recommended: str
    """The objective to use; of several that are better than the baseline, the best on validation."""
    ensemble: float | None
    """Balanced accuracy on the test images of its runs' mean probabilities; None where each saw those of others."""

    def to_json(self, folder: Path | str | None = None) -> dict[str, Any]:
        """Return everything as plain numbers, text, lists and dictionaries, without NaN.

        Args:
            folder: write the folders of runs relative to this one.
        """
        return {
            "source": self.source,
            "imbalance": self.imbalance,
            "model": self.model,
            "baseline": self.baseline,
            "objectives": self.objectives,
            "seeds": self.seeds,
            "test_images": self.test_images,
            "shot_rule": self.shot_rule,
            "runs": [
                {
                    "objective": objective,
                    "seed": seed,
                    "folder": _relative(path, folder),
                    "picked": objective in self.objectives,
                    "test": self.scores.get(objective, {}).get(seed),
                }
                for objective, seed, path in self.runs
            ],
            "table": [asdict(row) for row in self.rows],
            "differences": [each.to_json() for each in self.differences],
            "per_class": [asdict(row) for row in self.per_class],
            "failures": self.failures,
            "verdicts": self.verdicts,
            "recommended": self.recommended,
            "ensemble": self.ensemble,
            "method": self.method(),
            "notes": self.notes,
        }

    def method(self) -> str:
        """Say how differences were judged."""
        return writing.method(self.differences, len(self.seeds))

    def table(self, width: int = 100) -> str:
        """Return everything a person wants to read in a terminal of about this width."""
        return writing.terminal_text(self, width)

    def _repr_markdown_(self) -> str:
        return self.markdown()  # what a notebook shows

    def markdown(self) -> str:
        """Return everything as a page of Markdown."""
        return writing.markdown(self)


def compare_runs(
    runs: Sequence[Path | str],
    *,
    baseline: str | None = None,
    tune: bool = False,
    level: float = LEVEL,
    margin: float = MARGIN,
) -> Comparison:
    """Compare finished runs that differ in objective and seed only.

    Runs of one seed share their images, initial weights and batch order, so differences are paired by seed. The target
    is the expected paired difference over seeds, and over test images of which these are a sample.

    Several settings of one objective (`cce:gamma=-0.5`, `cce:gamma=-1`) all stand in the table and are tested, unless
    they are to be tuned.

    Args:
        runs: folders of finished runs.
        baseline: the objective that the others are compared with; None: `ce` or `erm`, or else the first.
        tune: where an objective was run with several settings, pick the one of best mean validation balanced accuracy,
            and read the test figures of that one only.
        level: at which all claims together may err.
        margin: differences that are smaller do not matter, as a share.

    Raises:
        EvenhandError: the runs cannot be compared, saying why.

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
    test_set, figures = read_figures(picked)
    seeds = list(picked[chosen])
    tested, few_note = _tested_metrics(figures)
    failed = failures_told(figures)
    images = _image_errors(test_set, figures, tested, chosen)
    if len(seeds) > 1:
        steps = _resolutions(test_set, figures[chosen])
        differences = judge_sound(tested, chosen, failed, resolutions=steps, images=images, level=level, margin=margin)
    else:
        differences = differences_on_images(images, chosen)
    first = next(iter(picked[chosen].values()))
    validated = {each.picked: each.validation.get(each.picked) or 0.0 for each in picks}
    recommended = max(candidates(differences, chosen), key=lambda name: validated[name])
    members = [run.predictions for run in picked[recommended].values()]
    ensemble = None if test_set.rotated else _ensemble(members)
    return Comparison(
        source=first.summary.source,
        imbalance=first.config.data.imbalance,
        model=first.config.model.name,
        baseline=chosen,
        objectives=list(picked),
        seeds=seeds,
        test_images=len(test_set.ids),
        shot_rule=figures[chosen][0].groups.rule,
        rows=[row for each in picks for row in figure_rows(each, grouped, figures, test_set)],
        differences=differences,
        per_class=class_rows(test_set, figures, chosen),
        failures=[sentence for own in failed.values() for sentence in own.values()],
        verdicts=[*verdict_sentences(differences), conclusion(differences, chosen)],
        notes=[
            *([] if ensemble is None else _ensemble_note(recommended, len(seeds), ensemble)),
            *_rotation_note(test_set, figures[chosen]),
            *_seed_notes(seeds),
            *_pick_notes(picks, baseline),
            *few_note,
            *class_notes(test_set, figures),
            *notes,
            *dict.fromkeys(note for own in picked.values() for run in own.values() for note in run.summary.notes),
        ],
        runs=[(name, seed, run.path) for name, members in grouped.items() for seed, run in members.items()],
        scores={name: dict(zip(picked[name], map(scores_of, own), strict=True)) for name, own in figures.items()},
        recommended=recommended,
        ensemble=ensemble,
    )


def _ensemble(predictions: Sequence[Predictions]) -> float:
    """Return the balanced accuracy of the mean probabilities of runs that were judged on the same test images."""
    mean = np.mean([np.exp(each.log_probabilities()) for each in predictions], axis=0)
    first = predictions[0]
    return balanced_accuracy(confusion_matrix(first.targets, mean.argmax(1), first.num_classes))


def _ensemble_note(recommended: str, seeds: int, score: float) -> list[str]:
    if seeds < 2:
        return []
    return [
        f"All {seeds} runs of {recommended} averaged (--ensemble) reach a balanced accuracy of {score:.1%} on the test "
        "images."
    ]


def _rotation_note(test_set: TestSet, figures: Sequence[TestFigures]) -> list[str]:
    if not test_set.rotated:
        return []
    most = max(len(each.ids) for each in figures)
    return [
        f"Every seed has test images of its own, {most:,} of {len(test_set.ids):,} in all, so what is claimed rests on "
        "all of these, and the spread over seeds includes theirs."
    ]


def write_comparison(comparison: Comparison, folder: Path | str, *, raw: bool = False) -> list[Path]:
    """Write `comparison.json`, `comparison.csv`, `per_class.csv` and `comparison.md`; return their paths.

    Args:
        comparison: what to write.
        folder: where to.
        raw: write names into the CSV files as they are, even where a spreadsheet would run them.
    """
    return writing.write_all(comparison, Path(folder), raw=raw)


def _baseline(picks: Sequence[Pick], wanted: str | None) -> str:
    """Return the picked setting of the objective that the others are compared with."""
    if wanted is None:
        plain = [each.picked for each in picks if each.family in ("ce", "erm")]
        return plain[0] if plain else picks[0].picked
    for each in picks:
        if wanted.strip() in (each.family, *each.validation):
            return each.picked
    known = ", ".join(setting for each in picks for setting in each.validation)
    raise EvenhandError(f"The baseline {wanted!r} is not among the compared objectives; there are {known}.")


def _tested_metrics(
    figures: Mapping[str, Sequence[TestFigures]],
) -> tuple[dict[str, dict[str, list[float]]], list[str]]:
    """Return what the tests are about: for each metric and objective a value a seed."""
    metrics = {"balanced_accuracy": {name: [each.balanced_accuracy for each in own] for name, own in figures.items()}}
    few = {name: [each.few for each in own if each.few is not None] for name, own in figures.items()}
    if all(len(few[name]) == len(own) for name, own in figures.items()):
        return {**metrics, "few": few}, []
    return metrics, ["No few-shot class has a test image, so balanced accuracy alone is compared."]


def _resolutions(test_set: TestSet, figures: Sequence[TestFigures]) -> dict[str, float]:
    """Return what one test image changes; the largest where seeds differ in which classes are few-shot."""
    tested = np.isin(test_set.ids, figures[0].ids)
    support = np.bincount(test_set.targets[tested], minlength=len(test_set.class_names))
    few = [balanced_resolution(support[list(each.groups.few)].tolist()) for each in figures]
    return {"balanced_accuracy": balanced_resolution(support.tolist()), "few": max(few)}


def _image_errors(
    test_set: TestSet, figures: Mapping[str, Sequence[TestFigures]], metrics: Mapping[str, object], baseline: str
) -> dict[str, dict[str, ImageError | None]]:
    few = figures[baseline][0].groups.few
    return image_errors(
        {name: test_set.right(own) for name, own in figures.items()},
        baseline,
        test_set.targets,
        {metric: few if metric == "few" else None for metric in metrics},
        test_set.groups,
    )


def _seed_notes(seeds: Sequence[int]) -> list[str]:
    if len(seeds) == 1:
        return ["One seed: intervals are over test images and say nothing about training noise; run 3 seeds or more."]
    if len(seeds) == 2:
        return ["Two seeds hardly show how far seeds spread; only very large differences can be told with them."]
    return []


def _pick_notes(picks: Sequence[Pick], baseline: str | None) -> list[str]:
    notes = []
    for each in (each for each in picks if each.tuned):
        notes.append(each.told())
        if baseline in each.validation and baseline != each.picked:
            notes.append(f"The baseline is {each.picked}, the picked setting, not {baseline}.")
    return notes


def _relative(path: Path, folder: Path | str | None) -> str:
    return path.as_posix() if folder is None else Path(os.path.relpath(path, folder)).as_posix()
