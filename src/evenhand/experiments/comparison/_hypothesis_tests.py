"""Test every objective against the baseline, at a level of 5% for all claims together."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from evenhand.runs.comparison_schemas import PRIMARY, Difference
from evenhand.statistics.combined_interval import Evidence
from evenhand.statistics.graphical_testing import chained_questions, claim_levels
from evenhand.statistics.image_sampling import ImageError, paired_image_error
from evenhand.statistics.moderated_t import moderated_differences
from evenhand.statistics.paired import LEVEL
from evenhand.statistics.rotation import TEST_FRACTION

MARGIN = 0.01
"""The default margin, as a fraction: smaller differences do not matter."""


def judge_differences(
    values: Mapping[str, Mapping[str, Sequence[float]]],
    baseline: str,
    *,
    resolutions: Mapping[str, float] | None = None,
    images: Mapping[str, Mapping[str, ImageError | None]] | None = None,
    level: float = LEVEL,
    margin: float = MARGIN,
) -> list[Difference]:
    """Test every objective against the baseline over seeds; all claims together err in at most 5% of comparisons.

    The primary metric is balanced accuracy; the objectives share its 5% equally. Where an objective's primary claim
    holds, half of its alpha goes to the test of its few-shot classes, and from there on to the other objectives
    (:mod:`evenhand.statistics.graphical_testing`). Variances are moderated (:mod:`evenhand.statistics.moderated_t`),
    and the sampling of test images is included where it is given (:mod:`evenhand.statistics.combined_interval`). Each
    claim follows from one interval at the alpha of its test: better or worse where it excludes 0; by less than the
    margin, or practically equivalent, where it is inside the margin. A wrong "practically equivalent" counts among the
    5% too.

    Args:
        values: for each metric and objective one value per seed; the same seeds in the same order everywhere. An
            objective of the first metric may be missing in others.
        baseline: the objective that the others are compared with.
        resolutions: for each metric what one test image changes; differences that vary by less are equal.
        images: for each metric and objective the sampling error of the test images; without it, claims are about these
            test images only. Rotation is passed here: where seeds have different test images, as in cross-validation,
            :func:`~evenhand.statistics.paired_image_error` gets NaN for images that a seed did not test, and the
            training counts and test fraction. Claims are then about new images and new training sets of this size
            (:mod:`evenhand.statistics.rotation`).
        level: the significance level of all claims together.
        margin: smaller differences do not matter, as a fraction.

    Returns:
        One difference per metric and objective.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> values = {"ce": [0.80, 0.81, 0.79], "cce": [0.82, 0.83, 0.811], "cot": [0.80, 0.82, 0.80]}
        >>> for each in judge_differences({"balanced_accuracy": values}, "ce"):
        ...     print(each.objective, each.outcome, round(each.p, 3), round(each.level, 4))
        cce better 0.001 0.025
        cot undecided 0.199 0.0375

        Five seeds, each tested on a fifth of 200 images of its own:

        >>> import numpy as np
        >>> from evenhand.statistics import paired_image_error
        >>> rng, targets = np.random.default_rng(0), np.repeat([0, 1], 100)
        >>> tested = np.arange(200) % 5 == np.arange(5)[:, None]
        >>> ce, cce = (np.where(tested, rng.random((5, 200)) < share, np.nan) for share in (0.6, 0.8))
        >>> values = {"ce": np.nanmean(ce, axis=1), "cce": np.nanmean(cce, axis=1)}  # classes are equally frequent
        >>> images = {"balanced_accuracy": {"cce": paired_image_error(cce, ce, targets)}}
        >>> [found] = judge_differences({"balanced_accuracy": values}, "ce", images=images)
        >>> [without] = judge_differences({"balanced_accuracy": values}, "ce")
        >>> found.outcome, found.images.rotated, found.low < without.low
        ('better', True, True)
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
    tested = claim_levels(p, *chained_questions(len(others), len(metrics), level))
    places = [(metric, name) for metric in metrics for name in others]
    return [
        _difference(name, baseline, metric, each, alpha, claimed=claimed, level=level, margin=margin)
        for (metric, name), each, (alpha, claimed) in zip(places, evidence, tested, strict=True)
        if each is not None
    ]


def _difference(
    name: str,
    baseline: str,
    metric: str,
    evidence: Evidence,
    alpha: float,
    *,
    claimed: bool,
    level: float,
    margin: float,
) -> Difference:
    seeds = evidence.seeds
    # What was not tested is shown with the interval that it would have alone.
    low, high = evidence.interval(alpha or level) or (None, None)
    same = seeds.n > 1 and seeds.mean == 0 and seeds.error is None
    found = Difference(
        objective=name,
        baseline=baseline,
        metric=metric,
        seeds=seeds.n,
        mean=seeds.mean,
        low=0.0 if same else low,
        high=0.0 if same else high,
        level=alpha,
        claimed=claimed,
        on_these_images=alpha > 0 and seeds.p is not None and seeds.p <= alpha,
        margin=margin,
        p=1.0 if same else evidence.p,
        spread=seeds.spread,
        images=evidence.images,
    )
    if found.decided:
        return found
    return found.model_copy(update={"more_seeds": evidence.more_seeds(alpha or LEVEL, margin)})


def differences_on_images(images: Mapping[str, Mapping[str, ImageError | None]], baseline: str) -> list[Difference]:
    """Compare models of one seed over test images; this allows no claim about their objectives.

    Args:
        images: what :func:`image_errors` returned.
        baseline: the objective that the others are compared with.
    """
    differences = []
    for metric, own in images.items():
        for name, found in own.items():
            if found is not None:
                half = float(stdtrit(found.freedom, 1 - LEVEL / 2)) * found.error
                low, high = found.mean - half, found.mean + half
                differences.append(
                    Difference(
                        objective=name, baseline=baseline, metric=metric, seeds=1, mean=found.mean, low=low, high=high
                    )
                )
    return differences


def image_errors(
    correct: Mapping[str, NDArray[np.float64]],
    baseline: str,
    targets: NDArray[np.int64],
    classes: Mapping[str, Iterable[int] | None],
    groups: NDArray[np.str_] | None = None,
    *,
    train_counts: NDArray[np.int64] | None = None,
    test_fraction: float = TEST_FRACTION,
) -> dict[str, dict[str, ImageError | None]]:
    """Estimate for each metric and objective the sampling error of the test images in its difference.

    Args:
        correct: of each objective, (n, N), whether each image was classified correctly, for each seed; NaN: not tested.
        baseline: the objective that the others are compared with.
        targets: (N,).
        classes: for each metric the classes to average over; None: all.
        groups: (N,), which images belong together.
        train_counts: (K,), training images of each class, where seeds rotate; None: all that a fold leaves.
        test_fraction: of each fold, where seeds rotate.
    """
    found: dict[str, dict[str, ImageError | None]] = {}
    for metric, chosen in classes.items():
        members = None if chosen is None else tuple(chosen)
        found[metric] = {
            name: paired_image_error(
                own,
                correct[baseline],
                targets,
                groups=groups,
                classes=members,
                train_counts=train_counts,
                test_fraction=test_fraction,
            )
            for name, own in correct.items()
            if name != baseline
        }
    return found
