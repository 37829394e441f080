"""Every objective against the baseline: which differences may be claimed, at 5% for all of them together."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from evenhand.experiments.comparison.verdict import Difference
from evenhand.statistics.combined_interval import Evidence
from evenhand.statistics.graphical_testing import chained_questions, claim_levels
from evenhand.statistics.image_sampling import ImageError, paired_image_error
from evenhand.statistics.moderated_t import moderated_differences
from evenhand.statistics.paired import LEVEL

MARGIN = 0.01
"""Differences below this share do not matter, unless a user says otherwise."""
PRIMARY = "balanced_accuracy"


def judge_differences(
    values: Mapping[str, Mapping[str, Sequence[float]]],
    baseline: str,
    *,
    resolutions: Mapping[str, float] | None = None,
    images: Mapping[str, Mapping[str, ImageError | None]] | None = None,
    level: float = LEVEL,
    margin: float = MARGIN,
) -> list[Difference]:
    """Compare every objective with the baseline over seeds; all claims together err in at most 5% of comparisons.

    The one primary question is balanced accuracy, whose 5% is shared equally by the objectives. Where an objective's
    primary claim holds, half of its alpha goes to its few-shot classes, and from there on to the others
    (:mod:`evenhand.statistics.graphical_testing`). Spreads are moderated (:mod:`evenhand.statistics.moderated_t`), and
    test images count where they are given (:mod:`evenhand.statistics.combined_interval`). Each claim is read from one
    interval at the alpha of its question: better or worse where it excludes 0, by less than matters or no difference
    that matters where it lies within the margin. A wrong "no difference that matters" counts among the 5% too.

    Args:
        values: for each metric, for each objective, a value a seed; the same seeds in the same order everywhere. An
            objective of the first metric may be missing in others.
        baseline: the objective that the others are compared with.
        resolutions: for each metric what one test image changes; differences that vary by less are equal.
        images: for each metric and objective what other test images could change; without it, claims are about these
            test images only.
        level: of all claims together.
        margin: differences that are smaller do not matter, as a share.

    Returns:
        A difference for each metric and objective.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> values = {"ce": [0.80, 0.81, 0.79], "cce": [0.82, 0.83, 0.811], "cot": [0.80, 0.82, 0.80]}
        >>> for each in judge_differences({"balanced_accuracy": values}, "ce"):
        ...     print(each.objective, each.outcome, round(each.p, 3), round(each.level, 4))
        cce better 0.001 0.025
        cot cannot tell yet 0.11 0.0375
    """
    metrics = sorted(values, key=lambda metric: metric != PRIMARY)
    others = [name for name in values[metrics[0]] if name != baseline] if metrics else []
    if not others:
        return []
    evidence: list[Evidence | None] = []
    for metric in metrics:
        found = moderated_differences(values[metric], baseline, resolution=(resolutions or {}).get(metric, 0.0))
        own = (images or {}).get(metric, {})
        evidence += [Evidence(found[name], own.get(name)) if name in found else None for name in others]
    p = [None if each is None else each.p for each in evidence]
    judged = claim_levels(p, *chained_questions(len(others), len(metrics), level))
    places = [(metric, name) for metric in metrics for name in others]
    return [
        _difference(name, baseline, metric, each, share, claimed=claimed, level=level, margin=margin)
        for (metric, name), each, (share, claimed) in zip(places, evidence, judged, strict=True)
        if each is not None
    ]


def _difference(
    name: str,
    baseline: str,
    metric: str,
    evidence: Evidence,
    share: float,
    *,
    claimed: bool,
    level: float,
    margin: float,
) -> Difference:
    seeds = evidence.seeds
    # A question whose turn has not come is shown with the interval that it would have alone.
    low, high = evidence.interval(share or level) or (None, None)
    same = seeds.n > 1 and seeds.mean == 0 and seeds.error is None
    return Difference(
        objective=name,
        baseline=baseline,
        metric=metric,
        seeds=seeds.n,
        mean=seeds.mean,
        low=0.0 if same else low,
        high=0.0 if same else high,
        level=share,
        claimed=claimed,
        on_these_images=share > 0 and seeds.p is not None and seeds.p <= share,
        margin=margin,
        p=1.0 if same else evidence.p,
        spread=seeds.spread,
        evidence=evidence,
    )


def differences_on_images(images: Mapping[str, Mapping[str, ImageError | None]], baseline: str) -> list[Difference]:
    """Compare models of one seed over test images; nothing can be claimed about their objectives from that.

    Args:
        images: what :func:`image_errors` found.
        baseline: the objective that the others are compared with.
    """
    differences = []
    for metric, own in images.items():
        for name, found in own.items():
            if found is not None:
                half = float(stdtrit(found.freedom, 1 - LEVEL / 2)) * found.error
                ends = (found.mean - half, found.mean + half)
                differences.append(Difference(name, baseline, metric, 1, found.mean, *ends))
    return differences


def image_errors(
    right: Mapping[str, NDArray[np.float64]],
    baseline: str,
    targets: NDArray[np.int64],
    classes: Mapping[str, Iterable[int] | None],
    groups: NDArray[np.str_] | None = None,
) -> dict[str, dict[str, ImageError | None]]:
    """Measure for each metric and objective how far other test images could move its difference from the baseline.

    Args:
        right: of each objective, (n, N), whether each image was classified rightly, for each seed; NaN: not tested.
        baseline: the objective that the others are compared with.
        targets: (N,).
        classes: for each metric the classes to average over; None: all.
        groups: (N,), which images belong together.
    """
    start = right[baseline]
    others = {name: own for name, own in right.items() if name != baseline}
    found: dict[str, dict[str, ImageError | None]] = {}
    for metric, chosen in classes.items():
        members = None if chosen is None else tuple(chosen)
        found[metric] = {
            name: paired_image_error(own, start, targets, groups=groups, classes=members)
            for name, own in others.items()
        }
    return found
