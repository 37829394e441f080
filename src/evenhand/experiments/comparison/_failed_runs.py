"""Objectives whose training failed: told first, and left out of every test."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evenhand.experiments.comparison._hypothesis_tests import PRIMARY, judge_differences
from evenhand.experiments.comparison._load import TestFigures
from evenhand.experiments.comparison.verdict import Difference

Values = Mapping[str, Mapping[str, Sequence[float]]]


def failures_told(figures: Mapping[str, Sequence[TestFigures]]) -> dict[str, dict[str, str]]:
    """Return for each metric and objective why nothing is concluded from it, where half of its seeds failed or more."""
    told: dict[str, dict[str, str]] = {PRIMARY: {}, "few": {}}
    for name, own in figures.items():
        for metric, reasons in (
            (PRIMARY, [each.failed for each in own if each.failed]),
            ("few", [each.no_few for each in own if each.no_few]),
        ):
            if 2 * len(reasons) >= len(own) and name not in told[PRIMARY]:
                often = "" if len(own) == 1 else f" (in {len(reasons)} of {len(own)} seeds)"
                told[metric][name] = f"{name} {reasons[0]}{often}"
    return told


def judge_sound(
    values: Values, baseline: str, failed: Mapping[str, Mapping[str, str]], **settings: Any
) -> list[Difference]:
    """Judge the objectives that did not fail, and say of the others that nothing is concluded.

    Args:
        values: as for :func:`judge_differences`.
        baseline: the objective that the others are compared with.
        failed: what :func:`failures_told` found.
        settings: further ones of :func:`judge_differences`.
    """
    reasons = {
        metric: {**(failed.get("few", {}) if metric == "few" else {}), **failed.get(PRIMARY, {})} for metric in values
    }
    sound = {
        metric: {name: own for name, own in series.items() if name not in reasons[metric]}
        for metric, series in values.items()
        if baseline not in reasons[metric]
    }
    found = judge_differences(sound, baseline, **settings) if PRIMARY in sound else []
    judged = {(each.metric, each.objective): each for each in found}
    return [
        judged.get((metric, name)) or _failed(name, baseline, metric, values[metric], reasons[metric], settings)
        for metric in values
        for name in values[metric]
        if name != baseline
    ]


def _failed(
    name: str,
    baseline: str,
    metric: str,
    series: Mapping[str, Sequence[float]],
    reasons: Mapping[str, str],
    settings: Mapping[str, Any],
) -> Difference:
    gains = np.subtract(series[name], series[baseline])
    why = reasons.get(baseline) or reasons[name]
    mean = float(gains.mean())
    return Difference(name, baseline, metric, len(gains), mean, None, None, margin=settings["margin"], failed=why)
