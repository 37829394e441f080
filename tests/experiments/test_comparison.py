"""Comparison of runs: scores against the summary of each run, refusals, picking without the test set, files."""

import csv
import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.experiments.comparison import ComparisonResult, compare_runs, judge_differences, write_comparison
from evenhand.experiments.comparison.verdict import difference_sentence
from evenhand.metrics.registry import METRICS
from evenhand.report.page import write_report
from evenhand.runs.run import Run
from evenhand.training.run import train_run
from tests.fabricated import COUNTS, NAMES, fabricate, predict, with_noise
from tests.training.runs import tiny

CE, CCE = (0.95, 0.9, 0.7, 0.3), (0.95, 0.85, 0.75, 0.6)


def grid(root: Path, seeds: int = 4, **objectives: tuple[float, ...]) -> list[Path]:
    """Runs of objectives with such recalls, with the noise of a seed."""
    chosen = objectives or {"ce": CE, "cce": CCE}
    # A little noise of its own for each run: without it every seed would differ by the same amount.
    return [
        fabricate(root, name, seed, with_noise(with_noise(recalls, seed), 100 * place + seed, 0.03))
        for place, (name, recalls) in enumerate(chosen.items())
        for seed in range(seeds)
    ]


def summaries(runs: list[Path], objective: str) -> list[dict[str, Any]]:
    return [json.loads((run / "summary.json").read_text()) for run in runs if run.name.startswith(f"{objective}-")]


def test_the_table_holds_means_over_seeds_of_the_summaries_of_runs(tmp_path: Path) -> None:
    runs = grid(tmp_path)
    comparison = compare_runs(runs)
    assert [row.objective for row in comparison.rows] == comparison.objectives == ["ce", "cce"]
    for row in comparison.rows:
        own = summaries(runs, row.objective)
        for key in METRICS:
            assert row.scores[key] == pytest.approx(np.mean([each[key] for each in own])), key
        for group in ("many", "medium", "few"):
            assert row.scores[group] == pytest.approx(np.mean([each["groups"][group]["recall"] for each in own]))
        assert row.balanced_accuracy_spread == pytest.approx(np.std([s["balanced_accuracy"] for s in own], ddof=1))
        recalls = np.mean([[each["recall"] for each in s["per_class"]] for s in own], axis=0)
        assert (row.worst_class, row.worst_recall) == (NAMES[recalls.argmin()], pytest.approx(recalls.min()))
        assert (row.seeds, row.picked, row.seconds_per_epoch) == (4, True, 2.0)


def test_json_keeps_what_a_later_study_can_be_joined_with(tmp_path: Path) -> None:
    """The figures of every run, as its own summary has them, and what other test images could change."""
    runs = grid(tmp_path)
    content = compare_runs(list(reversed(runs))).to_json(tmp_path)
    assert len(content["runs"]) == len(runs)
    for run in content["runs"]:
        own = json.loads((tmp_path / run["folder"] / "summary.json").read_text())
        assert (own["objective"], own["seed"]) == (run["objective"], run["seed"])
        groups = {name: own["groups"][name]["recall"] for name in ("many", "medium", "few")}
        plain = {key: own[key] for key in METRICS}
        assert run["test"] == pytest.approx({**plain, **groups})
    for each in content["differences"]:
        values: dict[str, list[float]] = {"ce": [], "cce": []}
        for run in sorted(content["runs"], key=lambda run: run["seed"]):
            values[run["objective"]].append(run["test"][each["metric"]])
        gains = np.subtract(values["cce"], values["ce"])
        assert each["mean"] == pytest.approx(gains.mean())
        assert each["images"]["mean"] == pytest.approx(each["mean"])
        assert 0 <= each["images"]["shared"] <= each["images"]["error"]


def test_differences_are_paired_by_seed_and_test_images_count(tmp_path: Path) -> None:
    runs = grid(tmp_path, ce=CE, cot=CE, cce=CCE)
    comparison = compare_runs(list(reversed(runs)), baseline="ce")
    for metric in ("balanced_accuracy", "few"):
        found = [each for each in comparison.differences if each.metric == metric]
        values = {
            name: [
                s["groups"]["few"]["recall"] if metric == "few" else s["balanced_accuracy"]
                for s in summaries(runs, name)
            ]
            for name in ("ce", *(each.objective for each in found))
        }
        over_seeds = judge_differences({metric: values}, "ce")
        for each, alone in zip(found, over_seeds, strict=True):
            assert each.mean == pytest.approx(np.mean(values[each.objective]) - np.mean(values["ce"]))
            assert each.p >= alone.p - 1e-12, "test images add to the noise of seeds"
            if each.level == alone.level:
                assert each.high - each.low >= alone.high - alone.low - 1e-12
    assert [each.metric for each in comparison.differences] == ["balanced_accuracy"] * 2 + ["few"] * 2


def test_a_difference_that_other_test_images_could_turn_round_is_claimed_for_these_only(tmp_path: Path) -> None:
    """A few images that every seed gains: sure on these 40 a class, and not beyond them."""
    for seed in range(5):
        for name, recalls in (("ce", (0.5,) * 4), ("cce", (0.525, 0.55, 0.5, 0.5 + 0.025 * (seed % 2)))):
            fabricate(tmp_path, name, seed, recalls)
    comparison = compare_runs([tmp_path / f"{name}-{seed}" for name in ("ce", "cce") for seed in range(5)])
    balanced, few = comparison.differences
    assert balanced.outcome == "better on these test images only"
    assert "on these test images only" in comparison.verdicts[-1]
    assert few.level == 0, "nothing is handed on"
    assert not balanced.decided


def test_nothing_is_concluded_from_what_failed(tmp_path: Path) -> None:
    guess, none = (0.25, 0.25, 0.25, 0.25), (0.95, 0.9, 0.7, 0.0)
    runs = grid(tmp_path, ce=CE, cot=guess, cce=CCE)
    comparison = compare_runs(runs, baseline="ce")
    primary = {each.objective: each for each in comparison.differences if each.metric == "balanced_accuracy"}
    assert primary["cot"].failed.startswith("cot learned nothing: its balanced accuracy of ")
    assert (primary["cot"].outcome, primary["cot"].words) == ("not tested", "failed")
    assert "failed" in comparison.table()
    assert comparison.failures == [primary["cot"].failed.replace("4 seeds)", "4 seeds: 0, 1, 2, 3)")]
    without = compare_runs([run for run in runs if "cot" not in run.name])
    assert primary["cce"] == without.differences[0], "as if it were not there"
    for text in (comparison.table(), comparison.markdown()):
        assert text.index("Failed: cot learned nothing") < text.replace("\n  ", " ").index("balanced accuracy: cce +")
    for seed in range(4):
        fabricate(tmp_path / "few", "ce", seed, none)
        fabricate(tmp_path / "few", "cce", seed, with_noise(CCE, seed))
    few = compare_runs([tmp_path / "few" / f"{name}-{seed}" for name in ("ce", "cce") for seed in range(4)])
    assert [each.failed for each in few.differences][1].startswith("ce recognises no image of its 1 few-shot class")
    assert not few.differences[0].failed
    assert few.differences[1].words == "not tested (baseline failed)", "cce itself did not"


def test_shot_groups_of_nearly_balanced_classes_are_not_compared(tmp_path: Path) -> None:
    def compared(folder: Path, counts: tuple[int, ...]) -> ComparisonResult:
        made = {
            name: [predict(with_noise(recalls, seed, 0.03), counts=counts, support=200) for seed in range(3)]
            for name, recalls in (("ce", CE), ("cce", CCE))
        }
        paths = [fabricate(folder, name, seed, own) for name, each in made.items() for seed, own in enumerate(each)]
        return compare_runs(paths)

    even = compared(tmp_path / "even", (146, 139, 142, 145))
    assert {each.metric for each in even.differences} == {"balanced_accuracy"}
    assert any(note.startswith("Classes have 139 to 146 training images") for note in even.notes)
    assert not {"many", "medium", "few"} & set(even.rows[0].scores)
    assert "few" not in even.table().split("Worst class")[0]
    uneven = compared(tmp_path / "uneven", (300, 139, 142, 145))
    assert {each.metric for each in uneven.differences} == {"balanced_accuracy", "few"}


def test_nothing_is_concluded_from_a_baseline_that_failed(tmp_path: Path) -> None:
    comparison = compare_runs(grid(tmp_path, ce=(0.25,) * 4, cce=CCE))
    assert comparison.verdicts[-1].startswith("ce learned nothing")
    assert (comparison.recommended, comparison.certainty) == ("cce", "undecided")
    assert all(each.failed for each in comparison.differences)


def test_classes_are_sorted_by_training_count_with_the_objectives_whose_recall_rose_or_fell(tmp_path: Path) -> None:
    order = [2, 0, 3, 1]
    for name, recalls in (("ce", CE), ("cce", CCE)):
        shuffled = predict(
            [recalls[k] for k in order], names=[NAMES[k] for k in order], counts=[COUNTS[k] for k in order]
        )
        for seed in (0, 1):
            fabricate(tmp_path, name, seed, shuffled)
    rows = compare_runs([tmp_path / f"{name}-{seed}" for name in ("ce", "cce") for seed in (0, 1)]).per_class
    assert [(row.name, row.train_count, row.test_count) for row in rows] == [
        (name, count, 40) for name, count in zip(NAMES, COUNTS, strict=True)
    ]
    assert [row.group for row in rows] == ["many", "many", "medium", "few"]
    assert [row.recall["cce"] for row in rows] == pytest.approx(CCE)
    assert [row.difference["cce"] for row in rows] == pytest.approx([0, -0.05, 0.05, 0.3])
    assert [(row.rose, row.fell) for row in rows] == [([], []), ([], ["cce"]), (["cce"], []), (["cce"], [])]


def test_the_baseline_is_the_given_one_or_cross_entropy_or_the_first(tmp_path: Path) -> None:
    runs = grid(tmp_path, seeds=2, cot=CE, cce=CCE, erm=CE)
    assert compare_runs(runs).baseline == "ce"
    assert compare_runs(runs, baseline="cce").baseline == "cce"
    assert compare_runs(runs[:4]).baseline == "cot"
    with pytest.raises(
        EvenhandError, match="baseline 'focal' is not among the compared objectives; there are cot, cce, ce"
    ):
        compare_runs(runs, baseline="focal")


def test_only_common_seeds_are_compared_and_that_is_said(tmp_path: Path) -> None:
    runs = grid(tmp_path, seeds=4)
    comparison = compare_runs([run for run in runs if run.name not in ("cce-0", "ce-3")])
    assert comparison.seeds == [1, 2]
    assert "Only seeds that every objective has are compared (1, 2), not 0, 3." in comparison.notes
    assert any(note.startswith("Two seeds") for note in comparison.notes)
    with pytest.raises(EvenhandError, match=r"No seed was run with every objective.*\(ce: 0; cce: 1, 2\)"):
        compare_runs([tmp_path / name for name in ("ce-0", "cce-1", "cce-2")])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"optimizer__lr": 0.05}, r"optimizer\.lr is 0\.1 in one and 0\.05 in the other"),
        ({"data__imbalance": "exp:10"}, r"data\.imbalance is 'exp:50' in one and 'exp:10'"),
        ({"data__source": "digits"}, r"data\.source is 'photos'"),
        ({"model__name": "resnet32"}, r"model\.name is"),
        ({"epochs": 7}, "epochs is 3 in one and 7"),
        ({"compute__precision": "bfloat16"}, r"compute\.precision is 'auto'"),
        ({"trained_on": ["other"]}, "seed 0 was not trained and tested on the same images"),
        ({"recalls": predict(CCE, names="wxyz")}, "its classes are not those of the other runs"),
        ({"recalls": predict(CCE, counts=(400, 150, 60, 9))}, "its training counts are not those"),
        ({"recalls": predict(CCE, support=41)}, "not trained and tested on the same images"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_in_one_sentence(
    tmp_path: Path, other: dict[str, Any], words: str
) -> None:
    runs = [fabricate(tmp_path, "ce", 0, CE), fabricate(tmp_path, "cce", 0, **{"recalls": CCE, **other})]
    with pytest.raises(EvenhandError, match=words) as refused:
        compare_runs(runs)
    assert "\n" not in str(refused.value)
    assert str(runs[1]) in str(refused.value)


def test_what_does_not_change_a_run_may_differ(tmp_path: Path) -> None:
    runs = [fabricate(tmp_path, "ce", seed, CE, compute__workers=seed, code=f"code{seed}") for seed in (0, 1)]
    runs += [fabricate(tmp_path, "cce", seed, CCE, data__root="elsewhere", track_test=True) for seed in (0, 1)]
    notes = compare_runs(runs).notes
    assert "The runs were made with 3 versions of the code (aaaa, code0, code1)." in notes


def test_the_precision_and_a_mixture_are_noted(tmp_path: Path) -> None:
    runs = grid(tmp_path, seeds=1)
    assert "Computed in float32." in compare_runs(runs).notes
    Run(runs[0]).write_environment({"precision": "bf16-mixed"})
    found = compare_runs(runs)
    assert any("in 2 precisions (bfloat16, float32)" in note for note in found.notes)
    assert "in 2 precisions (bfloat16, float32)" in found.markdown()
    assert "Computed in float32." not in found.notes


@pytest.mark.parametrize(
    ("what", "recorded", "usual", "other"),
    [
        ("threads", "threads", 1, 2),
        ("processors", "processor", "AMD EPYC 9R14", "Intel Xeon 8488C"),
        ("devices", "device", "cpu", "cuda:0"),
    ],
)
def test_a_mixture_of_machines_is_named(tmp_path: Path, what: str, recorded: str, usual: Any, other: Any) -> None:
    runs = grid(tmp_path, seeds=2)
    for run in runs:
        Run(run).write_environment({recorded: usual})
    assert not any("different" in note for note in compare_runs(runs).notes)
    Run(runs[-1]).write_environment({recorded: other})
    found = compare_runs(runs)
    seen = {str(usual): "ce seeds 0, 1, cce seed 0", str(other).partition(":")[0]: "cce seed 1"}
    listed = "; ".join(f"{value}: {names}" for value, names in sorted(seen.items()))
    note = f"The runs were computed with different {what} ({listed}), which changes results"
    assert any(each.startswith(note) for each in found.notes)
    for text in (found.markdown(), " ".join(found.table().split())):
        assert note in text


def test_bad_folders(tmp_path: Path) -> None:
    runs = grid(tmp_path, seeds=1)
    with pytest.raises(EvenhandError, match="ce with seed 0 comes twice"):
        compare_runs([*runs, shutil.copytree(runs[0], tmp_path / "copy")])
    with pytest.raises(EvenhandError, match="There are no runs to compare"):
        compare_runs([])
    with pytest.raises(EvenhandError, match="is no run"):
        compare_runs([*runs, tmp_path / "nowhere"])
    (runs[1] / "summary.json").write_text("{}")
    with pytest.raises(EvenhandError, match=r"Cannot read .*summary\.json: source: field required"):
        compare_runs(runs)
    (runs[1] / "summary.json").unlink()
    with pytest.raises(EvenhandError, match="is not finished"):
        compare_runs(runs)


def shown(comparison: ComparisonResult, folder: Path) -> dict[str, str]:
    """The verdict as the terminal, the page of Markdown and the report show it, from its beginning, on one line."""
    write_comparison(comparison, folder)
    page = write_report([folder], embedding=False).read_text()
    parts = {
        "terminal": comparison.table().partition("\nVerdict\n")[2],
        "Markdown": comparison.markdown(),
        "HTML": html.unescape(page[page.index("<header>") :]),
    }
    return {name: " ".join(text.split()) for name, text in parts.items()}


@pytest.mark.usefixtures("undrawn")
def test_a_baseline_that_failed_is_named_before_the_recommendation(tmp_path: Path) -> None:
    runs = []
    for seed in range(4):
        noisy = with_noise(CE, seed)
        runs.append(fabricate(tmp_path, "ce", seed, [*noisy[:3], 0]))
        runs.append(fabricate(tmp_path, "cce", seed, with_noise([*noisy[:3], 0.6], 100 + seed, 0.03)))
    found = compare_runs(runs)
    assert (found.recommended, found.certainty) == ("cce", "shown")
    for name, text in shown(found, tmp_path).items():
        failed = text.index("Failed: ce recognises no image of its 1 few-shot class (in 4 of 4 seeds: 0, 1, 2, 3).")
        assert failed < text.index("Use cce: +"), name
        assert failed < text.find("<h1>") or name != "HTML"


@pytest.mark.usefixtures("undrawn")
def test_more_seeds_than_there_may_be_are_a_new_comparison(tmp_path: Path) -> None:
    found = compare_runs(grid(tmp_path, seeds=3, ce=CE, cce=(0.95, 0.9, 0.73, 0.32)))
    balanced = found.differences[0]
    total = 3 + balanced.more_seeds
    assert (balanced.outcome, found.certainty, total > 12) == ("undecided", "undecided", True)
    last = (
        f"not decidable with 12 seeds, about {total} seeds would be needed; start a new comparison with "
        f"--seeds {total} --out NEW."
    )
    sentence = f"cce in balanced accuracy; about {total} seeds would be needed, in a new comparison (--seeds {total})"
    for name, text in shown(found, tmp_path).items():
        plain = re.sub("</?span[^>]*>", "", text).replace("\\", "")
        assert last in plain, name
        assert sentence in plain, name


def test_one_seed_compares_models_on_images_and_claims_nothing(tmp_path: Path) -> None:
    comparison = compare_runs([fabricate(tmp_path, "ce", 3, CE), fabricate(tmp_path, "cce", 3, CCE)])
    balanced, few = comparison.differences
    assert (balanced.mean, few.mean) == (pytest.approx(0.075), pytest.approx(0.3))
    for each in comparison.differences:
        assert each.low < each.mean < each.high
        assert (each.p, each.level, each.outcome) == (None, 0, "undecided")
        assert "not training noise" in difference_sentence(each)
    assert comparison.verdicts[-1].startswith("Undecided with 1 seed; ")
    assert "do not cover training noise" in comparison.method
    assert comparison.rows[0].balanced_accuracy_spread is None
    assert "±" not in comparison.table()


def test_without_few_shot_test_images_the_family_is_balanced_accuracy_alone(tmp_path: Path) -> None:
    for name, recalls in (("ce", CE), ("cce", CCE)):
        for seed in (0, 1, 2):
            fabricate(tmp_path, name, seed, predict(with_noise(recalls, seed), support=[40, 40, 40, 0]))
    comparison = compare_runs([tmp_path / f"{name}-{seed}" for name in ("ce", "cce") for seed in (0, 1, 2)])
    assert [each.metric for each in comparison.differences] == ["balanced_accuracy"]
    assert "No few-shot class has a test image, so balanced accuracy alone is compared." in comparison.notes
    assert "Without a test image, and so in no mean: 'dög'." in comparison.notes
    absent = comparison.per_class[-1]
    assert (absent.name, absent.test_count, absent.recall["ce"], absent.rose, absent.fell) == ("dög", 0, None, [], [])
    assert "few " not in comparison.table().splitlines()[2], "nobody fills that column"
    json.dumps(comparison.to_json(), allow_nan=False)


@pytest.mark.parametrize(("few", "places"), [(False, (0, 1, 0)), (True, (4, 3, 5))])
def test_one_image_more_in_every_seed_is_not_claimed(tmp_path: Path, few: bool, places: tuple[int, ...]) -> None:
    """In classes of 35 to 37 images, either among all classes or among the few-shot ones."""
    supports, counts = [36, 37, 36, 35, 36, 37], [400, 300, 50, 9, 8, 7]
    for seed, place in enumerate(places):
        for name in ("ce", "cce"):
            hits = [20 + seed] * 6
            hits[place] += name == "cce"
            recalls = [hit / n for hit, n in zip(hits, supports, strict=True)]
            fabricate(tmp_path, name, seed, predict(recalls, names="abcdef", counts=counts, support=supports))
    comparison = compare_runs([tmp_path / f"{name}-{seed}" for name in ("ce", "cce") for seed in range(3)])
    found = {each.metric: each for each in comparison.differences}
    for metric in ("balanced_accuracy", *(["few"] if few else [])):
        assert found[metric].p is None
        assert found[metric].mean > 0
        assert "to within one test image" in difference_sentence(found[metric])
    assert "less than one test image over seeds" in comparison.method
    assert comparison.verdicts[-1].startswith("Undecided")


# Tuning.

GAMMAS = {"cce:gamma=-0.5": 0.61, "cce:gamma=-1.5": 0.64, "cce:gamma=-2": 0.6}


def tuned(root: Path, **flags: Any) -> list[Path]:
    """Cross entropy, and CCE with three gammas of which -1 is best in validation and worst in the test."""
    runs = [fabricate(root, "ce", seed, with_noise(CE, seed), validation=0.7, **flags) for seed in (0, 1, 2)]
    for place, (name, score) in enumerate(GAMMAS.items()):
        recalls = [value - 0.1 * (name == "cce:gamma=-1.5") for value in CCE]
        runs += [
            fabricate(root, name, seed, with_noise(recalls, 10 * place + seed), validation=score + 0.02 * seed, **flags)
            for seed in (0, 1, 2)
        ]
    return runs


def test_settings_of_an_objective_compete_on_validation(tmp_path: Path) -> None:
    comparison = compare_runs(tuned(tmp_path), tune=True)
    assert comparison.objectives == ["ce", "cce:gamma=-1.5"]
    assert [(row.family, row.tried) for row in comparison.rows] == [("ce", 1), *[("cce", 3)] * 3]
    assert {row.objective: row.picked for row in comparison.rows} == {
        "ce": True,
        "cce:gamma=-0.5": False,
        "cce:gamma=-1.5": True,
        "cce:gamma=-2": False,
    }
    assert [row.val_balanced_accuracy for row in comparison.rows] == pytest.approx([0.7, 0.63, 0.66, 0.62])
    unpicked = next(row for row in comparison.rows if row.objective == "cce:gamma=-2")
    assert (unpicked.scores, unpicked.balanced_accuracy, unpicked.worst_class) == ({}, None, None)
    assert {each.objective for each in comparison.differences} == {"cce:gamma=-1.5"}, "only picked ones are tested"
    assert comparison.table().count("not picked") == 2
    assert "its test result is not read" in comparison.table().replace("\n  ", " ")
    assert any(note.startswith("cce:gamma=-1.5 was picked among 3 settings of cce") for note in comparison.notes)


@pytest.mark.parametrize("changed", GAMMAS)
def test_picking_reads_no_test_number(tmp_path: Path, changed: str) -> None:
    runs = tuned(tmp_path)
    before = compare_runs(runs, tune=True)
    for seed in (0, 1, 2):
        perfect = predict([1.0] * 4) if changed == "cce:gamma=-2" else predict([0.0] * 4)
        fabricate(tmp_path, changed, seed, perfect, validation=GAMMAS[changed] + 0.02 * seed)
    after = compare_runs(runs, tune=True)
    assert after.objectives == before.objectives
    assert (after == before) == (changed != "cce:gamma=-1.5"), "what was not picked changes nothing at all"


def test_test_results_that_are_not_read_need_not_be_there(tmp_path: Path) -> None:
    runs = tuned(tmp_path)
    before = compare_runs(runs, tune=True)
    for run in runs:
        if "gamma=-1.5" not in run.name and run.name.startswith("cce"):
            (run / "predictions.npz").unlink()
    assert compare_runs(runs, tune=True) == before


def test_without_tuning_each_setting_is_an_objective(tmp_path: Path) -> None:
    comparison = compare_runs(tuned(tmp_path))
    assert comparison.objectives == ["ce", *GAMMAS]
    assert all(row.picked for row in comparison.rows)
    assert len(comparison.differences) == 6
    assert compare_runs(tuned(tmp_path), baseline="cce:gamma=-2").baseline == "cce:gamma=-2"


def test_the_baseline_may_be_tuned_too(tmp_path: Path) -> None:
    runs = tuned(tmp_path)
    for wanted in ("cce", "cce:gamma=-1.5", "cce:gamma=-2"):
        comparison = compare_runs(runs, baseline=wanted, tune=True)
        assert comparison.baseline == "cce:gamma=-1.5"
        noted = "The baseline is cce:gamma=-1.5, the picked setting, not cce:gamma=-2." in comparison.notes
        assert noted == (wanted == "cce:gamma=-2")


def test_a_baseline_named_like_its_family_is_not_taken_for_the_picked_setting(tmp_path: Path) -> None:
    scores = {"ce": 0.7, "cce": 0.6, "cce:gamma=-2": 0.65}
    runs = [fabricate(tmp_path, name, seed, CE, validation=score) for name, score in scores.items() for seed in (0, 1)]
    comparison = compare_runs(runs, baseline="cce", tune=True)
    assert comparison.baseline == "cce:gamma=-2"
    assert "The baseline is cce:gamma=-2, the picked setting, not cce." in comparison.notes


def test_an_objective_alone_is_picked_and_reported_once(tmp_path: Path) -> None:
    comparison = compare_runs(tuned(tmp_path)[3:], tune=True)
    assert (comparison.objectives, comparison.differences) == (["cce:gamma=-1.5"], [])
    assert comparison.verdicts == ["Undecided: there is nothing to compare cce:gamma=-1.5 with."]
    write_comparison(comparison, tmp_path / "out")
    assert comparison.table()


def test_runs_without_validation_cannot_be_tuned(tmp_path: Path) -> None:
    runs = [fabricate(tmp_path, name, 0, CE, validation=None, select="last") for name in ("ce", *GAMMAS)]
    with pytest.raises(EvenhandError, match=r"Cannot pick among cce:gamma=-0\.5, cce:gamma=-1\.5, cce:gamma=-2"):
        compare_runs(runs, tune=True)
    assert compare_runs(runs).rows[0].val_balanced_accuracy is None
    assert compare_runs(runs[:2], tune=True).objectives == ["ce", "cce:gamma=-0.5"]


# Files and text.


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[ComparisonResult, Path]:
    root = tmp_path_factory.mktemp("grid")
    comparison = compare_runs(tuned(root), tune=True)
    assert [path.name for path in write_comparison(comparison, root)] == [
        "comparison.json",
        "comparison.csv",
        "per_class.csv",
        "comparison.md",
    ]
    return comparison, root


def test_json_holds_everything_with_folders_beside_it(written: tuple[ComparisonResult, Path]) -> None:
    comparison, root = written
    text = (root / "comparison.json").read_text("utf-8")
    content = json.loads(text)
    assert "NaN" not in text
    assert content == json.loads(json.dumps(comparison.to_json(root)))
    assert (content["source"], content["imbalance"], content["model"]) == ("photos", "exp:50", "resnet8")
    assert (content["baseline"], content["seeds"]) == ("ce", [0, 1, 2])
    assert len(content["runs"]) == 12
    first = content["runs"][0]
    assert {key: first[key] for key in first if key != "test"} == {
        "objective": "ce",
        "seed": 0,
        "folder": "ce-0",
        "picked": True,
    }
    assert sum(run["picked"] for run in content["runs"]) == 6
    assert all((run["test"] is not None) == run["picked"] for run in content["runs"]), "what is not picked is not read"
    assert all((root / run["folder"] / "config.yaml").is_file() for run in content["runs"])
    for key in ("objectives", "table", "differences", "per_class", "verdicts", "notes", "method"):
        assert content[key], key
    assert content["differences"][0]["outcome"] in ("better", "worse", "undecided")


def test_every_metric_of_the_registry_is_in_every_output(written: tuple[ComparisonResult, Path]) -> None:
    comparison, root = written
    shown = [metric.title for metric in METRICS.values() if "compare" in metric.shown]
    heads = " ".join(line for line in comparison.table().splitlines() if line.startswith("objective"))
    assert all(title in heads for title in shown)
    assert all(f"| {title} |" in comparison.markdown() for title in shown)
    content = json.loads((root / "comparison.json").read_text("utf-8"))
    assert all(METRICS.keys() <= row.keys() for row in content["table"])
    assert all(METRICS.keys() <= run["test"].keys() for run in content["runs"] if run["picked"])
    with (root / "comparison.csv").open(newline="", encoding="utf-8") as file:
        assert METRICS.keys() <= set(csv.DictReader(file).fieldnames or ())


def test_csv_holds_the_same_numbers(written: tuple[ComparisonResult, Path]) -> None:
    comparison, root = written
    with (root / "comparison.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["objective"] for row in rows] == [row.objective for row in comparison.rows]
    assert float(rows[0]["balanced_accuracy"]) == comparison.rows[0].balanced_accuracy
    picked = next(row for row in rows if row["objective"] == "cce:gamma=-1.5")
    few = next(each for each in comparison.differences if (each.objective, each.metric) == ("cce:gamma=-1.5", "few"))
    shown = [picked[f"few_difference_{key}"] for key in ("level", "p", "outcome")]
    assert shown == (["", "", "not tested"] if few.level == 0 else [str(few.level), str(few.p), few.outcome])
    assert rows[1]["balanced_accuracy"] == "", "not picked"
    with (root / "per_class.csv").open(newline="", encoding="utf-8") as file:
        classes = list(csv.DictReader(file))
    assert [row["name"] for row in classes] == list(NAMES)
    assert float(classes[0]["recall ce"]) == comparison.per_class[0].recall["ce"]
    assert float(classes[3]["difference cce:gamma=-1.5"]) == comparison.per_class[3].difference["cce:gamma=-1.5"]


def test_terminal_text_is_aligned_plain_and_ends_with_the_verdict(written: tuple[ComparisonResult, Path]) -> None:
    comparison, _ = written
    assert "Recall by class: in per_class.csv, as the table is wider than 30 columns." in comparison.table(30)
    text = comparison.table()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 104
    assert "\x1b" not in text
    header = next(line for line in lines if line.startswith("objective"))
    row = lines[lines.index(header) + 1]
    end = header.index("macro F1") + len("macro F1")
    assert row[:end].endswith(METRICS["macro_f1"].format(comparison.rows[0].scores["macro_f1"]))
    assert row[end : end + 2] == "  "
    verdict = lines[lines.index("Verdict") :]
    assert verdict[1] == comparison.verdicts[-1]
    assert verdict[3].startswith("cce:gamma=-1.5  "), "then the picture"
    assert "o" in verdict[3]
    assert "family-wise error rate" not in text
    assert "More: `evenhand guide verdict`." in text.replace("\n  ", " ")
    assert "cat, tabby" in text


def test_markdown_has_the_verdict_the_tables_and_every_class(written: tuple[ComparisonResult, Path]) -> None:
    comparison, root = written
    text = comparison.markdown()
    assert (root / "comparison.md").read_text("utf-8") == text
    assert f"**{comparison.verdicts[-1]}**" in text
    tables = [block for block in text.split("\n\n") if block.startswith("| ")]
    assert len(tables) == 3
    for block in tables:
        assert len({line.count("|") for line in block.splitlines()}) == 1
    assert "| not picked |" in text
    assert all(f"| {name} |" in text for name in NAMES)


def test_names_that_could_break_a_table_do_not(tmp_path: Path) -> None:
    names = ("a|b", "x\x1b[31m", "猫" * 3, "n" * 90)
    for name, recalls in (("ce", CE), ("cce", CCE)):
        for seed in (0, 1):
            fabricate(tmp_path, name, seed, predict(recalls, names=names))
    comparison = compare_runs([tmp_path / f"{name}-{seed}" for name in ("ce", "cce") for seed in (0, 1)])
    assert "\x1b" not in comparison.table() + comparison.markdown()
    assert max(map(len, comparison.table().splitlines())) <= 110
    assert r"| a\|b |" in comparison.markdown()
    json.dumps(comparison.to_json(), allow_nan=False)


def test_many_classes_and_many_objectives_stay_readable(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names, counts = [f"class {k}" for k in range(60)], np.linspace(500, 5, 60).astype(int).tolist()
    runs = []
    for name in ("ce", "cot", *(f"cce:gamma=-{each}" for each in range(1, 9))):
        for seed in (0, 1):
            recalls = rng.uniform(0.2, 1, 60)
            runs.append(fabricate(tmp_path, name, seed, predict(recalls, names=names, counts=counts, support=5)))
    few = compare_runs(runs[:4])
    assert "... 40 more" in few.table()
    assert few.markdown().partition("## Classes")[2].count("\n| class ") == 61
    many = compare_runs(runs)
    assert "class 7  " not in many.table()
    assert max(map(len, many.table().splitlines())) <= 104


def test_real_runs_of_one_seed_are_paired(tmp_path: Path) -> None:
    """Trained for a moment on digits: what training writes is what a comparison reads."""
    runs = [
        train_run(tiny(objective=objective, seed=seed, epochs=1), tmp_path / f"{objective}-{seed}").path
        for objective in ("ce", "cce")
        for seed in (0, 1)
    ]
    comparison = compare_runs(runs)
    assert (comparison.source, comparison.imbalance, comparison.model) == ("digits", "exp:20", "resnet8")
    assert comparison.test_images == 359
    for row in comparison.rows:
        own = summaries(runs, row.objective)
        assert row.balanced_accuracy == pytest.approx(np.mean([each["balanced_accuracy"] for each in own]))
        assert row.val_balanced_accuracy == pytest.approx(
            np.mean([each["selected"]["val_balanced_accuracy"] for each in own])
        )
    assert not any("versions of the code" in note for note in comparison.notes)
