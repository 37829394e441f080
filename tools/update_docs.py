"""Write the numbers of README.md and docs from the kept files into them.

A generated part is between `<!-- NAME -->` and `<!-- /NAME -->`; everything else is written by hand.

    python tools/update_docs.py            # a test compares the pages with what this writes
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import photo_tables
from study_tables import progress, references, study

from evenhand.experiments.comparison import ComparisonResult
from evenhand.experiments.comparison.verdict import in_points
from evenhand.runs.comparison import PRIMARY, Difference

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
DEMO, STUDY = RESULTS / "data" / "demo", RESULTS / "long-tailed"
BALANCED = "balanced-softmax"
SEEDS = (3, 5, 8, 12)


def kept(path: Path) -> ComparisonResult:
    """Read a kept comparison."""
    return ComparisonResult.model_validate_json(path.read_text("utf-8"))


def primary(comparison: ComparisonResult, metric: str = PRIMARY) -> dict[str, Difference]:
    """Return the differences of one metric by objective."""
    return {each.objective: each for each in comparison.differences if each.metric == metric}


def size(each: Difference, *, bold: bool = False) -> str:
    """Return a difference with its interval, in points; bold where it is claimed."""
    text = in_points(each.mean, each.low, each.high)
    return f"**{text}**" if bold and each.claimed else text


def percent(value: float | None) -> str:
    """Return a fraction in percent."""
    return "" if value is None else f"{100 * value:.1f}"


def demo() -> str:
    """Return what `make demo` prints, and the same comparison with other seeds."""
    first, second = kept(DEMO / "seeds-0-7.json"), kept(DEMO / "seeds-100-107.json")
    text = first.table(100)
    table = text.split("\n\n")[1]
    printed = f"```\n{table}\n\n...\n{text[text.index('Verdict') :].rstrip()}\n```"
    ours, others = primary(first), primary(second)
    rows = [["against `ce`, in points", "seeds 0 to 7", "", "seeds 100 to 107", ""]]
    rows += [
        [f"`{name}`", size(each), each.words, size(others[name]), others[name].words] for name, each in ours.items()
    ]
    rare = first.per_class[-2:]
    recalls = "; ".join(
        f"{row.train_count} images: {_recalls(row.recall)} and, with seeds 100 to 107, {_recalls(again.recall)}"
        for row, again in zip(rare, second.per_class[-2:], strict=True)
    )
    best = [f"`{each.recommended}`" for each in (first, second)]
    return (
        f"{printed}\n\nThe same with other seeds:\n\n{_table(rows)}\n\n"
        f"The choice is {best[0]} with seeds 0 to 7 and {best[1]} with 100 to 107"
        f"{'' if best[0] == best[1] else ': the data do not tell which of the two is better'}. In both "
        f"samples the objectives that know the class counts have the higher means. Recall of the rarest classes with "
        f"`ce` and `{BALANCED}`: {recalls}. (bfloat16, one thread; numbers differ between processors.)"
    )


def _recalls(recall: dict[str, float | None]) -> str:
    return f"{percent(recall['ce'])}% and {percent(recall[BALANCED])}%"


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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


def _simulated() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / "data" / "verdicts.json").read_text("utf-8"))
    return found


def _values(truth: str, noise: str, rivals: int, when: str) -> list[dict[str, Any]]:
    wanted = (truth, noise, rivals, when)
    return [row for row in _simulated()["values"] if (row["truth"], row["noise"], row["rivals"], row["when"]) == wanted]


def _change(cells: Callable[[str], list[float]], digits: int = 1) -> list[str]:
    before, now = cells("before"), cells("now")
    return [f"{a:.{digits}f} → {b:.{digits}f}" for a, b in zip(before, now, strict=True)]


def false_claims() -> str:
    """Return the table of false claims over values of seeds."""
    noises = list(dict.fromkeys(row["noise"] for row in _simulated()["values"] if row["truth"] == "no difference"))
    rows = [["noise", "other objectives", *(f"{n} seeds" for n in SEEDS), "interim analyses"]]
    for noise in noises:
        for rivals in (1, 2, 3):

            def cells(when: str, noise: str = noise, rivals: int = rivals) -> list[float]:
                [row] = _values("no difference", noise, rivals, when)
                return [*(row[str(n)] for n in SEEDS), row["interim 12"]]

            rows.append([noise, str(rivals), *_change(cells)])
    return _table(rows)


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
    return _table(rows)


def rotation() -> str:
    """Return the table of rotated folds."""
    rows = [["learner, images per class", "false claims, %", "interim, %", "coverage, %", "power / oracle"]]
    made = _simulated()["rotation"]
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
    return _table(rows)


def simulated_from() -> str:
    """Return how many comparisons were simulated."""
    found = _simulated()
    return f"{found['trials']:,} comparisons per row, and {found['rotation'][0]['trials']:,} per row of rotated folds"


def study_table() -> str:
    """Return the table of the study of long-tailed sets."""
    sets = kept(STUDY / "fashion-mnist.json"), kept(STUDY / "cifar10.json")
    head = ["many", "medium", "few", "against `ce`"]
    rows = [["objective", "Fashion-MNIST", *head, "CIFAR-10", *head]]
    for name in sets[0].objectives:
        cells = [f"`{name}`"]
        for found in sets:
            row = next(each for each in found.rows if each.objective == name)
            own = primary(found).get(name)
            cells.append(f"{percent(row.balanced_accuracy)} ± {percent(row.balanced_accuracy_spread)}")
            cells += [percent(row.scores[group]) for group in ("many", "medium", "few")]
            words = "" if own is None or own.claimed else f", {own.words}"
            cells.append("" if own is None else size(own, bold=True) + words)
        rows.append(cells)
    return _table(rows)


def study_by_seed() -> str:
    """Return balanced accuracy by seed, and the mean calibration error."""
    sets = kept(STUDY / "fashion-mnist.json"), kept(STUDY / "cifar10.json")
    rows = [["objective", "Fashion-MNIST, seeds 0 to 4", "ECE", "CIFAR-10, seeds 0 to 4", "ECE"]]
    for name in sets[0].objectives:
        cells = [f"`{name}`"]
        for found in sets:
            own = sorted((run.seed, run.test) for run in found.runs if run.objective == name and run.test)
            cells.append(", ".join(percent(scores[PRIMARY]) for _, scores in own))
            cells.append(percent(next(row for row in found.rows if row.objective == name).scores["ece"]))
        rows.append(cells)
    return _table(rows)


def against_balanced() -> str:
    """Return the differences to balanced softmax."""
    sets = [kept(STUDY / f"{name}-beside-balanced-softmax.json") for name in ("fashion-mnist", "cifar10")]
    rows = [["against `balanced-softmax`, in points", "Fashion-MNIST", "", "CIFAR-10", ""]]
    for name in (each for each in sets[0].objectives if each != BALANCED):
        both = [primary(found)[name] for found in sets]
        rows.append([f"`{name}`", *(cell for each in both for cell in (size(each, bold=True), each.words))])
    return _table(rows)


COLUMNS = ("cce", BALANCED, "balanced-softmax+cce", "balanced-softmax+mixup", "ldam+drw", "ce+post-hoc:tau=1")


def measured() -> str:
    """Return the table of what was measured."""
    found = {
        "digits, ratio 50, `resnet8`, 8 seeds": kept(DEMO / "six-objectives.json"),
        "[Fashion-MNIST, ratio 100](../results/long-tailed.md), `resnet8`, 5 seeds": kept(STUDY / "fashion-mnist.json"),
        "[CIFAR-10, ratio 100](../results/long-tailed.md), `resnet8`, 5 seeds": kept(STUDY / "cifar10.json"),
    }
    rows = [["data", "`ce` (%)", *(f"`{name}`" for name in COLUMNS[:-1]), "`ce`, post-hoc adjusted"]]
    for title, comparison in found.items():
        cells = [title, percent(next(row for row in comparison.rows if row.objective == "ce").balanced_accuracy)]
        own = primary(comparison)
        for name in COLUMNS:
            name = next((each for each in own if each in (name, f"{name}:alpha=0.1")), name)
            cells.append("" if name not in own else size(own[name], bold=True))
            if name.endswith("alpha=0.1"):
                cells[-1] += " (alpha 0.1)"
        rows.append(cells)
    return _table(rows)


def bias() -> str:
    """Return what the complement entropy decides with an infinite sample."""
    return (RESULTS / "data" / "complement-bias.md").read_text("utf-8").rstrip()


def claims_study() -> str:
    """Return what the study of five seeds says about the claims."""
    rows = [["data, 5 seeds", "few-shot classes", "balanced accuracy", "few-shot recall, `ce` to `cce`, %"]]
    for title, name in (("Fashion-MNIST LT 100", "fashion-mnist"), ("CIFAR-10 LT 100", "cifar10")):
        found = kept(STUDY / f"{name}.json")
        own, few = primary(found)["cce"], primary(found, "few")["cce"]
        recall = {row.objective: percent(row.scores["few"]) for row in found.rows}
        rows.append(
            [
                title,
                f"{size(few, bold=True)}, {few.words}",
                f"{size(own, bold=True)}, {own.words}",
                f"{recall['ce']} to {recall['cce']}",
            ]
        )
    return _table(rows)


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"demo": demo, "photos": photo_tables.readme},
    "docs/guide/verdict.md": {"power": power},
    "docs/guide/objectives.md": {"measured": measured, "bias": bias},
    "docs/results/claims.md": {"five seeds": claims_study},
    "docs/results/long-tailed.md": {"table": study_table, "seeds": study_by_seed, "balanced": against_balanced},
    "docs/results/photos.md": {
        "natural": partial(photo_tables.against_others, "natural"),
        "exp50": partial(photo_tables.against_others, "exp50"),
        "summary": photo_tables.summary,
        "first round": photo_tables.first_round,
        "second round": photo_tables.second_round,
        "speed": photo_tables.speed,
    },
    "docs/results/reproduced.md": {
        "references": references,
        "paper schedule": partial(study, "paper-schedule"),
        "fair": partial(study, "fair"),
        "progress": progress,
    },
    "docs/results/verdicts.md": {
        "trials": simulated_from,
        "false claims": false_claims,
        "power": found_differences,
        "rotation": rotation,
    },
}


def updated(page: str) -> str:
    """Return a page with its generated parts as the kept files have them."""
    text = (ROOT / page).read_text("utf-8")
    for name, make in PAGES[page].items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = text.partition(start)
        old, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"{page} has no {start} ... {end}.")
        line = "\n" if old.startswith("\n") else ""
        text = f"{before}{start}{line}{make()}{line}{end}{after}"
    return text


INTERVAL = re.compile(r"(?<![\d.])\+?(-?\d+\.\d+) \[(-?\d+\.\d+), (-?\d+\.\d+)\]")


def kept_intervals() -> set[tuple[float, float, float]]:
    """Return every difference with its interval that a kept comparison has, in points, and the same the other way."""
    found = set()
    for path in [*DEMO.glob("*.json"), *STUDY.glob("*.json")]:
        for each in kept(path).differences:
            match = INTERVAL.search(in_points(each.mean, each.low, each.high))
            if match:
                mean, low, high = map(float, match.groups())
                found |= {(mean, low, high), (0.0 - mean, 0.0 - high, 0.0 - low)}
    return found


def main() -> None:
    """Write all pages."""
    for page in PAGES:
        (ROOT / page).write_text(updated(page), "utf-8")


if __name__ == "__main__":
    main()
