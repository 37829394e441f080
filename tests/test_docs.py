"""Numbers of the README and the docs are those of the kept files."""

import re
from pathlib import Path

import numpy as np
import pytest
import retest
import simulate_verdicts
import update_docs
import verdict_tables

ROOT = Path(__file__).parents[1]
WITH_INTERVALS = ("README.md", "docs/guide/objectives.md", "docs/results/long-tailed.md")


@pytest.mark.parametrize("page", update_docs.PAGES)
def test_generated_parts_are_those_of_the_kept_files(page: str) -> None:
    assert (ROOT / page).read_text("utf-8") == update_docs.updated(page), "run python tools/update_docs.py"


@pytest.mark.parametrize("path", retest.kept_comparisons(), ids=lambda path: path.stem)
def test_kept_comparisons_are_tested_by_today_s_method(path: Path) -> None:
    found = update_docs.kept(path)
    again = retest.retested(found)
    assert again.verdicts == found.verdicts, "run python tools/retest.py"
    assert (again.recommended, again.certainty) == (found.recommended, found.certainty)
    for ours, theirs in zip(again.differences, found.differences, strict=True):
        assert (ours.metric, ours.objective, ours.words) == (theirs.metric, theirs.objective, theirs.words)
        assert (ours.low, ours.high, ours.p) == pytest.approx((theirs.low, theirs.high, theirs.p))


@pytest.mark.parametrize("page", WITH_INTERVALS)
def test_every_interval_is_in_a_kept_file(page: str) -> None:
    found = [
        tuple(map(float, each.groups())) for each in update_docs.INTERVAL.finditer((ROOT / page).read_text("utf-8"))
    ]
    assert found
    assert set(found) <= update_docs.kept_intervals()


BLOCK = re.compile(r"<!-- ([\w ]+) -->(.*?)<!-- /\1 -->", re.S)
NUMBER = re.compile(r"(?<![\w.,/=-])\d+\.\d+(?![\w.])|(?<![\w.])\d+(?=%)")
CHOSEN = {
    "docs/guide/objectives.md": {"5", "0.11", "0.01"},
    "docs/guide/verdict.md": {"5", "1.5"},
    "docs/results/verdicts.md": {
        "1.4",
        "2.5",
        "5",
        "6",
        "8",
        "20",
        "30",
        "80",
        "95",
        "97.5",
        "1.0",
        "1.5",
        "0.5",
        "0.57",
        "51",
    },
    "docs/results/long-tailed.md": {"5", "10", "2.15"},
    "docs/results/claims.md": set(),
    "docs/results/speed.md": {"1.7"},
    "docs/guide/pitfalls.md": {"5", "70"},
    "README.md": {"3.10"},
    "docs/guide/loss.md": set(),
    "docs/guide/data.md": set(),
    "docs/results/photos.md": {"0.03", "81.1", "84.5"},
    "docs/results/reproduced.md": {"0.9", "11.1", "71.92", "78.08"},
    "docs/results/unsure.md": {"0.60", "0.78"},
    "docs/results/wrong-labels.md": {"0.3", "1.1"},
}
"""Numbers in the prose of pages that are settings, aims or checked elsewhere, not results of runs."""


@pytest.mark.parametrize("page", CHOSEN)
def test_numbers_in_the_prose_are_in_a_generated_part(page: str) -> None:
    """Of this page, or of the study that it cites; percentages may be rounded."""
    text = (ROOT / page).read_text("utf-8")
    sources = {page, "docs/results/long-tailed.md"} if "guide" in page else {page}
    made = " ".join(each[1] for name in sources for each in BLOCK.findall((ROOT / name).read_text("utf-8")))
    known = set(re.findall(r"\d+\.\d+|\d+", made))
    known |= {f"{float(each):.0f}" for each in known} | {f"{float(each):.1f}" for each in known}
    prose = re.sub(r"```.*?```|`[^`]*`|\(http[^)]*\)", "", BLOCK.sub("", text), flags=re.S)
    assert set(NUMBER.findall(prose)) - known <= CHOSEN[page]


def test_what_is_said_of_the_demo_holds_with_other_seeds() -> None:
    """The guide: the objectives that know the counts have the higher means, and which of them is better is open."""
    demos = [update_docs.kept(update_docs.DEMO / f"seeds-{seeds}.json") for seeds in ("0-7", "100-107")]
    knowing = ["balanced-softmax", "balanced-softmax+mixup"]
    for found in demos:
        own = update_docs.primary(found)
        assert (found.baseline, set(own)) == ("ce", {"cce", *knowing})
        assert min(own[name].mean for name in knowing) > max(0, own["cce"].mean)
        assert found.recommended in knowing
    text = (ROOT / "README.md").read_text("utf-8")
    assert f"Use {demos[0].recommended}: " in text
    assert f"the choice is `{demos[1].recommended}`" in text


def test_simulated_formulas_are_those_of_the_package() -> None:
    simulate_verdicts.check_copy()


@pytest.mark.slow
def test_kept_simulations_are_what_the_script_makes_today() -> None:
    """A row of each kind, with the random numbers of the kept file."""
    kept = verdict_tables.simulated()
    noise = simulate_verdicts.NOISES["normal noise"](np.random.default_rng(1), kept["trials"], 2)
    [row] = [
        each
        for each in kept["values"]
        if (each["truth"], each["noise"], each["rivals"], each["when"]) == ("no difference", "normal noise", 1, "now")
    ]
    for key, claims in simulate_verdicts.claimed(noise, before=False).items():
        assert 100 * claims.any(axis=1).mean() == pytest.approx(row[key], abs=0.01)
    rotated = [each for each in kept["rotation"] if (each["learner"], each["images"]) == ("ridge", "150")]
    for ours, theirs in zip(
        simulate_verdicts.simulate_rotation(rotated[0]["trials"], [("ridge", "150")]), rotated, strict=True
    ):
        assert ours == pytest.approx(theirs, abs=0.1)


def test_the_simulations_of_the_verdicts_keep_their_promises() -> None:
    """Of the kept file; the simulations themselves are in the slow tests."""
    simulated, analyses = verdict_tables.simulated(), (3, 5, 8, 12)

    def allowed(percent: float, trials: int) -> float:
        return percent + 3 * (percent * (100 - percent) / trials) ** 0.5

    for row in simulated["values"]:
        if row["truth"] == "no difference" and row["when"] == "now" and "collapse" not in row["noise"]:
            most = allowed(6 if "exponential" in row["noise"] else 5, simulated["trials"])
            assert max(row["interim 12"], *(row[str(n)] for n in analyses)) <= most, row
    assert simulated["folder"]["now"] <= allowed(5, simulated["folder"]["trials"])
    assert {row["trials"] for row in simulated["rotation"]} == {simulated["rotation"][0]["trials"]}
    for row in simulated["rotation"]:
        if row["when"] == "now":
            assert max(row["interim"], *(row[f"false {n}"] for n in analyses)) <= allowed(5, row["trials"]), row
