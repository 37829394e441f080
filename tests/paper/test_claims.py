"""The claims of the text: against the published tables as the notes on the paper list them, and against known runs."""

import json
from pathlib import Path

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.experiments.comparison import compare_runs
from evenhand.experiments.comparison.verdict import in_points
from evenhand.paper._claims import CLAIMS, CheckedClaim, check_claims, claims_json, claims_markdown, claims_rows
from evenhand.paper._finding import Finding, overall
from evenhand.paper._findings import CLUSTERS, separation
from evenhand.paper._ordering import State, noise_words
from evenhand.paper._provenance import provenance
from evenhand.paper._published import imbalance_words
from evenhand.paper.api import comparisons_in
from evenhand.paper.planning import StudyCell, StudyOptions, plan
from evenhand.paper.results import read_reproduction
from evenhand.paper.studies import STUDIES
from evenhand.runs.comparison import Comparison
from evenhand.runs.record import make_record, records_in, write_record
from tests.fabricated import fabricate, finish, predict, write_run

PRINTED = {claim.id: claim.printed() for claim in CLAIMS}


def places(texts: tuple[str, ...]) -> set[str]:
    return {text.partition(" (")[0] for text in texts}


def test_cce_is_not_best_where_the_notes_say_so() -> None:
    found = PRINTED["cce-best"]
    assert found.state == "contradicted"
    assert places(found.cells) == {"Tiny ImageNet Step 100", "SVHN ResNeXt-50"}
    assert places(found.ties) == {
        "CIFAR-100 Step 100",
        "Road Marking SqueezeNet",
        "Road Marking EfficientNet b7",
        "SVHN EfficientNet b0",
    }


def test_cot_improves_on_erm_but_for_one_column() -> None:
    found = PRINTED["cot-over-erm"]
    assert (found.state, places(found.cells)) == ("contradicted", {"CIFAR-100 Step 100"})


def test_the_gain_on_resnet101_is_what_the_table_says() -> None:
    assert PRINTED["resnet101"].state == "holds"


def test_road_markings_best_ties_in_the_papers_own_table() -> None:
    found = PRINTED["road-best"]
    assert (found.state, found.cells) == ("holds", ())
    assert found.detail == "99.80 against 99.10 of the best other paper, Bailo et al. (PCANet + SVM)"
    assert found.ties == ("Road Marking EfficientNet b7, COT (99.80)", "Road Marking EfficientNet b7, CCE (99.80)")


def test_gamma_is_best_at_minus_one_but_for_step_100_and_falls_but_for_five_steps() -> None:
    assert (PRINTED["gamma-best"].state, places(PRINTED["gamma-best"].cells)) == ("holds", {"CIFAR-10 Step 100"})
    assert (PRINTED["gamma-falls"].state, len(PRINTED["gamma-falls"].cells)) == ("contradicted", 5)


def test_the_rest_has_no_number_in_a_table() -> None:
    rest = {name for name, found in PRINTED.items() if found.state == "no number printed"}
    assert rest == {"rare-classes", "every-class", "clusters", "fewer-epochs", "twice", "faster"}


def checked(out: Path) -> dict[str, CheckedClaim]:
    return {each.claim.id: each for each in check_claims(out)}


def cells_of(study: str, **conditions: str) -> list[StudyCell]:
    """The small cells of a study, by imbalance or source."""
    cells = plan(STUDIES[study], StudyOptions(seeds=range(4)))
    return [cell for cell in cells if all(getattr(cell.config.data, key) == value for key, value in conditions.items())]


def fill(out: Path, cells: list[StudyCell], values: dict[str, float], noise: float = 0.001, **more: object) -> None:
    """Finish the cells' runs: a value a method, and a little noise that differs between methods and seeds."""
    rng = np.random.default_rng(0)
    for cell in cells:
        if cell.method in values:
            for job in cell.jobs(out / "runs"):
                finish(job, values[cell.method] + noise * float(rng.standard_normal()), **more)  # type: ignore[arg-type]


def test_without_runs_every_claim_says_what_would_run_it(tmp_path: Path) -> None:
    for each in checked(tmp_path).values():
        assert each.measured == "not run yet"
        assert each.lines()[-1].startswith("ours: not run yet; evenhand reproduce ")


@pytest.mark.parametrize(
    ("cce", "noise", "state"),
    [
        (0.90, 0.0005, "holds at this scale"),
        (0.70, 0.0005, "does not hold at this scale"),
        (0.82, 0.05, "not decided"),
    ],
)
def test_cce_best_needs_a_difference_beyond_noise(tmp_path: Path, cce: float, noise: float, state: str) -> None:
    values = {"ERM": 0.80, "FL": 0.79, "COT": 0.82, "CCE": cce}
    fill(tmp_path, cells_of("table-fashion", imbalance="exp:100"), values, noise)
    found = checked(tmp_path)["cce-best"]
    assert found.measured == state
    [finding] = found.findings
    assert "n=4" in finding.detail
    assert "fashion-mnist LT 100, resnet8, 10 epochs, 0.25 of the images" in finding.where
    assert checked(tmp_path)["cot-over-erm"].measured == ("holds at this scale" if noise < 0.01 else "not decided")


def test_one_column_against_a_claim_decides_it(tmp_path: Path) -> None:
    values = {"ERM": 0.80, "FL": 0.79, "COT": 0.82}
    fill(tmp_path, cells_of("table-fashion", imbalance="step:10"), {**values, "CCE": 0.9})
    fill(tmp_path, cells_of("table-fashion", imbalance="exp:100"), {**values, "CCE": 0.7})
    found = checked(tmp_path)["cce-best"]
    assert found.measured == "does not hold at this scale"
    assert sorted(each.state for each in found.findings) == ["does not hold at this scale", "holds at this scale"]


@pytest.mark.parametrize(("gain", "state"), [(0.11, "holds"), (0.02, "does not hold")])
def test_the_gain_on_road_marking_is_held_to_its_size(tmp_path: Path, gain: float, state: str) -> None:
    cells = plan(STUDIES["table-road"], StudyOptions(protocol="paper", seeds=range(4)))
    large = [cell for cell in cells if cell.config.model.name == "resnet101"]
    fill(tmp_path, large, {"ERM": 0.8, "CCE": 0.8 + gain}, noise=0.005)
    assert checked(tmp_path)["resnet101"].measured == state


@pytest.mark.parametrize("gain", [0.11, 0.02])
def test_another_network_decides_nothing_about_resnet101(tmp_path: Path, gain: float) -> None:
    fill(tmp_path, cells_of("table-road", source="road-marking"), {"ERM": 0.8, "CCE": 0.8 + gain}, noise=0.005)
    found = checked(tmp_path)["resnet101"]
    assert found.measured == "not decided"
    assert "resnet8 decides nothing about ResNet-101" in found.findings[0].detail


@pytest.mark.parametrize(("accuracy", "state"), [(0.998, "holds"), (0.985, "does not hold"), (0.991, "not decided")])
def test_the_best_of_all_on_road_marking_is_held_to_other_papers(tmp_path: Path, accuracy: float, state: str) -> None:
    options = StudyOptions(protocol="paper", seeds=range(4), only=("efficientnet_b0", "CCE"))
    fill(tmp_path, plan(STUDIES["table-road"], options), {"CCE": accuracy}, noise=0.0005)
    found = checked(tmp_path)["road-best"]
    assert found.measured == state
    assert "over 99.10 (Bailo et al. (PCANet + SVM))" in found.findings[0].detail


def fill_by_class(out: Path, gains: tuple[float, float, float], noise: float = 0.002) -> None:
    """Finish runs of many, medium and few images per class, in which CCE gains so much recall of each."""
    rng = np.random.default_rng(0)
    for cell in cells_of("table-cifar10", imbalance="exp:100"):
        for job in cell.jobs(out / "runs") if cell.method in ("ERM", "CCE") else ():
            recalls = np.array([0.8, 0.6, 0.3]) + (cell.method == "CCE") * np.array(gains) + rng.normal(0, noise, 3)
            predictions = predict(recalls.tolist(), names=("a", "b", "c"), counts=(900, 90, 9), support=10_000)
            write_run(job.folder, job.config, predictions)


@pytest.mark.parametrize(
    ("gains", "state"),
    [
        ((0.0, 0.0, 0.1), "holds at this scale"),
        ((0.2, 0.2, 0.1), "does not hold at this scale"),  # they gain, but less
        ((0.0, 0.0, -0.1), "does not hold at this scale"),
        ((-0.2, -0.2, -0.1), "does not hold at this scale"),  # they lose, but less
        ((0.0, 0.0, 0.0), "not decided"),
    ],
)
def test_rare_classes_have_to_gain_and_more_than_others(
    tmp_path: Path, gains: tuple[float, float, float], state: str
) -> None:
    fill_by_class(tmp_path, gains)
    found = checked(tmp_path)["rare-classes"]
    assert found.measured == state
    few, more = found.findings[0].detail.split("; ")
    assert float(few.split()[0]) == pytest.approx(100 * gains[2], abs=0.2)
    assert float(more.split()[0]) == pytest.approx(100 * (gains[2] - (gains[0] + gains[1]) / 2), abs=0.3)


def kept_comparison(tmp_path: Path, gains: tuple[float, ...], *, objective: str = "cce") -> Comparison:
    """Compare runs in which an objective gains so much recall of each class over ce."""
    rng, paths = np.random.default_rng(0), []
    for name in ("ce", objective):
        for seed in range(5):
            noise = rng.normal(0, 0.003, 4)
            recalls = np.array([0.9, 0.8, 0.6, 0.4]) + (name != "ce") * np.array(gains) + noise
            made = predict(recalls.tolist(), support=3000)
            paths.append(fabricate(tmp_path / "kept", name, seed, made, data__source="cifar10"))
    return compare_runs(paths)


@pytest.mark.parametrize(
    ("gains", "best", "rare"),
    [
        ((0.05, 0.0, -0.02, -0.2), "does not hold at this scale", "does not hold at this scale"),
        ((0.0, 0.0, 0.0, 0.2), "not decided", "holds at this scale"),  # ahead of ERM is not ahead of all
        ((0.1, 0.2, 0.2, 0.05), "not decided", "not decided"),  # shown to gain, but less than the others
    ],
)
def test_a_kept_comparison_is_evidence(tmp_path: Path, gains: tuple[float, ...], best: str, rare: str) -> None:
    comparison = kept_comparison(tmp_path, gains)
    found = {each.claim.id: each for each in check_claims(tmp_path / "nothing", comparisons=[comparison])}
    assert (found["cce-best"].measured, found["rare-classes"].measured) == (best, rare)
    assert found["cot-over-erm"].measured == "not run yet"
    assert found["cce-best"].findings[0].where == "cifar10 LT 50, resnet8, a comparison of 5 seeds"
    [few] = [each for each in comparison.differences if each.metric == "few"]
    assert f"cce {in_points(few.mean, few.low, few.high)} points over ERM" in found["rare-classes"].findings[0].detail
    again = check_claims(tmp_path / "nothing", comparisons=[comparison.model_copy(update={"baseline": "cce"})])
    assert all(each.measured == "not run yet" for each in again)


def test_a_kept_comparison_with_cot_is_evidence_about_cot(tmp_path: Path) -> None:
    comparison = kept_comparison(tmp_path, (0.1, 0.1, 0.1, 0.1), objective="cot")
    found = {each.claim.id: each.measured for each in check_claims(tmp_path / "nothing", comparisons=[comparison])}
    assert {name for name, state in found.items() if state != "not run yet"} == {"cot-over-erm"}
    assert found["cot-over-erm"] == "holds at this scale"


def test_the_study_of_five_seeds_is_evidence_as_it_is_kept() -> None:
    folder = Path(__file__).parents[2] / "docs" / "results" / "long-tailed"
    found = {each.claim.id: each for each in check_claims(Path("nothing"), comparisons=comparisons_in(folder))}
    assert found["cce-best"].measured == found["rare-classes"].measured == "does not hold at this scale"
    cifar10 = next(each for each in found["rare-classes"].findings if each.where.startswith("cifar10"))
    kept = json.loads((folder / "cifar10.json").read_text())
    few = {row["objective"]: row["few"] for row in kept["table"]}
    assert cifar10.detail.startswith(f"cce {100 * (few['cce'] - few['ce']):+.1f} [")


def test_gamma_claims_are_read_from_negative_gammas_only(tmp_path: Path) -> None:
    falling = {"gamma=-1": 0.9, "gamma=-5": 0.8, "gamma=-20": 0.6, "released": 0.99, "gamma=5": 0.99}
    fill(tmp_path, cells_of("table-gamma", imbalance="exp:10"), falling)
    found = checked(tmp_path)
    assert {found["gamma-best"].measured, found["gamma-falls"].measured} == {"holds at this scale"}


def test_a_rise_with_gamma_is_seen(tmp_path: Path) -> None:
    fill(tmp_path, cells_of("table-gamma", imbalance="exp:10"), {"gamma=-1": 0.7, "gamma=-5": 0.8, "gamma=-20": 0.6})
    found = checked(tmp_path)
    assert found["gamma-falls"].measured == "does not hold at this scale"
    assert found["gamma-best"].findings[0].state == "does not hold at this scale"
    assert found["gamma-best"].measured == "not decided"


def test_almost_all_allows_one_exception(tmp_path: Path) -> None:
    """As the text does: with two that hold, one against it leaves the claim standing, a second one does not."""
    good = {"gamma=-1": 0.9, "gamma=-5": 0.8, "gamma=-20": 0.6}
    bad = {**good, "gamma=-1": 0.7}
    for imbalance, values in (("exp:10", good), ("exp:100", bad), ("step:10", good)):
        fill(tmp_path, cells_of("table-gamma", imbalance=imbalance), values)
    assert checked(tmp_path)["gamma-best"].measured == "holds at this scale"
    fill(tmp_path, cells_of("table-gamma", imbalance="step:100"), bad)
    assert checked(tmp_path)["gamma-best"].measured == "does not hold at this scale"
    assert checked(tmp_path)["gamma-falls"].measured == "does not hold at this scale"


@pytest.mark.parametrize(
    ("states", "exceptions", "joined"),
    [
        ("", 1, "not run yet"),
        ("h", 1, "holds"),
        ("d", 1, "not decided"),
        ("hd", 1, "not decided"),
        ("hhd", 1, "holds"),
        ("hhd", 0, "does not hold"),
        ("hhc", 1, "holds"),
        ("hhc", 0, "not decided"),
        ("hhhcd", 1, "not decided"),
        ("hhhdd", 1, "does not hold"),
        ("cccccccccw", 0, "not decided"),
        ("sss", 0, "holds at this scale"),
        ("ssn", 0, "does not hold at this scale"),
        ("nnh", 0, "holds"),
    ],
)
def test_findings_are_joined(states: str, exceptions: int, joined: str) -> None:
    """A weak finding, w, is chance among ten; where runs are as in the paper, the others decide nothing."""
    words: dict[str, tuple[State, float, bool]] = {
        "h": ("holds", 1.0, False),
        "d": ("does not hold", 0.0001, False),
        "w": ("does not hold", 0.04, False),
        "c": ("not decided", 1.0, False),
        "s": ("holds at this scale", 1.0, True),
        "n": ("does not hold at this scale", 0.0001, True),
    }
    findings = [Finding("here", words[each][0], "", *words[each][1:]) for each in states]
    assert overall(findings, exceptions) == joined


def test_one_class_that_clearly_loses_is_enough(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for cell in cells_of("figure-confusion", source="cifar10"):
        for job in cell.jobs(tmp_path / "runs"):
            gain = 0.05 if cell.method == "CCE" else 0.0
            small = rng.normal(0, 0.001, 3)
            recalls = {"cat": 0.5 + gain + small[0], "dog": 0.6 + gain + small[1], "bird": 0.7 - gain + small[2]}
            finish(job, float(np.mean(list(recalls.values()))), recalls=recalls)
    found = checked(tmp_path)["every-class"]
    assert found.measured == "does not hold at this scale"
    assert "2 of 3 classes gain on average, 1 lose (1 beyond noise), most of all 'bird'" in found.findings[0].detail


@pytest.mark.parametrize(("least", "state"), [(0.01, "holds at this scale"), (0.0, "not decided")])
def test_every_class_has_to_gain(tmp_path: Path, least: float, state: str) -> None:
    rng = np.random.default_rng(0)
    for cell in cells_of("figure-confusion", source="cifar10"):
        for job in cell.jobs(tmp_path / "runs"):
            gain = cell.method == "CCE"
            recalls = {"cat": 0.5 + 0.05 * gain + float(rng.normal(0, 0.001)), "dog": 0.6 + least * gain}
            finish(job, float(np.mean(list(recalls.values()))), recalls=recalls)
    assert checked(tmp_path)["every-class"].measured == state


@pytest.mark.parametrize(("spread", "state"), [(2.0, "holds at this scale"), (0.5, "does not hold at this scale")])
def test_clusters_are_measured_on_features(tmp_path: Path, spread: float, state: str) -> None:
    """With CCE the centres are pulled apart, or together, by a factor."""
    rng = np.random.default_rng(0)
    names = [*CLUSTERS, "Bag"]
    targets = np.repeat(np.arange(len(names)), 40)
    for cell in cells_of("figure-tsne"):
        for job in cell.jobs(tmp_path / "runs"):
            centres = np.eye(len(names)) * 4 * (spread if cell.method == "CCE" else 1)
            features = centres[targets] + rng.standard_normal((len(targets), len(names)))
            finish(job, 0.5, recalls=dict.fromkeys(names, 0.5), features=features, targets=targets)
    assert checked(tmp_path)["clusters"].measured == state


def test_runs_without_features_leave_other_claims_and_seeds_as_they_are(tmp_path: Path) -> None:
    rng, names = np.random.default_rng(0), [*CLUSTERS, "Bag"]
    targets = np.repeat(np.arange(len(names)), 40)
    for cell in cells_of("figure-tsne"):
        for job in cell.jobs(tmp_path / "runs"):
            centres = np.eye(len(names)) * 4 * (2 if cell.method == "CCE" else 1)
            features = centres[targets] + rng.standard_normal((len(targets), len(names)))
            with_features = {"features": features, "targets": targets} if job.config.seed else {}
            score = 0.6 + 0.1 * (cell.method == "COT") + 0.001 * float(rng.standard_normal())
            finish(job, score, recalls=dict.fromkeys(names, 0.5), **with_features)  # type: ignore[arg-type]
    found = checked(tmp_path)
    assert found["clusters"].measured == "holds at this scale"
    assert "n=3" in found["clusters"].findings[0].detail, "seed 0 has no features"


def test_separation_ignores_the_scale_of_features() -> None:
    rng = np.random.default_rng(0)
    features, targets = rng.standard_normal((90, 5)), np.repeat([0, 1, 2], 30)
    assert separation(7 * features + 3, targets, [0, 1, 2]) == pytest.approx(separation(features, targets, [0, 1, 2]))


@pytest.mark.parametrize(("late", "state"), [("ERM", "holds at this scale"), ("CCE", "does not hold at this scale")])
def test_epochs_are_counted_to_an_error_that_both_reach(tmp_path: Path, late: str, state: str) -> None:
    for cell in cells_of("figure-convergence", source="road-marking"):
        for job in cell.jobs(tmp_path / "runs"):
            needs = 3 + (7 + job.config.seed % 3 if cell.method == late else 0)
            finish(job, 0.9, test_errors=[0.5] * needs + [0.1] * (20 - needs))
    found = checked(tmp_path)["fewer-epochs"]
    assert found.measured == state
    assert f"{7.75 if late == 'ERM' else -7.75:+.1f}" in found.findings[0].detail


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"settings": 3}',
        b'{"settings": [3]}',
        b'{"settings": [{"ratios": {"cot": {"median": 2}}}]}',
        b'{"settings": [{"ratios": {"cot": {"median": "x"}, "cot:forwards=1": {"median": 1}}}]}',
        b'{"settings": [{"ratios": {"cot": {"median": 1}, "cot:forwards=1": {"median": 1}}}]}',
        b"\xff",
    ],
)
def test_a_damaged_speed_study_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "speed").mkdir()
    (tmp_path / "speed" / "table.json").write_bytes(content)
    with pytest.raises(EvenhandError, match=r"^Cannot read .*; run evenhand reproduce speed again\.$"):
        checked(tmp_path)


def test_the_factors_are_read_from_the_speed_study(tmp_path: Path) -> None:
    def measured(one: float, two: float) -> tuple[str, str]:
        setting = {"network": "resnet8", "batch_size": 128, "precision": "float32", "threads": 1, "rounds": 9}
        ratios = {"cot:forwards=1": {"median": one}, "cot": {"median": two}}
        (tmp_path / "speed").mkdir(exist_ok=True)
        (tmp_path / "speed" / "table.json").write_text(json.dumps({"settings": [setting | {"ratios": ratios}]}))
        found = checked(tmp_path)
        return found["faster"].measured, found["twice"].measured

    assert measured(1.6, 2.0) == ("holds", "holds")
    assert measured(1.1, 1.2) == ("does not hold", "does not hold")
    assert measured(1.3, 1.7) == ("holds", "holds"), "1.7 is within a fifth of 2"
    assert measured(1.3, 1.58) == ("holds", "does not hold"), "1.7 is within a tenth of 1.58"
    assert measured(2.5, 3.0) == ("does not hold", "does not hold")


def test_runs_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    fill(tmp_path, cells_of("table-fashion", imbalance="exp:10"), {"ERM": 0.8})
    other = [
        cell for cell in plan(STUDIES["table-fashion"], StudyOptions(seeds=range(4), epochs=3)) if cell.method == "COT"
    ]
    fill(tmp_path, other, {"COT": 0.9})
    assert checked(tmp_path)["cot-over-erm"].measured == "not run yet"


def test_the_page_names_every_claim(tmp_path: Path) -> None:
    all_claims, found = check_claims(tmp_path), provenance([])
    page = claims_markdown(all_claims, "evenhand reproduce claims", found)
    assert page.count("## ") == len(CLAIMS)
    assert "Published: **contradicted**. Ours, on the data named below: **not run yet**." in page
    assert "corrected once more over all its findings" in page.replace("\n", " ")
    assert len(claims_rows(all_claims)) == len(CLAIMS)
    assert json.dumps(claims_json(all_claims, "", found), allow_nan=False)


def test_a_claim_about_cifar_uses_cifar(tmp_path: Path) -> None:
    fill(tmp_path, cells_of("table-fashion", imbalance="exp:100"), {"ERM": 0.8, "CCE": 0.7})
    assert checked(tmp_path)["every-class"].measured == "not run yet"


def test_networks_that_learned_nothing_are_left_out(tmp_path: Path) -> None:
    values = {"ERM": 0.80, "FL": 0.5, "COT": 0.82, "CCE": 0.9}
    fill(tmp_path, cells_of("table-fashion", imbalance="exp:100"), values, noise=0.0)
    assert checked(tmp_path)["cce-best"].measured == "not run yet", "FL is at the 50% of always answering one of two"


def test_pages_and_claims_say_the_same_about_the_same_runs(tmp_path: Path) -> None:
    """Whatever the noise: a pair is beyond it in one exactly where it is in the other, and states never disagree."""
    options, rng = StudyOptions(seeds=range(4)), np.random.default_rng(3)
    for noise in (0.002, 0.006, 0.02):
        out = tmp_path / f"{noise}"
        for imbalance in ("exp:10", "exp:100", "step:10", "step:100"):
            values = {method: 0.8 + 0.02 * float(rng.standard_normal()) for method in ("ERM", "FL", "COT", "CCE")}
            fill(out, cells_of("table-cifar10", imbalance=imbalance), values, noise)
        page = read_reproduction(STUDIES["table-cifar10"], options, out / "runs")
        findings = checked(out)["cce-best"].findings
        assert len(findings) == len(page.columns) == 4
        for column in page.columns:
            ordering = column.orderings["balanced_accuracy"]
            words = imbalance_words(column.cells[0].cell.config.data.imbalance)
            finding = next(each for each in findings if f" {words}," in each.where)
            for pair in (each for each in (*ordering.pairs, *ordering.ties) if each.better == "CCE"):
                [said] = [part for part in finding.detail.split("; ") if f" over {pair.worse} (" in part]
                assert said.startswith(f"{100 * pair.measured.mean:+.2f}")
                assert said.endswith(f"({noise_words(pair.holm_p)})")
            if finding.state == "does not hold at this scale":
                assert ordering.state == finding.state, "CCE is first in every published order here"


def test_records_give_the_same_findings_as_run_folders(tmp_path: Path) -> None:
    """All but the one about features, which records do not have."""
    rng, made = np.random.default_rng(0), []
    for study in ("table-cifar10", "figure-confusion", "figure-convergence"):
        cells = plan(STUDIES[study], StudyOptions("fair", range(3)))
        for cell in (each for each in cells if each.config.data.imbalance in ("exp:100", "none")):
            for job in cell.jobs(tmp_path / "folders" / "runs"):
                recalls = np.clip(rng.normal(0.7 + 0.1 * (cell.method == "CCE"), 0.01, 3), 0, 1)
                rows = [{"epoch": k + 1.0, "test_accuracy": 1 - 0.9**k, "seconds": 1.0} for k in range(3)]
                predictions = predict(recalls.tolist(), names=("a", "b", "c"), counts=(90, 30, 9), support=200)
                made.append(write_run(job.folder, job.config, predictions, rows=rows))
    for run in made:
        write_record(make_record(run), tmp_path / "records" / f"{run.name}.json")
    records = records_in(tmp_path / "records")
    from_records = check_claims(tmp_path / "nothing", records=records)
    assert from_records == check_claims(tmp_path / "folders") == check_claims(tmp_path / "folders", records=records)
    tested = {each.claim.id for each in from_records if each.findings}
    assert tested == {"cce-best", "cot-over-erm", "rare-classes", "every-class", "fewer-epochs", "resnet101"}


def test_networks_of_other_data_sets_are_not_the_papers(tmp_path: Path) -> None:
    """The paper trains ResNet-50 on Road Marking and SVHN, not on CIFAR-10."""
    for model, state in (("resnet50", "does not hold at this scale"), ("resnet34", "does not hold")):
        cells = plan(STUDIES["table-cifar10"], StudyOptions("paper", range(4), model=model, only=("exp:100",)))
        fill(tmp_path / model, cells, {"ERM": 0.8, "FL": 0.8, "COT": 0.8, "CCE": 0.7})
        assert checked(tmp_path / model)["cce-best"].measured == state


def test_a_network_of_the_paper_at_another_scale_shows_no_more_than_that_scale(tmp_path: Path) -> None:
    """SqueezeNet is one of the paper's, but not with 30 epochs."""
    for protocol, state in (("fair", "does not hold at this scale"), ("paper", "does not hold")):
        cells = plan(STUDIES["table-road"], StudyOptions(protocol, range(4), only=("squeezenet", "road-marking")))  # type: ignore[arg-type]
        values = {"ERM": 0.8, "FL": 0.8, "COT": 0.8, "CCE": 0.7}
        fill(tmp_path / protocol, [cell for cell in cells if cell.config.data.source == "road-marking"], values)
        assert checked(tmp_path / protocol)["cce-best"].measured == state
        options = StudyOptions(protocol, range(4), only=("squeezenet",))  # type: ignore[arg-type]
        column = read_reproduction(STUDIES["table-road"], options, tmp_path / protocol / "runs").columns[0]
        assert column.orderings["balanced_accuracy"].state == state
