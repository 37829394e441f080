"""Tuning: what is tried, that validation alone picks, at the first analysis and for good, and that it is reported."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

import evenhand
from evenhand.core.errors import EvenhandError
from evenhand.experiments.api import plan_comparison
from evenhand.experiments.comparison import ComparisonResult
from evenhand.experiments.comparison._sequential import Plan, compare_sequentially
from evenhand.experiments.comparison._tuning import families_of, pick
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.experiments.grid.progress import GridCallback
from evenhand.objectives import ObjectiveSpec, tuning_candidates
from evenhand.objectives.part import PARTS
from evenhand.objectives.spec import all_parts
from evenhand.runs.config import make_config
from evenhand.runs.interim_analyses import read_interim_analyses
from evenhand.runs.run import Run
from evenhand.training.posthoc import AdjustmentRequest, evaluate_adjusted
from evenhand.training.prepare import prepare
from evenhand.training.run import train_run
from tests.fabricated import predict, with_noise, write_run
from tests.training.runs import tiny

CE = (0.9, 0.85, 0.7, 0.3)
SETTINGS = tuning_candidates("cce", 10)


@pytest.mark.parametrize("part", all_parts(), ids=lambda part: part.name)
def test_every_setting_that_a_part_declares_can_be_trained_and_differs(part) -> None:
    tuned = PARTS[part.tuned_as or part.name]
    found = [part.name, *(tuned.model_validate(settings).spec() for settings in tuned.tuning_grid)]
    first = "logit-adjust:tau=2+" if part.name == "cce" else ""  # C on adjusted logits needs adjusted ones
    specs = [ObjectiveSpec(first + spec) for spec in found]
    assert len(set(specs)) == len(specs) <= 6
    assert tuning_candidates(first + part.name) == specs


def test_what_is_tried() -> None:
    assert tuning_candidates("ce") == ["ce"]
    assert tuning_candidates("erm+label-smoothing") == [
        "ce+label-smoothing",
        "ce+label-smoothing:eps=0.05",
        "ce+label-smoothing:eps=0.2",
    ]
    assert SETTINGS[:4] == ["cce", "cce:share=0.1", "cce:share=0.3", "cce:share=0.6"]
    assert SETTINGS[4:] == ["cce:rivals=frequent:share=0.3", "cce:share=0.3:spare=3"]
    assert "balanced-softmax+cce:rivals=frequent:share=0.3" in tuning_candidates("balanced-softmax+cce")
    assert tuning_candidates("cce", 5) == SETTINGS[:-1], "with 5 classes nothing would be left of C"
    assert tuning_candidates("cce:share=0.3") == ["cce:share=0.3"], "what is given is not tuned"
    assert tuning_candidates("cce:share=0.3+mixup") == [
        "cce:share=0.3+mixup",
        "cce:share=0.3+mixup:alpha=0.5",
        "cce:share=0.3+mixup:alpha=1",
    ]
    assert tuning_candidates("balanced-softmax") == tuning_candidates("logit-adjust"), "one objective in two spellings"
    assert len(tuning_candidates("logit-adjust+cce+mixup")) == 1 + 2 + 4 + 2, "one part at a time"


def test_a_plan_tries_each_setting_once(tmp_path: Path) -> None:
    base = make_config(data__source="digits")
    plan = plan_comparison(base, ["ce", "cce", "cce:share=0.3"], out=tmp_path, seeds=2, tune=True)
    assert plan.settings == ["ce", "cce", *SETTINGS[1:2], *SETTINGS[3:], "cce:share=0.3"]
    assert list(plan.tuned) == ["cce"], "the one with a setting is not tuned"
    assert len(plan.jobs(2)) == 14
    assert plan.most_runs == len(plan.settings) * 2
    open_ended = replace(plan, seeds=None)
    assert open_ended.most_runs == 3 * 12 + (len(plan.settings) - 3) * 3
    both = plan_comparison(base, ["cce:share=0.3+mixup", "cce+mixup:alpha=1"], out=tmp_path, tune=True)
    assert len(set(both.settings)) == len(both.settings)
    base = make_config(settings=["data.rotate=false"], data__source="digits")
    plain = plan_comparison(base, ["ce", "cce", *SETTINGS[1:]], out=tmp_path)
    tuned = plan_comparison(base, ["ce", "cce"], out=tmp_path, tune=True)
    assert {job.folder for job in plain.jobs(1)} == {job.folder for job in tuned.jobs(1)}
    assert plain.family != tuned.family, "these are analysed separately"


def test_no_seed_is_tuned_on_test_images_of_another(tmp_path: Path) -> None:
    """A setting is picked by the validation images of all seeds, so none of these may be tested by any."""
    plan = plan_comparison(tiny(), ["ce", "label-smoothing"], out=tmp_path, seeds=3, tune=True)
    splits = [prepare(job.config).splits for job in plan.jobs(3, ["ce"])]
    tested = {int(row) for each in splits for row in each.test}
    assert not any(tested & set(each.val.tolist()) for each in splits)
    with pytest.raises(EvenhandError, match=r"data\.rotate=true these are test images of other seeds"):
        plan_comparison(tiny("data.rotate=true"), ["ce", "label-smoothing"], tune=True)


@pytest.mark.parametrize(
    ("objectives", "flags", "words"),
    [
        (["ce", "cce"], {"select": "last"}, "--tune picks on validation, and select: last has none"),
        (["ce", "cot"], {}, "--tune finds nothing to try in 'ce,cot'"),
        (["ce", "cce:share=0.3"], {}, "--tune finds nothing to try"),
    ],
)
def test_what_cannot_be_tuned_is_one_sentence(objectives: list[str], flags: dict[str, str], words: str) -> None:
    with pytest.raises(EvenhandError, match=words):
        plan_comparison(make_config(data__source="digits", **flags), objectives, tune=True)


def test_a_baseline_is_listed_or_tried() -> None:
    base = make_config(data__source="digits")
    assert plan_comparison(base, ["ce", "cce"], baseline="cce:share=0.1", tune=True).baseline == "cce:share=0.1"
    for objectives, baseline in ((["ce", "cce"], "cce:share=0.1"), (["ce", "cce:gamma=-2"], "cce")):
        with pytest.raises(EvenhandError, match="is not among the objectives"):
            plan_comparison(base, objectives, baseline=baseline)


class Trained:
    """Replaces a grid: runs with such validation scores, and recalls of the opposite order."""

    def __init__(self, validation: Mapping[str, float], lost: Sequence[tuple[str, int]] = ()) -> None:
        self.validation, self.lost = dict(validation), lost
        self.asked: list[list[str]] = []

    def __call__(self, jobs: Sequence[Job]) -> list[Failure]:
        self.asked.append(sorted({job.config.objective for job in jobs}))
        failures = []
        for job in jobs:
            name, seed = job.config.objective, job.config.seed
            if (name, seed) in self.lost:
                failures.append(Failure(job, "It burst."))
            elif not Run(job.folder).finished:
                score = self.validation.get(name, 0.5)
                noise = 1000 * sorted(self.validation).index(name) + seed if name in self.validation else seed
                recalls = with_noise(with_noise([each - score / 5 for each in CE], seed), noise, 0.02)
                write_run(job.folder, job.config, predict(recalls, support=100), validation=score + 0.01 * seed)
        return failures


def planned(root: Path, **settings: object) -> Plan:
    base = make_config(data__source="digits")
    return plan_comparison(base, ["ce", "cce"], out=root, tune=True, **settings)  # type: ignore[arg-type]


SCORES = dict(zip(SETTINGS, (0.5, 0.55, 0.6, 0.58, 0.54, 0.52), strict=True))


class Messages(GridCallback):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


def analysed(plan: Plan, runs: Trained) -> tuple[ComparisonResult, list[str]]:
    messages = Messages()
    return compare_sequentially(plan, runs, messages)[0], messages.texts


def test_validation_picks_at_the_first_analysis_and_only_that_is_trained_further(tmp_path: Path) -> None:
    runs = Trained(SCORES)
    comparison, messages = analysed(planned(tmp_path, most_seeds=5), runs)
    assert messages[0] == "tuning on validation: 7 settings x 3 seeds (6 of cce)"
    assert comparison.objectives == ["ce", "cce:share=0.3"]
    assert runs.asked == [sorted(["ce", *SETTINGS]), ["cce:share=0.3", "ce"]]
    assert {each.objective for each in comparison.differences} == {"cce:share=0.3"}, "tested once"
    assert comparison.seeds == [0, 1, 2, 3, 4]
    rows = {row.objective: row for row in comparison.rows}
    assert list(rows) == ["ce", *SETTINGS]
    assert (rows["ce"].tried, rows["cce:share=0.3"].tried) == (1, 6)
    assert [(row.seeds, row.balanced_accuracy) for name, row in rows.items() if not row.picked] == [(3, None)] * 5
    assert {name: rows[name].val_balanced_accuracy for name in SETTINGS} == pytest.approx(
        {name: score + 0.01 for name, score in SCORES.items()}
    ), "as it was when it was picked"
    assert "cce:share=0.3 was picked among 6 settings of cce by validation balanced accuracy" in comparison.notes[0]
    assert comparison.table().count("not picked") == 5
    [line] = [line for line in comparison.table(200).splitlines() if line.startswith("cce:share=0.3 ") and "±" in line]
    assert "61.0 (1/6)" in line


def test_what_was_picked_stays_whatever_validation_is_later(tmp_path: Path) -> None:
    first, _ = analysed(planned(tmp_path, seeds=3), Trained(SCORES))
    assert first.objectives == ["ce", "cce:share=0.3"]
    plan = planned(tmp_path, seeds=4)
    assert [each.picked for each in read_interim_analyses(tmp_path, plan.family)] == [["ce", "cce:share=0.3"]]
    for job in plan.jobs(3):
        if job.config.objective == "cce:share=0.1":
            write_run(job.folder, job.config, predict(CE, support=100), validation=0.99)
    later, messages = analysed(plan, Trained(SCORES))
    assert later.objectives == ["ce", "cce:share=0.3"]
    assert messages == []
    assert {job.config.objective for job in plan.next_jobs()} == {"ce", "cce:share=0.3"}


def test_a_setting_of_which_a_run_failed_is_not_picked(tmp_path: Path) -> None:
    runs = Trained(SCORES, lost=[("cce:share=0.3", 1)])
    comparison, failures = compare_sequentially(planned(tmp_path, seeds=3), runs)
    assert comparison.objectives == ["ce", "cce:share=0.6"]
    assert comparison.seeds == [0, 1, 2], "the failure costs the others nothing"
    assert [failure.job.config.objective for failure in failures] == ["cce:share=0.3"]
    assert next(row.tried for row in comparison.rows if row.objective == "cce:share=0.6") == 5
    assert len(runs.asked) == 1, "what failed is not tried again at once"


def test_a_baseline_that_is_tuned_is_its_picked_setting(tmp_path: Path) -> None:
    for place, baseline in enumerate(("cce", "cce:share=0.1")):
        comparison, _ = analysed(planned(tmp_path / str(place), seeds=2, baseline=baseline), Trained(SCORES))
        assert comparison.baseline == "cce:share=0.3"
        assert {each.objective for each in comparison.differences} == {"ce"}


def test_what_happens_after_training_counts_in_validation(tmp_path: Path) -> None:
    """With what the objective does; an adjustment that somebody tries on the run later changes nothing of it."""
    settings = ["ce+post-hoc:tau=1", "ce+post-hoc:tau=3"]
    grouped = {name: {0: train_run(tiny(objective=name), tmp_path / name.replace(":", "_"))} for name in settings}
    for later in (False, True):
        if later:
            for members in grouped.values():
                evaluate_adjusted(members[0].path, AdjustmentRequest(adjust="7"))
        fresh = {name: {0: Run(members[0].path)} for name, members in grouped.items()}
        [picked] = pick(fresh, families_of(settings))
        expected = {}
        for name, tau in zip(settings, (1, 3), strict=True):
            validation = fresh[name][0].validation_predictions
            assert validation is not None
            counts = fresh[name][0].predictions.fitted_counts
            assert counts is not None
            adjusted = validation.logits - tau * np.log(counts / counts.sum())
            expected[name] = balanced_accuracy_score(validation.targets, adjusted.argmax(1))
        assert picked.validation == pytest.approx(expected)
        assert len(set(expected.values())) == 2


def test_digits_are_tuned_from_python(tmp_path: Path) -> None:
    found = evenhand.compare(
        config=tiny(epochs=1), objectives=["ce", "label-smoothing"], seeds=1, out=tmp_path, tune=True, jobs=1
    )
    scores = {
        content["objective"]: content["selected"]["val_balanced_accuracy"]
        for content in (json.loads(path.read_text("utf-8")) for path in tmp_path.glob("*/summary.json"))
    }
    own = tuning_candidates("label-smoothing")
    assert set(scores) == {"ce", *own}
    assert found.objectives == ["ce", max(own, key=lambda name: scores[name])]
    content = json.loads((tmp_path / "comparison.json").read_text("utf-8"))
    assert [row["tried"] for row in content["table"]] == [1, 3, 3, 3]
    assert [run["picked"] for run in content["runs"]].count(False) == 2
