"""The parts of docs/results/verdicts.md: what simulated comparisons decide, from docs/results/data/verdicts.json."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scipy.stats import nct, norm
from scipy.stats import t as student
from study_tables import table

KEPT = Path(__file__).parents[1] / "docs" / "results" / "data" / "verdicts.json"
LEARNERS = KEPT.with_name("verdict-learners.json")
SEEDS = (3, 5, 8, 12)


def power() -> str:
    """Return the sentence of the README on power."""
    [row] = _values("2 sd", "normal noise", 3, "now")
    now = [f"{row[str(n)]:.0f}" for n in SEEDS]
    interim = [f"{row[f'interim {n}']:.0f}" for n in SEEDS]
    return (
        f"The power for a true difference of two standard deviations, in one of three objectives, is {interim[0]}% by "
        f"the analysis at 3 seeds, {interim[1]}% by 5, {interim[2]}% by 8 and {interim[3]}% by 12; with `--seeds`, a "
        f"single analysis, {now[0]}% with 3 seeds and {now[1]}% with 5."
    )


def simulated() -> dict[str, Any]:
    """Return the kept file."""
    found: dict[str, Any] = json.loads(KEPT.read_text("utf-8"))
    return found


def _values(truth: str, noise: str, rivals: int, when: str) -> list[dict[str, Any]]:
    wanted = (truth, noise, rivals, when)
    return [row for row in simulated()["values"] if (row["truth"], row["noise"], row["rivals"], row["when"]) == wanted]


def _change(cells: Callable[[str], list[float]], digits: int = 1) -> list[str]:
    before, now = cells("before"), cells("now")
    return [f"{a:.{digits}f} → {b:.{digits}f}" for a, b in zip(before, now, strict=True)]


def false_claims() -> str:
    """Return the table of false claims over values of seeds."""
    noises = list(dict.fromkeys(row["noise"] for row in simulated()["values"] if row["truth"] == "no difference"))
    rows = [["noise", "other objectives", *(f"{n} seeds" for n in SEEDS), "interim analyses"]]
    for noise in noises:
        for rivals in (1, 2, 3):

            def cells(when: str, noise: str = noise, rivals: int = rivals) -> list[float]:
                [row] = _values("no difference", noise, rivals, when)
                return [*(row[str(n)] for n in SEEDS), row["interim 12"]]

            rows.append([noise, str(rivals), *_change(cells)])
    return table(rows)


def found_differences() -> str:
    """Return the table of power over values of seeds."""
    rows = [["true difference", "other objectives", "analysis", *(f"{n} seeds" for n in SEEDS)]]
    for truth in ("2 sd", "1 sd"):
        for rivals in (1, 3):
            for title, prefix in (("single", ""), ("interim, found by", "interim ")):

                def cells(when: str, key: tuple[str, int, str] = (truth, rivals, prefix)) -> list[float]:
                    [row] = _values(key[0], "normal noise", key[1], when)
                    return [row[f"{key[2]}{n}"] for n in SEEDS]

                rows.append([truth, str(rivals), title, *_change(cells, 0)])
    return table(rows)


def rotation() -> str:
    """Return the table of rotated folds."""
    rows = [["learner, images per class", "false claims, %", "interim, %", "coverage, %", "power / oracle"]]
    made = simulated()["rotation"]
    for old, new in zip(made[::2], made[1::2], strict=True):

        def numbers(text: Callable[[dict[str, Any], int], str], rows: tuple[Any, Any] = (old, new)) -> str:
            return " → ".join(" / ".join(text(row, n) for n in SEEDS) for row in rows)

        rows.append(
            [
                f"{new['learner']}, {new['images']}",
                numbers(lambda row, n: f"{row[f'false {n}']:.1f}"),
                f"{old['interim']:.1f} → {new['interim']:.1f}",
                numbers(lambda row, n: f"{100 - row[f'false {n}']:.1f}"),
                numbers(lambda row, n: f"{row[f'power {n}']:.2f}"),
            ]
        )
    return table(rows)


def _t_test_power() -> list[float]:
    """Return the power of a t-test at the difference that an oracle finds in 80%, relative to these 80%."""
    oracle = norm.ppf(0.975) + norm.ppf(0.8)
    ends = {n: student.ppf(0.975, n - 1) for n in SEEDS}
    return [(nct.sf(end, n - 1, oracle) + nct.cdf(-end, n - 1, oracle)) / 0.8 for n, end in ends.items()]


def t_test() -> str:
    """Return the relative power of a t-test in words."""
    *first, last = (f"{each:.2f}" for each in _t_test_power())
    return f"{', '.join(first)} and {last}"


def relative_power() -> str:
    """Return the smallest power on rotated folds, relative to that of a t-test."""
    now = simulated()["rotation"][1::2]
    least = min(row[f"power {n}"] / power for row in now for n, power in zip(SEEDS, _t_test_power(), strict=True))
    return f"{100 * least:.0f}% or more"


def _outside(key: str, aim: float, digits: int, seeds: tuple[int, ...], sign: int) -> str:
    """Return the rows of both tables of learners with a number above an aim (sign 1) or below it (-1), in words."""
    found = [
        (
            f"{row['learner']}, {row['images']}",
            {n: row[f"power {n}"] if key == "power" else 100 - row[f"false {n}"] for n in SEEDS},
        )
        for row in simulated()["rotation"][1::2]
    ]
    found += [(_setting(row), {n: row[f"{key} {n}"] for n in SEEDS}) for row in simulated_learners()["learners"]]
    texts = []
    for name, values in found:
        missed = [f"{values[n]:.{digits}f} with {n}" for n in seeds if sign * round(values[n], digits) > sign * aim]
        if missed:
            texts.append(f"{name} ({', '.join(missed)})")
    return "; ".join(texts)


def coverage_above() -> str:
    """Return where coverage is above 97.5% with 5 seeds or more."""
    return _outside("coverage", 97.5, 1, (5, 8, 12), 1)


def power_below() -> str:
    """Return where power is below 80% of that of the oracle with 8 or 12 seeds."""
    return _outside("power", 0.8, 2, (8, 12), -1)


def noise() -> str:
    """Return the table of parts of training noise."""
    made = simulated()["noise"]
    parts = list(dict.fromkeys(row["part"] for row in made))
    rows = [["learner, images per class", *(f"{100 * part:.0f}%: coverage, power / oracle" for part in parts)]]
    for start in range(0, len(made), len(parts)):
        own = made[start : start + len(parts)]
        cells = [f"{100 - row['false']:.1f}, {row['power']:.2f}" for row in own]
        rows.append([f"{own[0]['learner']}, {own[0]['images']}", *cells])
    return table(rows)


def noise_trials() -> str:
    """Return how many comparisons that table counts."""
    return f"{simulated()['noise_trials']:,}"


def simulated_from() -> str:
    """Return how many comparisons were simulated."""
    found = simulated()
    return f"{found['trials']:,} comparisons per row, and {found['rotation'][0]['trials']:,} per row of rotated folds"


def folders() -> str:
    """Return what several lists in one folder claim where nothing differs."""
    found = simulated()["folder"]
    return (
        f"{found['lists']} comparisons with other objectives and baselines, one after the other in one folder, claim "
        f"something in {found['now']:.1f}% of {found['trials']:,} folders where nothing differs; with 5% for each of "
        f"them it was {found['before']:.1f}%."
    )


def simulated_learners() -> dict[str, Any]:
    """Return the kept file of learners and noises that were not used to choose the method."""
    found: dict[str, Any] = json.loads(LEARNERS.read_text("utf-8"))
    return found


def _setting(row: dict[str, Any]) -> str:
    counts = row["counts"]
    size = f"{len(counts)} classes of {counts[0]}" if len(set(counts)) == 1 else "/".join(map(str, counts))
    trained = f", trained on {row['train'][0]} to {row['train'][-1]}" if row["train"] else ""
    rivals = f", {row['rivals']} rivals" if row["rivals"] > 1 else ""
    return f"{row['learner']}, {row['source']}, {size}{trained}, {row['folds']} folds{rivals}"


def learners() -> str:
    """Return the table of learners on real features."""
    rows = [["learner, data, images", "comparisons", "false claims, %", "interim, %", "coverage, %", "power / oracle"]]
    for row in simulated_learners()["learners"]:
        texts = [
            " / ".join(f"{row[f'{name} {n}']:.{digits}f}" for n in SEEDS)
            for name, digits in (("false", 1), ("coverage", 1), ("power", 2))
        ]
        rows.append([_setting(row), f"{row['trials']:,}", texts[0], f"{row['interim']:.1f}", texts[1], texts[2]])
    return table(rows)


def skewed() -> str:
    """Return the table of other skewed noise."""
    rows = [["noise", "in", "other objectives", *(f"{n} seeds" for n in SEEDS), "interim analyses"]]
    for row in simulated_learners()["skewed"]:
        shown = [f"{row[key]:.1f}" for key in (*map(str, SEEDS), "interim 12")]
        rows.append([row["noise"], row["arm"], str(row["rivals"]), *shown])
    return table(rows)
