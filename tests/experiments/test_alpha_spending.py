"""Looking again: what each look may claim, what stays, what is exploratory, and that all of it errs in 5% at most."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.experiments.comparison import judge_differences
from evenhand.experiments.comparison._alpha_spending import (
    SHARES,
    Look,
    planned_looks,
    read_looks,
    settled,
    share_of,
    worth_more_seeds,
    write_look,
)
from evenhand.experiments.comparison._comparison import Comparison
from evenhand.experiments.comparison._sequential import Plan, compare_in_looks
from evenhand.experiments.comparison.verdict import Difference
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.runs.config import make_config
from tests.experiments.test_simulation import LONG, NOISES, SHORT, Noise, limit, wrong
from tests.fabricated import predict, with_noise, write_run


def look(seeds: int, level: float, *differences: Difference, margin: float = 0.01, exploratory: bool = False) -> Look:
    return Look(seeds, level, margin, ("ce", "cce"), differences, exploratory)


def test_the_shares_of_all_looks_are_5_percent() -> None:
    assert sum(SHARES.values()) == pytest.approx(0.05)
    for most in (2, 3, 4, 5, 6, 8, 11, 12, 20):
        planned, looks = planned_looks(most), []
        for seeds in planned:
            level = share_of(seeds, looks, last=seeds == planned[-1], margin=0.01)
            assert level > 0
            looks.append(look(seeds, level))
        assert sum(each.level for each in looks) == pytest.approx(0.05)


def test_what_comes_after_the_5_percent_is_exploratory() -> None:
    assert share_of(5, [], last=True, margin=0.01) == pytest.approx(0.05)
    assert share_of(8, [look(5, 0.05)], last=True, margin=0.01) == 0
    assert share_of(8, [look(3, 0.01), look(5, 0.01)], last=False, margin=0.01) == 0.015
    assert share_of(8, [look(3, 0.01), look(5, 0.01)], last=False, margin=0.02) == 0, "another margin, after looking"
    assert share_of(3, [look(5, 0.01)], last=False, margin=0.01) == 0, "fewer seeds than were seen"
    assert share_of(5, [look(3, 0.05, exploratory=True)], last=True, margin=0.01) == pytest.approx(0.05)


def test_what_was_decided_stays_and_is_not_waited_for() -> None:
    better = Difference("cce", "ce", "balanced_accuracy", 3, 0.05, 0.02, 0.08, 0.01, True, True, p=0.001, spread=0.01)
    later = replace(better, seeds=5, mean=0.01, low=-0.01, claimed=False, on_these_images=False, p=0.2)
    assert settled([later], [look(3, 0.01, better)]) == [better]
    assert settled([later], [look(3, 0.01, better, exploratory=True)]) == [later]
    assert not worth_more_seeds([better])
    assert worth_more_seeds([later])
    assert not worth_more_seeds([replace(later, on_these_images=True)]), "only the test images stand in the way"


def test_looks_are_kept_by_comparison(tmp_path: Path) -> None:
    [found] = judge_differences({"balanced_accuracy": {"ce": [0.5, 0.6, 0.7], "cce": [0.6, 0.71, 0.79]}}, "ce")
    write_look(tmp_path, "one", look(3, 0.01, found))
    write_look(tmp_path, "one", look(5, 0.01))
    write_look(tmp_path, "other", look(4, 0.05))
    first, second = read_looks(tmp_path, "one")
    assert first.differences == (found,)
    assert (second.seeds, second.level) == (5, 0.01)
    assert read_looks(tmp_path, "none") == []
    (tmp_path / "looks.json").write_text('{"one": [{"seeds": 3}]}')
    with pytest.raises(EvenhandError, match="nobody knows how often was looked"):
        read_looks(tmp_path, "one")


class Runs:
    """Stands where a grid trains: writes each run with recalls of its objective and seed."""

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
    return Plan(root, make_config(data__source="digits"), objectives, **settings)


def looked(plan: Plan, runs: Runs) -> Comparison:
    comparison, failures = compare_in_looks(plan, runs)
    assert not failures
    return comparison


def test_it_stops_when_all_is_decided(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cce=BETTER)
    comparison = looked(plan(tmp_path, "ce", "cce"), runs)
    assert comparison.seeds == [0, 1, 2]
    assert runs.made == 6
    assert comparison.verdicts[-1].startswith("Use cce")
    assert any("Looked at with 3 seeds (1.00%)" in note for note in comparison.notes)
    again = looked(plan(tmp_path, "ce", "cce"), runs)
    assert again.verdicts == comparison.verdicts
    assert len(read_looks(tmp_path, plan(tmp_path, "ce", "cce").family)) == 1, "the same look again is no new one"


def test_it_goes_on_while_something_is_open_and_keeps_what_was_decided(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cce=BETTER, cot=SAME)
    comparison = looked(plan(tmp_path, "ce", "cce", "cot", most_seeds=5), runs)
    assert runs.asked == [9, 15]
    by_name = {each.objective: each for each in comparison.differences if each.metric == "balanced_accuracy"}
    assert (by_name["cce"].seeds, by_name["cce"].outcome) == (3, "better"), "as it was said at the first look"
    assert by_name["cot"].seeds == 5
    levels = [each.level for each in read_looks(tmp_path, plan(tmp_path, "ce", "cce", "cot").family)]
    assert levels == pytest.approx([0.01, 0.04]), "the last look has all that is left"


def test_one_look_with_fixed_seeds_and_what_is_added_is_exploratory(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cot=SAME)
    first = looked(plan(tmp_path, "ce", "cot", seeds=3), runs)
    assert "Exploratory" not in first.verdicts[-1]
    second = looked(plan(tmp_path, "ce", "cot", seeds=5), runs)
    assert second.verdicts[-1].startswith("Exploratory, after a look at 3 seeds: ")
    assert second.notes[0].startswith("Exploratory: the 5% were spent on 3 seeds")
    again = looked(plan(tmp_path, "ce", "cot", seeds=3), runs)
    assert again.verdicts == first.verdicts


def test_one_seed_spends_nothing(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cot=SAME)
    looked(plan(tmp_path, "ce", "cot", seeds=1), runs)
    comparison = looked(plan(tmp_path, "ce", "cot", seeds=3), runs)
    assert "Exploratory" not in comparison.verdicts[-1]


def test_several_settings_of_one_objective_all_stand_in_the_table(tmp_path: Path) -> None:
    runs = Runs(ce=CE, cce_gamma__2=SAME, cce_gamma__3=CE)
    comparison = looked(plan(tmp_path, "ce", "cce:gamma=-2", "cce:gamma=-3", seeds=3), runs)
    assert comparison.objectives == ["ce", "cce:gamma=-2", "cce:gamma=-3"]
    assert all(row.picked for row in comparison.rows)


def sequence_wrong(noise: Noise, rivals: int, trials: int) -> float:
    """The share of whole sequences, looked at with 3, 5, 8 and 12 seeds, that made a false claim anywhere."""
    rng, count = np.random.default_rng(rivals), 0
    names = ["ce", *(f"o{k}" for k in range(rivals))]
    for _ in range(trials):
        own = noise(rng, rivals + 1, 12)
        few = 0.7 * own + 0.7 * noise(rng, rivals + 1, 12)
        claimed = False
        for seeds, level in SHARES.items():
            values = {
                "balanced_accuracy": {name: 0.01 * series[:seeds] for name, series in zip(names, own, strict=True)},
                "few": {name: 0.02 * series[:seeds] for name, series in zip(names, few, strict=True)},
            }
            claimed |= wrong(judge_differences(values, "ce", level=level), {})
        count += claimed
    return count / trials


@pytest.mark.parametrize("noise", ["equal", "uneven"])
def test_a_whole_sequence_of_looks_claims_wrongly_in_at_most_5_percent(noise: str) -> None:
    assert sequence_wrong(NOISES[noise], 3, SHORT) <= limit(SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rivals", [1, 3, 7])
def test_a_whole_sequence_of_looks_claims_wrongly_in_at_most_5_percent_of_many(noise: str, rivals: int) -> None:
    assert sequence_wrong(NOISES[noise], rivals, LONG) <= limit(LONG)


ONE = look(3, 0.01, Difference("cce", "ce", "balanced_accuracy", 3, 0.02, 0.01, 0.03)).to_json()


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
            for each in ({"mean": "x"}, {"mean": None}, {"low": []}, {"metric": "speed"}, {"p": True}, {"claimed": 1})
        ),
    ],
    ids=str,
)
def test_looks_with_other_values_are_told(tmp_path: Path, changed: dict[str, object]) -> None:
    (tmp_path / "looks.json").write_text(json.dumps({"one": [{**ONE, **changed}]}))
    with pytest.raises(EvenhandError, match=r"^Cannot read .*looks\.json \(.*\); without it nobody knows") as caught:
        read_looks(tmp_path, "one")
    assert "\n" not in str(caught.value)
    (tmp_path / "looks.json").write_text(json.dumps({"one": [ONE]}))
    assert read_looks(tmp_path, "one")[0].to_json() == ONE
