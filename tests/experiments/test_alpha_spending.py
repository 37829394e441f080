"""Interim analyses: their alpha, what stays decided, what is exploratory, and that all claims err in 5% at most."""

import json
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.experiments.comparison import ComparisonResult, judge_differences
from evenhand.experiments.comparison._alpha_spending import (
    analysis_alpha,
    folder_alpha,
    keep_decided,
    worth_more_seeds,
)
from evenhand.experiments.comparison._sequential import Plan, compare_sequentially, cost_alpha
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.runs.comparison_schemas import Difference
from evenhand.runs.config import make_config
from evenhand.runs.interim_analyses import (
    InterimAnalysis,
    add_interim_analysis,
    locked_ledger,
    read_interim_analyses,
    read_ledger,
)
from evenhand.runs.run import Run
from evenhand.statistics.alpha_spending import SPENDING, planned_analyses
from tests.experiments.test_simulation import LONG, NOISES, SHORT, SKEWED, Noise, equal, limit, tolerance, wrong
from tests.fabricated import predict, with_noise, write_run
from tests.processes import begin, end_of

TABLE = load_source("digits")


def analysis(
    seeds: int, level: float, *differences: Difference, margin: float = 0.01, exploratory: bool = False
) -> InterimAnalysis:
    return InterimAnalysis(
        seeds=seeds,
        level=level,
        margin=margin,
        picked=["ce", "cce"],
        differences=list(differences),
        exploratory=exploratory,
    )


def test_the_alphas_of_all_analyses_add_up_to_5_percent() -> None:
    assert sum(SPENDING.values()) == pytest.approx(0.05)
    for most in (2, 3, 4, 5, 6, 8, 11, 12, 20):
        planned, analyses = planned_analyses(most), []
        for seeds in planned:
            level = analysis_alpha(seeds, analyses, last=seeds == planned[-1], margin=0.01)
            assert level > 0
            analyses.append(analysis(seeds, level))
        assert sum(each.level for each in analyses) == pytest.approx(0.05)


def test_what_comes_after_the_5_percent_is_exploratory() -> None:
    assert analysis_alpha(5, [], last=True, margin=0.01) == pytest.approx(0.05)
    assert analysis_alpha(8, [analysis(5, 0.05)], last=True, margin=0.01) == 0
    two = [analysis(3, 0.01), analysis(5, 0.01)]
    assert analysis_alpha(8, two, last=False, margin=0.01) == 0.015
    assert analysis_alpha(8, two, last=False, margin=0.02) == 0, "the margin was changed after an analysis"
    assert analysis_alpha(3, [analysis(5, 0.01)], last=False, margin=0.01) == 0, "fewer seeds than before"
    assert analysis_alpha(5, [analysis(3, 0.05, exploratory=True)], last=True, margin=0.01) == pytest.approx(0.05)


def test_what_was_decided_stays_and_is_not_waited_for() -> None:
    better = Difference(
        objective="cce",
        baseline="ce",
        metric="balanced_accuracy",
        seeds=3,
        mean=0.05,
        low=0.02,
        high=0.08,
        level=0.01,
        claimed=True,
        on_these_images=True,
        p=0.001,
        spread=0.01,
    )
    changed = {"seeds": 5, "mean": 0.01, "low": -0.01, "claimed": False, "on_these_images": False, "p": 0.2}
    later = better.model_copy(update=changed)
    assert keep_decided([later], [analysis(3, 0.01, better)]) == [better]
    assert keep_decided([later], [analysis(3, 0.01, better, exploratory=True)]) == [later]
    assert not worth_more_seeds([better])
    assert worth_more_seeds([later])
    assert not worth_more_seeds([later.model_copy(update={"on_these_images": True})]), "only test images are too few"


def test_interim_analyses_are_stored_by_comparison(tmp_path: Path) -> None:
    [found] = judge_differences({"balanced_accuracy": {"ce": [0.5, 0.6, 0.7], "cce": [0.6, 0.71, 0.79]}}, "ce")
    add_interim_analysis(tmp_path, "one", analysis(3, 0.01, found))
    add_interim_analysis(tmp_path, "one", analysis(5, 0.01))
    add_interim_analysis(tmp_path, "other", analysis(4, 0.05))
    first, second = read_interim_analyses(tmp_path, "one")
    assert first.differences == [found]
    assert (second.seeds, second.level) == (5, 0.01)
    assert read_interim_analyses(tmp_path, "none") == []
    (tmp_path / "looks.json").write_text('{"one": [{"seeds": 3}]}')
    with pytest.raises(EvenhandError, match="the alpha spent so far is unknown"):
        read_interim_analyses(tmp_path, "one")


class Runs:
    """Replaces a grid: writes each run with recalls of its objective and seed."""

    def __init__(self, **recalls: Sequence[float]) -> None:
        self.recalls, self.made, self.asked = recalls, 0, []

    def __call__(self, jobs: Sequence[Job]) -> list[Failure]:
        self.asked.append(len(jobs))
        for job in jobs:
            if not (job.folder / "summary.json").is_file():
                name = job.config.objective.replace(":", "_").replace("=", "_").replace("-", "_").replace(".", "_")
                own = with_noise(self.recalls[name], job.config.seed)
                place = sorted(self.recalls).index(name)
                recalls = with_noise(own, 1000 * place + job.config.seed, 0.02)
                write_run(job.folder, job.config, predict(recalls, support=400), validation=0.5 + place / 10)
                self.made += 1
        return []


CE, BETTER, SAME = (0.9, 0.85, 0.7, 0.3), (0.95, 0.95, 0.9, 0.7), (0.9, 0.85, 0.71, 0.3)


def plan(root: Path, *objectives: str, **settings: object) -> Plan:
    return Plan(root, make_config(data__source="digits"), objectives, TABLE, **settings)


def analysed(plan: Plan, runs: Runs) -> ComparisonResult:
    comparison, failures = compare_sequentially(plan, runs)
    assert not failures
    return comparison


def test_it_stops_when_all_is_decided(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cce=BETTER)
    comparison = analysed(plan(tmp_path, "ce", "cce"), runs)
    assert comparison.seeds == [0, 1, 2]
    assert runs.made == 6
    assert comparison.verdicts[-1].startswith("Use cce")
    assert any("Alpha spending, 5% in all: 1% at 3 seeds; decisions are final." in note for note in comparison.notes)
    again = analysed(plan(tmp_path, "ce", "cce"), runs)
    assert again.verdicts == comparison.verdicts
    assert len(read_interim_analyses(tmp_path, plan(tmp_path, "ce", "cce").family)) == 1, (
        "the same analysis is not added twice"
    )


def test_it_goes_on_while_something_is_open_and_keeps_what_was_decided(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cce=BETTER, cot=SAME)
    comparison = analysed(plan(tmp_path, "ce", "cce", "cot", most_seeds=5), runs)
    assert runs.asked == [9, 15]
    by_name = {each.objective: each for each in comparison.differences if each.metric == "balanced_accuracy"}
    assert (by_name["cce"].seeds, by_name["cce"].outcome) == (5, "better"), "the numbers are those of all seeds"
    assert by_name["cot"].seeds == 5
    levels = [each.level for each in read_interim_analyses(tmp_path, plan(tmp_path, "ce", "cce", "cot").family)]
    assert levels == pytest.approx([0.01, 0.04]), "the last analysis has all that is left"


def test_seeds_added_to_a_single_analysis_are_exploratory(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cot=SAME)
    first = analysed(plan(tmp_path, "ce", "cot", seeds=3), runs)
    assert "Exploratory" not in first.verdicts[-1]
    second = analysed(plan(tmp_path, "ce", "cot", seeds=5), runs)
    assert second.verdicts[-1].startswith("Exploratory, after an analysis at 3 seeds: ")
    assert second.notes[0].startswith("Exploratory: the 5% were spent at 3 seeds")
    again = analysed(plan(tmp_path, "ce", "cot", seeds=3), runs)
    assert again.verdicts == first.verdicts


def test_exploratory_seeds_name_the_analyses_before(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cot=SAME, cce=BETTER)
    analysed(plan(tmp_path, "ce", "cot", most_seeds=5), runs)
    found = analysed(plan(tmp_path, "ce", "cot", seeds=6), runs)
    assert found.verdicts[-1].startswith("Exploratory, after analyses at 3 and 5 seeds: ")
    assert found.notes[0].startswith("Exploratory: the 5% were spent at 3 and 5 seeds, so results with 6 seeds ")
    stopped = tmp_path / "stopped"  # at 3 seeds, where all is decided, with 4% left
    analysed(plan(stopped, "ce", "cce", most_seeds=5), runs)
    found = analysed(plan(stopped, "ce", "cce", seeds=4, margin=0.02), runs)
    assert found.verdicts[-1].startswith("Exploratory, after an analysis at 3 seeds: ")
    assert found.notes[0].startswith("Exploratory: an analysis at 3 seeds came first, so results with 4 seeds ")


@pytest.mark.parametrize(
    ("objectives", "baseline", "margin", "exploratory"),
    [
        (("ce", "cce"), None, 0.01, True),  # some of the rivals
        (("ce", "cce", "focal"), None, 0.01, True),  # some, and another
        (("ce", "cce", "cot"), "cce", 0.01, True),  # a rival as baseline
        (("ce", "focal"), None, 0.02, True),  # another margin
        (("focal", "ce"), "focal", 0.01, True),  # the baseline as rival
        (("ce", "focal"), None, 0.01, False),  # all new
        (("ce", "cce", "cot", "focal"), None, 0.01, False),  # all of them, and more
    ],
)
def test_comparisons_of_a_folder_share_the_5_percent(
    tmp_path: Path, objectives: tuple[str, ...], baseline: str | None, margin: float, exploratory: bool
) -> None:
    runs = Runs(ce=CE, cce=SAME, cot=SAME, focal=SAME)
    analysed(plan(tmp_path, "ce", "cce", "cot", most_seeds=5), runs)
    ledger = json.loads((tmp_path / "looks.json").read_text())
    [first] = ledger.values()
    first[1]["level"] = 0.01  # as if 8 seeds were still planned
    (tmp_path / "looks.json").write_text(json.dumps(ledger))
    found = analysed(plan(tmp_path, *objectives, baseline=baseline, margin=margin, seeds=3), runs)
    assert found.verdicts[-1].startswith("Exploratory") == exploratory
    made = [each for own in json.loads((tmp_path / "looks.json").read_text()).values() for each in own]
    assert sum(each["level"] for each in made if not each["exploratory"]) <= 0.05 + 1e-9


def test_an_exploratory_list_repeats_what_was_decided_before(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cce=BETTER, cot=SAME)
    analysed(plan(tmp_path, "ce", "cce", seeds=3), runs)
    found = analysed(plan(tmp_path, "ce", "cce", "cot", seeds=5), runs)
    assert found.notes[0].startswith("Exploratory: other analyses in this folder share its 5%")
    assert found.notes[0].endswith(" Decided in this folder before: cce better against ce (3 seeds).")
    analysed(plan(tmp_path / "other", "ce", "cot", seeds=2), runs)
    again = analysed(plan(tmp_path / "other", "ce", "cce", "cot", seeds=3), runs)
    assert "Decided" not in again.notes[0]


def test_the_baseline_is_part_of_a_comparison_however_it_is_named(tmp_path: Path) -> None:
    assert plan(tmp_path, "ce", "cce").family == plan(tmp_path, "cce", "ce", baseline="ce").family
    assert plan(tmp_path, "cce", "cot").family == plan(tmp_path, "cot", "cce", baseline="cce").family
    runs = Runs(cce=CE, cot=SAME, focal=BETTER)
    analysed(plan(tmp_path, "cce", "cot", "focal", seeds=3), runs)
    found = analysed(plan(tmp_path, "cot", "cce", "focal", seeds=3), runs)  # its baseline is cot
    assert found.baseline == "cot"
    assert found.verdicts[-1].startswith("Exploratory")


def test_runs_that_changed_after_their_analysis_are_exploratory(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cce=BETTER)
    first = analysed(plan(tmp_path, "ce", "cce", seeds=3), runs)
    changed = next(run.folder for run in first.runs if run.objective == "cce")
    write_run(changed, Run(changed).config, predict(with_noise(BETTER, 77), support=400), validation=0.5)
    found = analysed(plan(tmp_path, "ce", "cce", seeds=3), runs)
    assert found.verdicts[-1].startswith("Exploratory: ")
    assert "results of runs have changed since the analysis with 3 seeds" in found.notes[0]
    assert found.certainty == "undecided"


def test_a_ledger_that_was_removed_has_spent_the_5_percent(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cce=BETTER, cot=SAME)
    analysed(plan(tmp_path, "ce", "cce", seeds=3), runs).write(tmp_path)
    (tmp_path / "looks.json").unlink()
    found = analysed(plan(tmp_path, "ce", "cce", seeds=3), runs)
    assert "whose analyses are missing in looks.json" in found.notes[0]
    found.write(tmp_path)
    for again in (plan(tmp_path, "ce", "cce", seeds=5), plan(tmp_path, "ce", "cot", seeds=3)):
        assert analysed(again, runs).verdicts[-1].startswith("Exploratory"), again


def test_costs_take_half_of_the_alpha_where_they_were_planned(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cce=SAME)
    planned = plan(tmp_path / "one", "ce", "cce", seeds=3, costs="these")
    found = analysed(planned, runs)
    assert found.differences[0].level == pytest.approx(0.025)
    assert cost_alpha(planned, 3) == pytest.approx(0.025)
    assert cost_alpha(replace(planned, costs="others"), 3) == 0, "costs chosen after an analysis"
    assert analysed(replace(planned, costs=""), runs).differences[0].level == pytest.approx(0.025)
    late = plan(tmp_path / "two", "ce", "cce", seeds=3)
    assert analysed(late, runs).differences[0].level == pytest.approx(0.05)
    assert cost_alpha(replace(late, costs="these"), 3) == 0
    assert analysed(replace(late, costs="these"), runs).differences[0].level == pytest.approx(0.05)


def test_a_failed_run_spends_nothing(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cce=BETTER)

    def one_fails(jobs: Sequence[Job]) -> list[Failure]:
        runs([job for job in jobs if job is not jobs[-1]])
        return [Failure(jobs[-1], "It burst.")]

    found, failures = compare_sequentially(plan(tmp_path, "ce", "cce", seeds=4), one_fails)
    assert len(failures) == 1
    assert found.verdicts[-1].startswith("Exploratory: ")
    assert found.verdicts[-1].endswith("; the same command tries the failed runs again.")
    assert not any("new comparison" in each for each in found.verdicts)
    assert not (tmp_path / "looks.json").exists()
    assert analysed(plan(tmp_path, "ce", "cce", seeds=4), runs).verdicts[-1].startswith("Use cce")


def test_a_run_that_fails_later_leaves_the_analysis_before(tmp_path: Path) -> None:
    runs, planned = Runs(ce=CE, cce=BETTER, cot=SAME), plan(tmp_path, "ce", "cce", "cot", most_seeds=5)

    def one_fails(jobs: Sequence[Job]) -> list[Failure]:
        runs([job for job in jobs if job.config.seed < 4])
        return [Failure(job, "It burst.") for job in jobs if job.config.seed == 4]

    for _ in range(2):
        found, failures = compare_sequentially(planned, one_fails)
        assert len(failures) == 3
        assert (found.seeds, found.recommended, found.certainty) == ([0, 1, 2], "cce", "shown")
        assert found.verdicts[-1].startswith("Use cce")
        assert found.verdicts[-1].endswith("; the same command tries the failed runs again.")
        assert any("seeds would be needed" in each for each in found.verdicts), "by the same command, which goes on"
        assert not any("new comparison" in each for each in found.verdicts)
        assert found.notes[0] == (
            "The analysis with 5 seeds waits: 3 of 15 runs failed; nothing is spent. This is the one with 3."
        )
        [analyses] = read_ledger(tmp_path).values()
        assert [each.level for each in analyses] == [0.01]
    assert analysed(planned, runs).seeds == [0, 1, 2, 3, 4]


NAMES = ["ce", "cce", "cot", "focal"]
LISTS = [(0, (1, 2)), (0, (3,)), (0, (1, 2, 3)), (1, (0, 2)), (0, (1,))]
"""The baseline and the rivals of comparisons that are made one after the other in one folder."""


def folder_wrong(trials: int, *, shared: bool) -> float:
    """How often any claim of a folder is false, where nothing differs; `shared`: by one ledger, or 5% for each list."""
    rng, count, names = np.random.default_rng(0), 0, NAMES
    for _ in range(trials):
        noise, ledger, claimed = 0.01 * rng.normal(size=(4, 8)), {}, False
        for base, rivals in LISTS:
            family, listed = f"{base}{rivals}", [names[each] for each in (base, *rivals)]
            for seeds in (3, 8):
                asked = {"objectives": listed, "baseline": names[base], "last": seeds == 8, "margin": 0.01}
                alpha = folder_alpha(seeds, ledger if shared else {family: ledger.get(family, [])}, family, **asked)
                values = {name: noise[names.index(name), :seeds] for name in listed}
                found = judge_differences({"balanced_accuracy": values}, names[base], level=alpha or 0.05)
                made = analysis(seeds, alpha or 0.05, *found, exploratory=not alpha)
                ledger.setdefault(family, []).append(made)
                claimed |= bool(alpha) and wrong(found, {})
        count += claimed
    return count / trials


def test_several_lists_and_baselines_in_a_folder_make_false_claims_in_at_most_5_percent() -> None:
    assert folder_wrong(SHORT // 2, shared=True) <= limit(SHORT // 2)
    assert folder_wrong(SHORT // 2, shared=False) > 0.06, "a ledger for each list would not do"


@pytest.mark.slow
def test_several_lists_and_baselines_in_a_folder_make_false_claims_in_at_most_5_percent_of_many() -> None:
    assert folder_wrong(LONG, shared=True) <= limit(LONG)


def test_one_seed_spends_nothing(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cot=SAME)
    analysed(plan(tmp_path, "ce", "cot", seeds=1), runs)
    comparison = analysed(plan(tmp_path, "ce", "cot", seeds=3), runs)
    assert "Exploratory" not in comparison.verdicts[-1]


def test_several_settings_of_one_objective_are_all_in_the_table(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cce_gamma__2=SAME, cce_gamma__3=CE)
    comparison = analysed(plan(tmp_path, "ce", "cce:gamma=-2", "cce:gamma=-3", seeds=3), runs)
    assert comparison.objectives == ["ce", "cce:gamma=-2", "cce:gamma=-3"]
    assert all(row.picked for row in comparison.rows)


def sequence_wrong(noise: Noise, rivals: int, trials: int) -> float:
    """The fraction of whole sequences, analysed with 3, 5, 8 and 12 seeds, that made a false claim anywhere."""
    rng, count = np.random.default_rng(rivals), 0
    names = ["ce", *(f"o{k}" for k in range(rivals))]
    for _ in range(trials):
        own = noise(rng, rivals + 1, 12)
        few = 0.7 * own + 0.7 * noise(rng, rivals + 1, 12)
        claimed = False
        for seeds, level in SPENDING.items():
            values = {
                "balanced_accuracy": {name: 0.01 * series[:seeds] for name, series in zip(names, own, strict=True)},
                "few": {name: 0.02 * series[:seeds] for name, series in zip(names, few, strict=True)},
            }
            claimed |= wrong(judge_differences(values, "ce", level=level), {})
        count += claimed
    return count / trials


@pytest.mark.parametrize("noise", ["equal", "uneven"])
def test_a_whole_sequence_makes_false_claims_in_at_most_5_percent(noise: str) -> None:
    assert sequence_wrong(NOISES[noise], 3, SHORT) <= limit(SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rivals", [1, 3, 7])
def test_a_whole_sequence_makes_false_claims_in_at_most_5_percent_of_many(noise: str, rivals: int) -> None:
    assert sequence_wrong(NOISES[noise], rivals, LONG) <= limit(LONG)


@pytest.mark.parametrize("arm", SKEWED)
@pytest.mark.parametrize(
    ("rivals", "trials"), [(3, SHORT), *(pytest.param(n, LONG, marks=pytest.mark.slow) for n in (1, 3))]
)
def test_a_whole_sequence_with_one_skewed_arm_is_rarely_claimed(arm: str, rivals: int, trials: int) -> None:
    assert sequence_wrong(SKEWED[arm], rivals, trials) <= 0.06 + tolerance(0.06, trials)


FOUND_BY = {3: 0.12, 5: 0.48, 8: 0.89, 12: 0.98}
"""Of true differences of two standard deviations, at least; the guide says 13, 51, 91 and 100%."""


@pytest.mark.parametrize("trials", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
def test_interim_analyses_find_a_difference_of_two_standard_deviations(trials: int) -> None:
    rng, found = np.random.default_rng(0), dict.fromkeys(SPENDING, 0)
    for _ in range(trials):
        values = {name: 0.01 * noise for name, noise in zip(NAMES, equal(rng, 4, 12), strict=True)}
        values["cce"] = values["cce"] + 0.01 * 2 * 2**0.5  # a paired difference has a standard deviation of sqrt 2
        better = False
        for seeds, level in SPENDING.items():
            given = {"balanced_accuracy": {name: own[:seeds] for name, own in values.items()}}
            [first, *_] = judge_differences(given, "ce", level=level)
            better |= first.outcome == "better"
            found[seeds] += better
    for seeds, least in FOUND_BY.items():
        assert found[seeds] / trials >= least - tolerance(least, trials), seeds


ONE = analysis(
    3,
    0.01,
    Difference(objective="cce", baseline="ce", metric="balanced_accuracy", seeds=3, mean=0.02, low=0.01, high=0.03),
).model_dump(mode="json")


@pytest.mark.parametrize(
    "changed",
    [
        {"seeds": "3"},
        {"seeds": 0},
        {"seeds": None},
        {"level": 7.0},
        {"margin": -1.0},
        {"picked": "ce"},
        {"picked": [1]},
        {"exploratory": "no"},
        {"differences": 3},
        {"differences": [3]},
        {"differences": [{}]},
        *(
            {"differences": [{**ONE["differences"][0], **each}]}
            for each in ({"mean": "x"}, {"mean": None}, {"low": []}, {"metric": 3}, {"p": True}, {"claimed": 1})
        ),
    ],
    ids=str,
)
def test_damaged_interim_analyses_are_one_sentence(tmp_path: Path, changed: dict[str, object]) -> None:
    (tmp_path / "looks.json").write_text(json.dumps({"one": [{**ONE, **changed}]}))
    with pytest.raises(
        EvenhandError, match=r"^Cannot read .*looks\.json \(.*\): the alpha spent so far is unknown"
    ) as caught:
        read_interim_analyses(tmp_path, "one")
    assert "\n" not in str(caught.value)
    (tmp_path / "looks.json").write_text(json.dumps({"one": [ONE]}))
    assert read_interim_analyses(tmp_path, "one")[0].model_dump(mode="json") == ONE


def spend(folder: Path, family: str) -> None:
    """Make one interim analysis of 1% after another, as long as 90% last."""
    while True:
        with locked_ledger(folder):
            made = [each for own in read_ledger(folder).values() for each in own]
            if sum(each.level for each in made) > 0.9 - 1e-9:
                return
            time.sleep(0.002)
            add_interim_analysis(folder, family, analysis(len(made) + 1, 0.01))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_two_processes_that_are_killed_never_spend_alpha_twice(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(4):
        victim = begin(spend, tmp_path, f"killed {number}", log=tmp_path / "log.txt")
        other = begin(spend, tmp_path, "other", log=tmp_path / "log.txt")
        time.sleep(chance.uniform(0.05, 0.4))
        for process in (victim, other)[: 2 if number < 3 else 1]:
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join()
    assert end_of(other) == 0, (tmp_path / "log.txt").read_text()
    made = [each for own in read_ledger(tmp_path).values() for each in own]
    assert sorted(each.seeds for each in made) == list(range(1, 91))  # each once, none lost
