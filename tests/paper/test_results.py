"""Measured against published: orders of tables written by hand, and pages of runs with known results."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.runtime_estimate import Size
from evenhand.paper._ordering import compare_order, correct_together
from evenhand.paper._speed import Setting, _config, machine, measure_speed, speed_json, speed_markdown, speed_rows
from evenhand.paper.api import check_sources
from evenhand.paper.planning import StudyOptions, jobs_of, plan
from evenhand.paper.render import sign_sentence, to_json, to_markdown, write_reproduction
from evenhand.paper.results import Reproduction, read_reproduction
from evenhand.paper.studies import STUDIES, Panel, Study
from evenhand.runs.record import make_record, records_in, write_record
from evenhand.runs.run import Run
from evenhand.statistics.paired import paired_difference
from tests.fabricated import finish, history, predict, write_run

PAPER = {"ERM": 0.87, "FL": 0.86, "COT": 0.88, "CCE": 0.89}


def seeds(*values: float) -> dict[int, float]:
    """Percent, as shares by seed."""
    return {seed: value / 100 for seed, value in enumerate(values)}


def test_an_order_holds_if_every_pair_agrees() -> None:
    ours = {"FL": seeds(70, 71), "ERM": seeds(72, 73.5), "COT": seeds(74, 75), "CCE": seeds(76, 78)}
    ordering = compare_order(PAPER, ours)
    assert ordering.state == "not decided", "with two seeds nothing is beyond noise"
    assert len(ordering.pairs) == 6
    assert ordering.published == ("CCE", "COT", "ERM", "FL")
    assert "not decided; 6 of 6 pairs agree" in ordering.sentence()
    sure = {
        method: seeds(*(100 * value + 0.01 * wobble for wobble in (0, 1, -1, 2, place)))
        for place, (method, value) in enumerate(PAPER.items())
    }
    assert compare_order(PAPER, sure).state == "holds"
    assert compare_order(PAPER, sure, reduced=True).state == "holds at this scale"
    assert "holds; 6 of 6 pairs agree, 6 of them beyond noise." in compare_order(PAPER, sure).sentence()


def test_one_pair_reversed_beyond_noise_breaks_it() -> None:
    sure = {
        method: seeds(*(100 * value + 0.01 * wobble for wobble in (0, 1, -1, 2, place)))
        for place, (method, value) in enumerate((PAPER | {"CCE": 0.80}).items())
    }
    assert compare_order(PAPER, sure).state == "does not hold"
    assert compare_order(PAPER, sure, reduced=True).state == "does not hold at this scale"
    assert compare_order(PAPER, sure, failed=["CCE"]).state == "holds"
    assert (
        compare_order(PAPER, sure, failed=["CCE"])
        .sentence()
        .endswith("CCE learned nothing, and nothing is concluded from that.")
    )


def test_columns_of_a_page_are_corrected_together() -> None:
    ours = {"ERM": seeds(80.0, 81.0, 79.5), "CCE": seeds(81.1, 82.0, 80.6)}
    one = compare_order({"ERM": 0.1, "CCE": 0.2}, ours)
    assert one.pairs[0].clear
    tied = compare_order({"ERM": 0.1, "CCE": 0.1}, ours)
    assert not tied.pairs
    together = correct_together([one, *[tied] * 9])
    assert together[0].pairs[0].holm_p == pytest.approx(10 * one.pairs[0].holm_p)


def test_one_reversed_pair_is_named() -> None:
    ours = {"FL": seeds(70, 71), "ERM": seeds(69, 70.5), "COT": seeds(74, 75), "CCE": seeds(76, 78)}
    ordering = compare_order(PAPER, ours)
    assert ordering.state == "not decided"
    assert [(pair.better, pair.worse) for pair in ordering.pairs if not pair.agrees] == [("ERM", "FL")]
    assert "reversed: FL 0.75 over ERM (within noise)" in ordering.sentence()


def test_an_exact_tie_is_not_reversed_by_rounding() -> None:
    ours = {"CCE": seeds(10.0, 30.0, 20.0), "ERM": seeds(30.0, 20.0, 10.0 + 1e-14)}
    [pair] = compare_order({"CCE": 0.2, "ERM": 0.1}, ours).pairs
    assert (pair.measured.mean, pair.agrees) == (0.0, True)


def test_without_spread_noise_is_not_said_to_be_measured() -> None:
    one = compare_order(PAPER, {"ERM": seeds(80.0), "CCE": seeds(79.0), "COT": seeds(81.0)}).sentence()
    assert "1 of 3 pairs agree, noise not measured; reversed: COT 2.00 over CCE (noise not measured)" in one
    ours = {"CCE": seeds(80 + 1 / 3.5, 70 + 1 / 3.7), "ERM": seeds(80.0, 70.0)}
    ordering = compare_order(PAPER, ours, resolution=1 / 370)
    assert ordering.sentence().endswith("not decided; 1 of 1 pairs agree, noise not measured.")
    assert compare_order(PAPER, ours).sentence().endswith("holds; 1 of 1 pairs agree, 1 of them beyond noise.")
    assert sign_sentence(paired_difference([0.82], [0.80])).endswith("+2.0 points, 1 seed, noise not measured.")
    assert sign_sentence(paired_difference([0.82, 0.79], [0.80, 0.80])).endswith("2 seeds, within noise.")


def test_ties_are_allowed_on_both_sides() -> None:
    tied = compare_order(
        {"COT": 0.9653, "CCE": 0.9653, "ERM": 0.94}, {"COT": seeds(9), "CCE": seeds(5), "ERM": seeds(5)}
    )
    assert [(pair.better, pair.worse) for pair in tied.ties] == [("COT", "CCE")]
    assert {(pair.better, pair.worse) for pair in tied.pairs} == {("COT", "ERM"), ("CCE", "ERM")}


def test_noise_is_the_paired_t_test_after_holm() -> None:
    ours = {
        "ERM": seeds(80.0, 81.0, 79.5, 80.2),
        "CCE": seeds(81.1, 82.0, 80.6, 81.2),
        "COT": seeds(80.3, 80.8, 79.9, 80),
    }
    ordering = compare_order({"ERM": 0.1, "COT": 0.2, "CCE": 0.3}, ours)
    raw = {(p.better, p.worse): float(ttest_rel(list(ours[p.better].values()), list(ours[p.worse].values())).pvalue)
           for p in ordering.pairs}  # fmt: skip
    for pair in ordering.pairs:
        assert pair.measured.p == pytest.approx(raw[pair.better, pair.worse])
    smallest = min(ordering.pairs, key=lambda pair: pair.measured.p or 1)
    assert smallest.holm_p == pytest.approx(3 * min(raw.values()))
    assert {(p.better, p.worse): p.clear for p in ordering.pairs} == {
        ("CCE", "COT"): True, ("CCE", "ERM"): True, ("COT", "ERM"): False,
    }  # fmt: skip


def test_one_seed_can_be_ordered_but_is_never_beyond_noise() -> None:
    ordering = compare_order(PAPER, {method: {0: value} for method, value in PAPER.items()})
    assert ordering.state == "not decided"
    assert not any(pair.clear for pair in ordering.pairs)


def test_only_common_seeds_are_paired_and_missing_methods_are_left_out() -> None:
    ordering = compare_order(PAPER, {"ERM": {0: 0.8, 1: 0.9}, "CCE": {0: 0.81, 2: 0.5}, "COT": {}})
    [pair] = ordering.pairs
    assert (pair.measured.mean, pair.measured.n, pair.published) == (pytest.approx(0.01), 1, 0.02)
    assert compare_order(PAPER, {"ERM": seeds(1.0)}).state is None


def half_done(out: Path) -> Reproduction:
    """Table-fashion: all of LT 10, ERM alone of LT 100, nothing of the rest; CCE gains 2 points, COT loses 1."""
    options = StudyOptions(seeds=range(3), released=True, epochs=5)
    gains = {"ERM": 0.0, "FL": 0.0, "COT": -0.01, "CCE": 0.02, "FL without alpha": 0.0, "released": -0.03}
    wobble = (0.0, 0.01, 0.002)
    for cell in plan(STUDIES["table-fashion"], options):
        if cell.config.data.imbalance == "exp:10" or (cell.config.data.imbalance, cell.method) == ("exp:100", "ERM"):
            for job, own in zip(cell.jobs(out), wobble, strict=True):
                finish(job, 0.80 + gains[cell.method] + own + 0.001 * job.config.seed * gains[cell.method])
    return read_reproduction(STUDIES["table-fashion"], options, out, command="evenhand reproduce table-fashion")


def test_cells_hold_mean_spread_published_and_difference(tmp_path: Path) -> None:
    result = half_done(tmp_path)
    cells = {
        (each["method"], column["imbalance"]): each for column in to_json(result)["columns"] for each in column["cells"]
    }
    erm = cells["ERM", "exp:10"]
    assert erm["measured"]["balanced_accuracy"]["mean"] == pytest.approx(0.804)
    assert erm["measured"]["balanced_accuracy"]["spread"] == pytest.approx(0.0052915, abs=1e-6)
    assert erm["measured"]["balanced_accuracy"]["difference"] == pytest.approx(0.804 - 0.9145)
    assert (erm["n"], erm["wanted"], erm["published"]) == (3, 3, pytest.approx(0.9145))
    assert cells["CCE", "exp:100"]["measured"] == {}
    assert cells["released", "exp:10"]["published"] is None


def test_partial_results_are_shown_and_what_is_missing_is_said(tmp_path: Path) -> None:
    result = half_done(tmp_path)
    assert (result.finished, result.wanted) == (21, 72)
    assert result.conclusions()[0].startswith("51 of 72 runs are missing")
    page = to_markdown(result)
    assert "not run" in page
    assert "No two methods of the paper's order are measured yet." in page


def test_the_page_says_how_it_was_made_and_labels_every_reduction(tmp_path: Path) -> None:
    page = to_markdown(half_done(tmp_path))
    for words in (
        "evenhand reproduce table-fashion",
        "protocol small",
        "3 seeds",
        "2 processors (x86_64), cpu",
        "torch 2.9",
        "0123456789abcdef",
        "2026-01-02",
        "25% of the training images",
        "resnet8 instead of ResNet-34",
        "5 epochs (protocol small: 10, the paper: 200)",
        "COT",
        "released code's: +5",
        "Methods that the paper does not print are compared without correction.",
        "float32, threads per run: 1",
        "rare classes have too few images",
    ):
        assert words in page, words


def test_differences_below_one_test_image_are_not_beyond_noise(tmp_path: Path) -> None:
    """CCE gains a point in every seed, give or take a hundredth, and one of 100 test images is a point."""
    options = StudyOptions(seeds=range(3), released=True)
    for test_count, clear in ((100, False), (1_000_000, True)):
        for cell in plan(STUDIES["table-fashion"], options):
            if cell.config.data.imbalance == "exp:10" and cell.method in ("ERM", "CCE", "released"):
                for job in cell.jobs(tmp_path / str(test_count)):
                    gain = 0.01 + 0.0001 * job.config.seed if cell.method == "CCE" else 0.0
                    finish(job, 0.8 + gain, test_count=test_count)
        column = read_reproduction(STUDIES["table-fashion"], options, tmp_path / str(test_count)).columns[0]
        for measure in ("balanced_accuracy", "accuracy"):
            assert [pair.clear for pair in column.orderings[measure].pairs] == [clear]
            assert (column.signs[measure].p is not None) == clear


def test_the_order_of_the_first_column_is_evaluated(tmp_path: Path) -> None:
    column = to_json(half_done(tmp_path))["columns"][0]
    ordering = column["orderings"]["balanced_accuracy"]
    assert ordering["state"] == "does not hold at this scale"
    reversed_ = {(pair["better"], pair["worse"]) for pair in ordering["pairs"] if not pair["agrees"]}
    assert reversed_ == {("COT", "ERM"), ("COT", "FL")}


def test_three_files_are_written_and_agree(tmp_path: Path) -> None:
    result = half_done(tmp_path / "runs")
    paths = write_reproduction(result, tmp_path / "out")
    assert [path.name for path in paths] == ["table.json", "table.csv", "table.md"]
    content = json.loads(paths[0].read_text())
    rows = list(csv.DictReader(io.StringIO(paths[1].read_text())))
    assert len(rows) == 4 * 6
    first = content["columns"][0]["cells"][0]["measured"]["balanced_accuracy"]
    assert float(rows[0]["mean"]) == first["mean"]
    conditions = [rows[0][key] for key in ("protocol", "epochs", "fraction", "comparable")]
    assert conditions == ["small", "5", "0.25", "True"]
    assert content["columns"][0]["cells"][0]["comparable"] is True
    assert str(tmp_path) not in paths[2].read_text()


def test_files_hold_shares_and_the_page_percent(tmp_path: Path) -> None:
    result = half_done(tmp_path / "runs")
    paths = write_reproduction(result, tmp_path / "out")
    content = json.loads(paths[0].read_text())
    [erm] = [each for each in content["columns"][0]["cells"] if each["method"] == "ERM"]
    measured = erm["measured"]["balanced_accuracy"]
    assert content["unit"] == "share"
    summaries = {run.config.seed: run.summary for run in result.columns[0].cells[0].runs}
    assert {int(seed): share for seed, share in measured["by_seed"].items()} == pytest.approx(
        {seed: each.balanced_accuracy for seed, each in summaries.items()}
    )
    assert content["columns"][0]["majority"]["balanced_accuracy"] == 0.5, "of two classes"
    for pair in content["columns"][0]["orderings"]["balanced_accuracy"]["pairs"]:
        by_method = {each["method"]: each for each in content["columns"][0]["cells"]}
        means = [by_method[pair[side]]["measured"]["balanced_accuracy"]["mean"] for side in ("better", "worse")]
        published = [by_method[pair[side]]["published"] for side in ("better", "worse")]
        assert pair["measured"]["mean"] == pytest.approx(means[0] - means[1])
        assert pair["published"] == pytest.approx(published[0] - published[1])
    row = next(each for each in csv.DictReader(io.StringIO(paths[1].read_text())) if each["method"] == "ERM")
    assert (float(row["mean"]), float(row["published"])) == (measured["mean"], erm["published"])
    assert f"{100 * measured['mean']:.2f}" in paths[2].read_text()


def test_road_marking_shows_accuracy_and_balanced_accuracy(tmp_path: Path) -> None:
    options = StudyOptions(seeds=range(1))
    for cell in plan(STUDIES["table-road"], options):
        for job in cell.jobs(tmp_path):
            finish(job, 0.7, accuracy=0.9)
    result = read_reproduction(STUDIES["table-road"], options, tmp_path)
    measured = to_json(result)["columns"][0]["cells"][0]["measured"]
    assert {name: each["difference"] for name, each in measured.items()} == {
        "balanced_accuracy": pytest.approx(0.7 - 0.9878), "accuracy": pytest.approx(0.9 - 0.9878),
    }  # fmt: skip
    assert "accuracy is given as well" in to_markdown(result)


def test_other_papers_results_are_listed(tmp_path: Path) -> None:
    page = to_markdown(read_reproduction(STUDIES["table-road-sota"], StudyOptions(), tmp_path))
    assert "Bailo et al. (PCANet + SVM) | 99.10" in page


def test_a_damaged_summary_is_one_sentence(tmp_path: Path) -> None:
    job = plan(STUDIES["table-fashion"], StudyOptions(seeds=range(1)))[0].jobs(tmp_path)[0]
    (finish(job, 0.5) / "summary.json").write_text("{}")
    with pytest.raises(EvenhandError, match=r"Cannot read .*summary.json: source: field required"):
        read_reproduction(STUDIES["table-fashion"], StudyOptions(seeds=range(1)), tmp_path)


def test_missing_data_are_named_before_anything_runs(tmp_path: Path) -> None:
    jobs = jobs_of(plan(STUDIES["table-road"], StudyOptions(data_root=str(tmp_path))), tmp_path)
    with pytest.raises(EvenhandError, match=r"put dataset_annotations.txt and images/ into"):
        check_sources(jobs)


def test_a_tiny_study_from_its_plan_to_its_table(tmp_path: Path) -> None:
    """Real runs, on digits."""
    from evenhand.training.run import train_run

    study = Study(
        "table-tiny-digits", "two methods on digits", (Panel("digits", ("resnet34",), ("none",), ("ERM", "CCE")),)
    )
    options = StudyOptions(seeds=range(1), epochs=1)
    for cell in plan(study, options):
        for job in cell.jobs(tmp_path):
            train_run(job.config, job.folder)
    result = read_reproduction(study, options, tmp_path)
    assert (result.finished, result.wanted) == (2, 2)
    content = to_json(result)
    [column] = content["columns"]
    for cell in column["cells"]:
        assert 0 < cell["measured"]["balanced_accuracy"]["mean"] < 1
        assert cell["published"] is None
    assert content["provenance"]["machines"]


def test_speed_measures_both_forms_of_cot_against_cce() -> None:
    setting = Setting("resnet8", 32, Size((10,) * 10, 0, 1, 16), "float32")
    times = measure_speed([setting], seconds=0.5)
    [each] = times
    assert each.rounds >= 5
    one, two = each.ratios["cot:forwards=1"], each.ratios["cot"]
    assert one[1] <= one[0] <= one[2]
    assert two[1] <= two[0] <= two[2]
    content = speed_json(times, "evenhand reproduce speed", machine())
    assert ", cpu, " in content["provenance"]["machines"][0]
    assert _config(setting, "cce").compute.accelerator == "cpu"
    assert content["paper"] == 1.7
    assert (content["settings"][0]["precision"], content["settings"][0]["threads"]) == ("float32", each.threads)
    assert len(speed_rows(times)) == 4
    assert "evenhand reproduce speed" in speed_markdown(times, "evenhand reproduce speed", machine())


def test_every_page_lists_what_the_paper_leaves_open(tmp_path: Path) -> None:
    for study in STUDIES.values():
        for protocol in ("small", "fair", "paper"):
            page = (
                to_markdown(read_reproduction(study, StudyOptions(protocol=protocol), tmp_path)) if study.panels else ""
            )
            assert ("What the paper leaves open" in page) == bool(study.panels)
            focal = any("FL" in panel.methods for panel in study.panels)
            assert ("alpha = 0.25 on the whole loss" in page) == focal
    page = to_markdown(read_reproduction(STUDIES["table-road"], StudyOptions(), tmp_path))
    assert "32x32 pixels with a margin of 10%" in page
    assert "two forward passes per step" in page


def test_drives_are_split_again_for_every_seed_and_compared_with_the_largest_class(tmp_path: Path) -> None:
    options = StudyOptions(seeds=range(2))
    cells = plan(STUDIES["table-road"], options)
    for cell in cells:
        jobs = cell.jobs(tmp_path)
        by_runs = cell.config.data.source.endswith("split=runs")
        assert [job.config.data.split_seed for job in jobs] == ([0, 1] if by_runs else [0, 0])
        for job in jobs:
            finish(job, 0.7, accuracy=0.4, recalls={"a": 0.9, "b": 0.5})
    column = read_reproduction(STUDIES["table-road"], options, tmp_path).columns[0]
    assert column.cells[0].majority == {"balanced_accuracy": 0.5, "accuracy": 0.5}
    page = to_markdown(read_reproduction(STUDIES["table-road"], options, tmp_path))
    assert "| always the largest class |  |  | 50.00 |  |  | 50.00 |  |  |" in page


def test_focal_loss_is_compared_with_itself_without_alpha(tmp_path: Path) -> None:
    options = StudyOptions(seeds=range(3))
    for cell in plan(STUDIES["table-fashion"], options):
        if cell.config.data.imbalance == "exp:10":
            for job in cell.jobs(tmp_path):
                gain = -0.05 - 0.001 * job.config.seed if cell.method == "FL" else 0.0
                finish(job, 0.8 + gain)
    page = to_markdown(read_reproduction(STUDIES["table-fashion"], options, tmp_path))
    assert "| FL without alpha | 3/3 |  | 80.00 ± 0.00 |" in page
    assert "Focal loss with alpha = 0.25 against without: -5.1 [-5.3, -4.9] points, 3 seeds, beyond noise." in page


def test_what_learned_nothing_is_reported_first(tmp_path: Path) -> None:
    options = StudyOptions(seeds=range(2))
    for cell in plan(STUDIES["table-fashion"], options):
        if cell.config.data.imbalance == "exp:10":
            for job in cell.jobs(tmp_path):
                finish(job, 0.5 if cell.method in ("CCE", "COT") else 0.8 + 0.01 * job.config.seed)
    result = read_reproduction(STUDIES["table-fashion"], options, tmp_path)
    assert result.conclusions()[0].startswith("COT, CCE learned nothing at fashion-mnist, LT 10")
    assert result.columns[0].orderings["balanced_accuracy"].failed == ("CCE", "COT")


def test_differences_from_cce_have_the_interval_of_the_paired_t_test(tmp_path: Path) -> None:
    options = StudyOptions("fair", range(4), only=("exp:10",))
    values = {
        "ERM": (0.80, 0.81, 0.795, 0.802), "FL": (0.79, 0.80, 0.80, 0.81),
        "COT": (0.80, 0.80, 0.81, 0.80), "CCE": (0.82, 0.815, 0.81, 0.83),
    }  # fmt: skip
    for cell in plan(STUDIES["table-fashion"], options):
        for job, value in zip(cell.jobs(tmp_path), values[cell.method], strict=True):
            finish(job, value)
    result = read_reproduction(STUDIES["table-fashion"], options, tmp_path)
    page = to_markdown(result)
    for method in ("ERM", "FL", "COT"):
        test = ttest_rel(values["CCE"], values[method])
        low, high = test.confidence_interval(0.95)
        mean = sum(values["CCE"]) / 4 - sum(values[method]) / 4
        assert f"| {100 * mean:+.2f} [{100 * low:.2f}, {100 * high:.2f}] |" in page
        gain = to_json(result)["columns"][0]["gains"]["balanced_accuracy"][method]
        assert (gain["low"], gain["p"], gain["n"]) == (pytest.approx(low), pytest.approx(test.pvalue), 4)
    assert "| method | n | published | balanced accuracy | diff | CCE minus it |" in page


def finish_with_predictions(out: Path, options: StudyOptions, imbalances: tuple[str, ...]) -> list[Run]:
    """Runs of table-fashion, each of 2 epochs of 1.5 hours."""
    rng, made = np.random.default_rng(0), []
    for cell in plan(STUDIES["table-fashion"], options):
        for job in cell.jobs(out) if cell.config.data.imbalance in imbalances else []:
            predictions = predict(rng.uniform(0.5, 0.9, 3).tolist(), names=("a", "b", "c"), counts=(9, 8, 7))
            made.append(write_run(job.folder, job.config, predictions, rows=history(2, seconds=5400.0)))
    return made


def test_records_take_the_place_of_run_folders(tmp_path: Path) -> None:
    options = StudyOptions("fair", range(2))
    runs = finish_with_predictions(tmp_path / "runs", options, ("exp:10", "exp:100"))
    for run in runs:
        write_record(make_record(run), tmp_path / "records" / "some" / f"{run.name}.json")
    records = records_in(tmp_path / "records")
    study = STUDIES["table-fashion"]
    from_folders = read_reproduction(study, options, tmp_path / "runs", command="evenhand reproduce")
    from_records = read_reproduction(
        study, options, tmp_path / "nothing", records=records, command="evenhand reproduce"
    )
    both = read_reproduction(study, options, tmp_path / "runs", records=records, command="evenhand reproduce")
    assert to_markdown(from_folders) == to_markdown(from_records) == to_markdown(both)
    assert to_json(from_folders) == to_json(from_records)
    assert (from_records.finished, from_records.wanted) == (16, 32)
    page = to_markdown(from_records)
    assert "48.0 hours of training" in page
    assert "- fashion-mnist, Step 10, resnet8 (in the paper ResNet-34): no run" in page
    assert "## fashion-mnist, Step 10" not in page
    assert "## fashion-mnist, LT 100" in page


def test_missing_seeds_are_listed(tmp_path: Path) -> None:
    options = StudyOptions("fair", range(100, 105), only=("exp:10", "ERM", "CCE"))
    erm, cce = plan(STUDIES["table-fashion"], options)
    for job in [*erm.jobs(tmp_path)[1:2], *cce.jobs(tmp_path)]:
        finish(job, 0.8)
    [line] = read_reproduction(STUDIES["table-fashion"], options, tmp_path).not_run()
    assert line.endswith(": ERM (seeds 100, 102, 103, 104)")


def test_a_record_under_an_older_name_is_found_by_its_config(tmp_path: Path) -> None:
    options = StudyOptions("fair", range(1))
    [run, *_] = finish_with_predictions(tmp_path / "runs", options, ("exp:10",))
    record = replace(make_record(run), name="a-name-of-former-times")
    found = read_reproduction(STUDIES["table-fashion"], options, tmp_path / "nothing", records=[record])
    assert (found.finished, found.columns[0].cells[0].n) == (1, 1)
