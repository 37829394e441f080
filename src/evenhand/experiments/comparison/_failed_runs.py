"""Objectives whose training failed: reported first, and left out of every test."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evenhand.experiments.comparison._hypothesis_tests import judge_differences
from evenhand.experiments.comparison._load import TestResult
from evenhand.runs.comparison_schemas import PRIMARY, Difference

Values = Mapping[str, Mapping[str, Sequence[float]]]


def failure_reasons(results: Mapping[str, Sequence[TestResult]]) -> dict[str, dict[str, str]]:
    """Return for each metric and objective why nothing is concluded from it, where half of its seeds or more failed."""
    found: dict[str, dict[str, str]] = {PRIMARY: {}, "few": {}}
    for name, own in results.items():
        for metric, reasons in (
            (PRIMARY, [each.failed for each in own if each.failed]),
            ("few", [each.no_few for each in own if each.no_few]),
        ):
            if 2 * len(reasons) >= len(own) and name not in found[PRIMARY]:
                often = "" if len(own) == 1 else f" (in {len(reasons)} of {len(own)} seeds)"
                found[metric][name] = f"{name} {reasons[0]}{often}"
    return found


def failed_objectives(reasons: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return for each objective that failed the first reason of :func:`failure_reasons`."""
    found: dict[str, str] = {}
    for own in reasons.values():
        for name, reason in own.items():
            found.setdefault(name, reason)
    return found


def failed_runs(results: Mapping[str, Sequence[TestResult]], seeds: Sequence[int]) -> list[str]:
    """Return for each objective which of its runs failed, and why, however few they are."""
    found = []
    for name, own in results.items():
        reasons: dict[str, list[int]] = {}
        for seed, each in zip(seeds, own, strict=True):
            for reason in filter(None, [each.failed or each.no_few]):
                reasons.setdefault(reason.partition(":")[0], []).append(seed)
        for kind, failed in reasons.items():
            texts = [text for each in own if (text := each.failed or each.no_few) and text.partition(":")[0] == kind]
            often = "" if len(own) == 1 else f" (in {len(failed)} of {len(own)} seeds: {', '.join(map(str, failed))})"
            found.append(f"{name} {texts[0]}{often}")
    return found


def differences_without_failed(
    values: Values, baseline: str, failed: Mapping[str, Mapping[str, str]], *, margin: float, **settings: Any
) -> list[Difference]:
    """Test the objectives that did not fail; the differences of the others carry the reason.

    Args:
        values: as for :func:`judge_differences`.
        baseline: the objective that the others are compared with.
        failed: what :func:`failure_reasons` returned.
        margin: as for :func:`judge_differences`.
        settings: further ones of :func:`judge_differences`.
    """
    reasons = {metric: {**failed.get(metric, {}), **failed.get(PRIMARY, {})} for metric in values}
    sound = {
        metric: {name: own for name, own in series.items() if name not in reasons[metric]}
        for metric, series in values.items()
        if baseline not in reasons[metric]
    }
    found = judge_differences(sound, baseline, margin=margin, **settings) if PRIMARY in sound else []
    tested = {(each.metric, each.objective): each for each in found}
    differences = []
    for metric, series in values.items():
        for name in (each for each in series if each != baseline):
            gains = np.subtract(series[name], series[baseline])
            differences.append(
                tested.get((metric, name))
                or Difference(
                    objective=name,
                    baseline=baseline,
                    metric=metric,
                    seeds=len(gains),
                    mean=float(gains.mean()),
                    low=None,
                    high=None,
                    margin=margin,
                    failed=reasons[metric].get(baseline) or reasons[metric][name],
                )
            )
    return differences
