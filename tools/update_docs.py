"""Write the numbers of README.md and docs from the kept files into them.

A generated part is between `<!-- NAME -->` and `<!-- /NAME -->`; everything else is written by hand.

    python tools/update_docs.py            # a test compares the pages with what this writes
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import photo_tables
import speed_tables
import unsure_tables as unsure
import verdict_tables as verdicts
from label_tables import averaged, cleanlab, flagged, gains, precision
from study_tables import (
    differences,
    fresh_seeds,
    networks,
    progress,
    records,
    reference_words,
    references,
    study,
    table,
)

from evenhand.experiments.comparison import ComparisonResult
from evenhand.experiments.comparison.verdict import in_points
from evenhand.paper._claims import check_claims, claims_explained, claims_sections
from evenhand.paper.api import comparisons_in
from evenhand.runs.comparison_schemas import PRIMARY, Difference
from evenhand.runs.record import records_in

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
DEMO, STUDY = RESULTS / "data" / "demo", RESULTS / "long-tailed"
BALANCED = "balanced-softmax"


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


def _demos() -> list[ComparisonResult]:
    """Return the comparison of `make demo` and the same with other seeds; verdicts in today's words."""
    found = [kept(DEMO / f"seeds-{seeds}.json") for seeds in ("0-7", "100-107")]
    return [each.with_differences(each.differences) for each in found]


def demo() -> str:
    """Return what `make demo` prints, and what other seeds choose."""
    first, second = _demos()
    text = first.table(100)
    scores = text.split("\n\n")[1]
    printed = f"```\n{scores}\n\n...\n{text[text.index('Verdict') :].rstrip()}\n```"
    same = first.recommended == second.recommended
    return (
        f"{printed}\n\nWith [seeds 100 to 107](docs/guide/verdict.md#the-same-with-other-seeds) the choice is "
        f"`{second.recommended}`{' too' if same else ': these data do not decide between the two'}."
    )


def demo_again() -> str:
    """Return the differences of the demo with its own and with other seeds."""
    first, second = _demos()
    ours, others = primary(first), primary(second)
    rows = [["against `ce`, in points", "seeds 0 to 7", "", "seeds 100 to 107", ""]]
    rows += [
        [f"`{name}`", size(each), each.words, size(others[name]), others[name].words] for name, each in ours.items()
    ]
    rare = first.per_class[-2:]
    recalls = "; ".join(
        f"{row.train_count} training images: {_recalls(row.recall)} (seeds 100 to 107: {_recalls(again.recall)})"
        for row, again in zip(rare, second.per_class[-2:], strict=True)
    )
    return f"{table(rows)}\n\nRecall of the rarest classes with `ce` and `{BALANCED}`: {recalls}."


def _recalls(recall: dict[str, float | None]) -> str:
    return f"{percent(recall['ce'])}% and {percent(recall[BALANCED])}%"


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
    return table(rows)


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
    return table(rows)


def float32() -> str:
    """Return how far means in float32 are from those in bfloat16, over the seeds of both."""
    found = []
    for name, title in (("fashion-mnist", "Fashion-MNIST"), ("cifar10", "CIFAR-10")):
        both = kept(STUDY / f"{name}.json"), kept(STUDY / f"{name}-float32.json")
        seeds, objectives = set(both[1].seeds), both[1].objectives
        scores = [
            {(run.objective, run.seed): run.test[PRIMARY] or 0.0 for run in each.runs if run.test} for each in both
        ]
        apart = [
            abs(mean(ours[objective, seed] for seed in seeds) - mean(theirs[objective, seed] for seed in seeds))
            for ours, theirs in [scores]
            for objective in objectives
        ]
        found.append(f"{percent(max(apart))} points on {title}")
    return " and ".join(found)


def against_balanced() -> str:
    """Return the differences to balanced softmax."""
    sets = [kept(STUDY / f"{name}-beside-balanced-softmax.json") for name in ("fashion-mnist", "cifar10")]
    rows = [["against `balanced-softmax`, in points", "Fashion-MNIST", "", "CIFAR-10", ""]]
    for name in (each for each in sets[0].objectives if each != BALANCED):
        both = [primary(found)[name] for found in sets]
        rows.append([f"`{name}`", *(cell for each in both for cell in (size(each, bold=True), each.words))])
    return table(rows)


def winner() -> str:
    """Return the gains of mixup and of balanced softmax in the demo, with either seeds."""
    first, second = (
        [in_points(found[name].mean, None, None) for name in ("balanced-softmax+mixup", BALANCED)]
        for found in map(primary, _demos())
    )
    return (
        f"{first[0]} points over `ce` with seeds 0 to 7 and `{BALANCED}` {first[1]}; with seeds 100 to 107 it is "
        f"{second[0]} and {second[1]}"
    )


def readme(name: str) -> str:
    """Return a cell of the README's table of what was measured."""
    sets = [kept(STUDY / f"{each}.json") for each in ("cifar10", "fashion-mnist")]
    first, second = map(primary, sets)
    if name == "cce":
        return f"{size(first['cce'])} on CIFAR-10, {size(second['cce'])} on Fashion-MNIST"
    if name == "counts":
        later = "ce+post-hoc:tau=1"
        return (
            f"balanced softmax {size(first[BALANCED])} and {size(second[BALANCED])} there; adjusting after training "
            f"{size(first[later])} and {size(second[later])}"
        )
    if name == "on top":
        pair = (primary(kept(STUDY / f"{each}-beside-balanced-softmax.json")) for each in ("cifar10", "fashion-mnist"))
        return f"{' and '.join(size(own['balanced-softmax+cce']) for own in pair)} against balanced softmax"
    if name == "reached":
        row = next(row for row in sets[0].rows if row.objective == "ce")
        return f"`ce` reaches {percent(row.balanced_accuracy)}% on CIFAR-10 there"
    return reference_words()


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
    return table(rows)


def bias() -> str:
    """Return what the complement entropy decides with an infinite sample."""
    return (RESULTS / "data" / "complement-bias.md").read_text("utf-8").rstrip()


def claims() -> str:
    """Return the claims of the paper's text, tested on the records, the kept comparisons and the times of steps."""
    checked = check_claims(
        Path("no runs"),
        records=records_in(RESULTS / "data" / "runs"),
        comparisons=comparisons_in(STUDY),
        speed=RESULTS / "data" / "speed.json",
    )
    return "\n".join([*claims_explained(), "", *claims_sections(checked)]).rstrip()


def pages_of_tables() -> str:
    """Return links to the pages that repeat the paper's tables and figures."""
    pages = [*sorted(RESULTS.glob("table-*.md")), *RESULTS.glob("figures.md")]
    rows = [["page", "study"]]
    for page in pages:
        title, _, rest = page.read_text("utf-8").removeprefix("# ").partition("\n")
        rows.append([f"[{title}]({page.name})", rest.strip().partition("\n")[0]])
    return table(rows)


def _step_times() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RESULTS / "data" / "speed.json").read_text("utf-8"))["settings"]
    return found


def step_times() -> str:
    """Return the table of the times of training steps."""
    rows = [["network", "images", "batch", "precision", "threads", "rounds", "CCE step", "as printed", "two forwards"]]
    for each in _step_times():
        ratios = [each["ratios"][name] for name in ("cot:forwards=1", "cot")]
        rows.append(
            [
                each["network"],
                f"{each['image_size']}x{each['image_size']}x{each['channels']}",
                *(str(each[key]) for key in ("batch_size", "precision", "threads", "rounds")),
                f"{each['milliseconds']['cce']:.1f} ms",
                *(f"{own['median']:.2f} [{own['lower_quartile']:.2f}, {own['upper_quartile']:.2f}]" for own in ratios),
            ]
        )
    return table(rows)


def step_words() -> str:
    """Return the ranges of the times of training steps, in words."""

    def between(name: str, other: str = "cce") -> str:
        if name == "cot" or "forwards" in name:
            found = [each["ratios"][name]["median"] for each in _step_times()]
        else:
            found = [each["milliseconds"][other] / each["milliseconds"][name] for each in _step_times()]
        return f"{min(found):.2f} to {max(found):.2f}"

    return (
        f"COT as printed takes {between('cot:forwards=1')} times as long as CCE, with two forward passes "
        f"{between('cot')} times. CCE takes {between('ce')} times as long as cross entropy."
    )


def measured_on() -> str:
    """Return where and when the steps were measured."""
    found = json.loads((RESULTS / "data" / "speed.json").read_text("utf-8"))["provenance"]
    return f"Measured on {found['machines'][0]}, {found['versions'][0]}, {found['written']}."


def road() -> str:
    """Return what the split of Road Marking changes, in words; without numbers as long as no run is kept."""
    found: dict[str, list[float]] = {"road-marking": [], "road-marking:split=runs": []}
    for each in records("road"):
        config, summary = each["config"], each["summary"]
        if (config["model"]["name"], summary["objective"]) == ("resnet8", "ce"):
            found[config["data"]["source"]].append(summary["balanced_accuracy"])
    if not all(found.values()):
        return "accuracy there says little about another drive"
    random, drives = (f"{percent(mean(values))}%" for values in found.values())
    return f"`resnet8` with `ce` has a balanced accuracy of {random} there, and {drives} on drives that it has not seen"


FRESH = partial(fresh_seeds, "balanced-softmax+cce:rivals=frequent:share=0.3", BALANCED, "rivals-long-tailed")
PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "demo": demo,
        "photos": photo_tables.readme,
        "speed": photo_tables.first_run,
        "loss": speed_tables.readme,
        **{name: partial(readme, name) for name in ("cce", "counts", "on top", "references", "reached")},
    },
    "docs/guide/data.md": {"batches": speed_tables.batches},
    "docs/guide/loss.md": {
        "losses": speed_tables.losses,
        "measured": partial(speed_tables.measured, speed_tables.ONE),
        "others": speed_tables.others,
        "linear": speed_tables.linear,
        "measured linear": partial(speed_tables.measured, speed_tables.LINEAR),
    },
    "docs/guide/verdict.md": {"power": verdicts.power, "demo": demo_again},
    "docs/guide/objectives.md": {"measured": measured, "bias": bias, "fresh": FRESH},
    "docs/guide/pitfalls.md": {"road": road, "winner": winner},
    "docs/results/claims.md": {"claims": claims},
    "docs/results/speed.md": {"machine": measured_on, "steps": step_times, "words": step_words},
    "docs/results/index.md": {"tables": pages_of_tables},
    "docs/results/long-tailed.md": {
        "table": study_table,
        "seeds": study_by_seed,
        "balanced": against_balanced,
        "float32": float32,
        "fresh": FRESH,
    },
    "docs/results/photos.md": {
        "natural": partial(photo_tables.against_others, "natural"),
        "exp50": partial(photo_tables.against_others, "exp50"),
        "summary": photo_tables.summary,
        "first round": photo_tables.first_round,
        "second round": photo_tables.second_round,
        "third round": photo_tables.third_round,
        "other images": photo_tables.other_images,
        "elsewhere": photo_tables.claim_elsewhere,
        "speed": photo_tables.speed,
    },
    "docs/results/reproduced.md": {
        "references": references,
        "paper schedule": partial(study, "paper-schedule"),
        "fair": partial(study, "fair", "fair-tiny-imagenet", "figures"),
        "gamma": partial(study, "paper-schedule", "gamma", without=("cot", "focal")),
        "rivals": partial(differences, BALANCED, "rivals-long-tailed", "rivals-step"),
        "single parts": partial(study, "single-parts", "rivals-long-tailed"),
        "road": partial(study, "road", "road-squeezenet"),
        "road features": partial(study, "road-features"),
        "networks": networks,
        "progress": progress,
    },
    "docs/results/wrong-labels.md": {
        "uniform": partial(precision, "photos", "uniform"),
        "similar": partial(precision, "photos", "similar"),
        "gains": gains,
        "flagged": partial(flagged, "photos"),
        "averaged": averaged,
        "thinned uniform": partial(precision, "photos-thinned", "uniform"),
        "thinned similar": partial(precision, "photos-thinned", "similar"),
        "thinned flagged": partial(flagged, "photos-thinned"),
        "trash uniform": partial(precision, "trashnet", "uniform"),
        "trash similar": partial(precision, "trashnet", "similar"),
        "cleanlab": cleanlab,
    },
    "docs/results/unsure.md": {
        "coverage": partial(unsure.coverage, "single"),
        "sizes": partial(unsure.sizes, "single"),
        "accuracy": partial(unsure.accuracy, "single"),
        "trash coverage": partial(unsure.coverage, "trashnet"),
        "trash sizes": partial(unsure.sizes, "trashnet"),
        "trash accuracy": partial(unsure.accuracy, "trashnet"),
        "answers": partial(unsure.answers, "single"),
        "trash answers": partial(unsure.answers, "trashnet"),
        "below": partial(unsure.lowest_precision, "single"),
        "trash below": partial(unsure.lowest_precision, "trashnet"),
        "folds coverage": partial(unsure.coverage, "folds"),
        "folds sizes": partial(unsure.sizes, "folds"),
    },
    "docs/results/verdicts.md": {
        "trials": verdicts.simulated_from,
        "false claims": verdicts.false_claims,
        "power": verdicts.found_differences,
        "rotation": verdicts.rotation,
        "t test": verdicts.t_test,
        "relative power": verdicts.relative_power,
        "below": verdicts.power_below,
        "above": verdicts.coverage_above,
        "noise trials": verdicts.noise_trials,
        "learners": verdicts.learners,
        "skewed": verdicts.skewed,
        "noise": verdicts.noise,
        "folders": verdicts.folders,
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
