"""Studies as runs: under every protocol a list of valid configs; nothing is trained."""

from collections import Counter
from pathlib import Path

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.data.batches import mirror_twins
from evenhand.data.benchmarks import BENCHMARKS
from evenhand.data.road_marking import COUNTS
from evenhand.data.sources import load_source
from evenhand.data.splits import make_splits
from evenhand.data.standard import SVHN
from evenhand.experiments.grid.runtime_estimate import STANDARDS, estimate, size_of
from evenhand.models.build import NAMES
from evenhand.objectives import build_objective
from evenhand.paper._deviations import MIRRORED, deviations
from evenhand.paper._open_choices import open_choices
from evenhand.paper._protocols import PROTOCOLS
from evenhand.paper._published import published_tables
from evenhand.paper.planning import StudyOptions, jobs_of, parse_seeds, plan
from evenhand.paper.studies import METHODS, PLAIN_FOCAL, STUDIES, Study, find_study
from evenhand.runs.config import make_config, validate
from evenhand.runs.config_sections import DataConfig
from tests.real_data import DATA, needs
from tests.test_study_tool import load_study_tool

with_runs = [study for study in STUDIES.values() if study.panels]


def options(protocol: str, **other: object) -> StudyOptions:
    return StudyOptions(protocol=protocol, **other)  # type: ignore[arg-type]


def test_everything_the_paper_shows_is_there() -> None:
    tables = ("cifar10", "cifar100", "fashion", "tiny", "road", "road-sota", "svhn", "gamma")
    figures = ("overview", "distributions", "confusion", "tsne", "convergence", "errors")
    wanted = {*(f"table-{name}" for name in tables), *(f"figure-{name}" for name in figures), "speed", "claims"}
    assert set(STUDIES) == wanted
    assert {name for name in STUDIES if name.startswith("table-")} == set(published_tables())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("study", with_runs, ids=lambda study: study.id)
def test_every_study_is_a_list_of_valid_runs(study: Study, protocol: str) -> None:
    cells = plan(study, options(protocol, released=True))
    jobs = jobs_of(cells, Path("runs"))
    assert len(jobs) == 3 * len(cells) == len({job.folder for job in jobs})
    for job in jobs:
        assert validate(job.config.model_dump()) == job.config
        build_objective(job.config.objective, counts=[5] * 10)
        assert job.config.model.name in NAMES
        assert job.config.data.source.split(":")[0] in BENCHMARKS
        assert job.config.select == "last"
        assert size_of(job.config.data).train > 0
    assert "cce:gamma=released" in {job.config.objective for job in jobs}


@pytest.mark.parametrize("name", published_tables())
def test_the_paper_protocol_trains_every_cell_that_is_printed(name: str) -> None:
    cells = plan(STUDIES[name], options("paper"))
    trained = Counter((cell.row, cell.config.data.imbalance, cell.method) for cell in cells)
    printed = Counter(
        (column.row, column.imbalance, method)
        for column in published_tables()[name].columns
        for method in column.values
        if method != "reported"
    )
    extra = Counter({key: count for key, count in trained.items() if key[2] == PLAIN_FOCAL})
    assert trained - extra == printed
    assert set(extra) == {(row, imbalance, PLAIN_FOCAL) for row, imbalance, method in printed if method == "FL"}
    assert all(cell.config.model.name == cell.row for cell in cells)
    assert all((cell.published is None) == (cell.method == PLAIN_FOCAL) for cell in cells)


def test_the_paper_protocol_is_the_recipe_to_the_letter() -> None:
    config = plan(STUDIES["table-cifar10"], options("paper"))[0].config
    recipe = make_config("paper", data__source="cifar10", data__imbalance="exp:10", objective="ce")
    assert config == recipe
    assert (config.epochs, config.batch_size, config.optimizer.lr, config.augmentation.flip) == (200, 128, 0.1, True)
    assert config.schedule.milestones == (60, 120, 160)
    road = plan(STUDIES["table-road"], options("paper"))[0].config
    assert (road.epochs, road.optimizer.lr, road.schedule.milestones) == (100, 0.01, (40, 80))
    assert METHODS["FL"] == "focal:gamma=2:alpha=0.25"


def test_the_small_protocol_keeps_the_shape_of_the_data() -> None:
    for cell in plan(STUDIES["table-cifar100"], options("small")):
        assert (cell.config.data.fraction, cell.config.model.name, cell.config.epochs) == (0.25, "resnet8", 10)
    counts = size_of(plan(STUDIES["table-fashion"], options("small"))[5].config.data).counts
    assert (counts[0], counts[-1]) == (1500, 15)


def test_small_road_marking_keeps_all_images_and_has_both_splits() -> None:
    configs = [cell.config for cell in plan(STUDIES["table-road"], options("small"))]
    assert {config.data.source for config in configs} == {"road-marking", "road-marking:split=runs"}
    assert {config.model.name for config in configs} == {"resnet8"}
    assert {(config.data.fraction, config.data.image_size, config.epochs) for config in configs} == {(1.0, 32, 20)}


def names(study: str, **other: object) -> set[str]:
    return {job.folder.name for job in jobs_of(plan(STUDIES[study], StudyOptions(**other)), Path("runs"))}  # type: ignore[arg-type]


def test_protocol_fair_has_the_runs_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every planned run of the block is one of a table, and no table has another run of these data."""
    tool = load_study_tool(monkeypatch)
    for block, seeds, tables in (
        ("fair", range(3), ("cifar10", "cifar100", "fashion", "svhn")),
        ("fair-tiny-imagenet", range(2), ("tiny",)),
    ):
        planned = {job.folder.name for _, job in tool.planned(Path("out"), only=[block])}
        assert len(planned) == (72 if block == "fair" else 8)
        tables_of = {name for table in tables for name in names(f"table-{table}", protocol="fair", seeds=seeds)}
        assert planned <= tables_of
        conditions = {name.rpartition("_resnet8_")[0] for name in planned}
        same = {name for name in tables_of if name.rpartition("_resnet8_")[0] in conditions and "_resnet8_" in name}
        assert planned == same


def test_a_model_under_protocol_paper_has_the_runs_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load_study_tool(monkeypatch)
    planned = {job.folder.name for _, job in tool.planned(Path("out"), only=["paper-schedule"])}
    only = ("ERM", "FL", "COT", "CCE", "released", "exp:100")
    other: dict[str, object] = {"protocol": "paper", "model": "resnet8", "seeds": range(100, 105), "only": only}
    assert names("table-cifar10", released=True, **other) == planned
    gammas = {job.folder.name for _, job in tool.planned(Path("out"), only=["gamma"])}
    printed = names("table-gamma", protocol="paper", model="resnet8", seeds=range(100, 103), only=("exp:100",))
    assert {name for name in gammas if "_cce-gamma1_" not in name} <= printed, "the paper prints no gamma = 1"
    study = STUDIES["table-cifar10"]
    assert deviations(study, options("paper", model="resnet8")) == ["The network is resnet8 instead of ResNet-34."]
    assert deviations(study, options("paper")) == []


def test_a_model_of_the_paper_keeps_its_own_published_values() -> None:
    [erm] = [cell for cell in plan(STUDIES["table-road"], options("paper", model="squeezenet")) if cell.method == "ERM"]
    assert erm.published == pytest.approx(published_tables()["table-road"].value("squeezenet", "none", "ERM") / 100)  # type: ignore[operator]


def test_protocol_fair_takes_all_images_the_last_epoch_and_the_methods_of_the_paper() -> None:
    for study in with_runs:
        for cell in plan(study, options("fair")):
            config = cell.config
            assert (config.data.fraction, config.epochs, config.select) == (1.0, 30, "last")
            assert cell.method not in (PLAIN_FOCAL, "released")
            lr = {"resnet8": 0.1, "squeezenet": 0.01}[config.model.name]
            assert config.optimizer.lr == lr
    for name, pairs in (
        ("road", {("resnet50", "resnet8"), ("squeezenet", "squeezenet")}),
        ("svhn", {("resnet50", "resnet8"), ("resnet101", "squeezenet")}),
        ("cifar10", {("resnet34", "resnet8")}),
    ):
        cells = plan(STUDIES[f"table-{name}"], options("fair"))
        assert {(cell.row, cell.config.model.name) for cell in cells} == pairs
    printed = {method for column in published_tables()["table-gamma"].columns for method in column.values}
    assert {cell.method for cell in plan(STUDIES["table-gamma"], options("fair"))} == printed


def test_protocol_small_decides_nothing_about_rare_classes() -> None:
    for study in with_runs:
        assert "rare classes" in deviations(study, options("small"))[0]
        assert not any("decide" in each for each in deviations(study, options("fair")))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("study", with_runs, ids=lambda study: study.id)
def test_open_choices_and_deviations_are_those_of_the_configs(study: Study, protocol: str) -> None:
    cells = plan(study, options(protocol))
    choices, config = "\n".join(open_choices(cells)), cells[0].config
    assert f"of the first {config.schedule.warmup_epochs:g} epochs" in choices
    assert ("4 pixels of padding" in choices) == (config.augmentation.padding == 4)
    assert (f"{config.data.image_size or 64}x" in choices) == (config.data.source == "road-marking")
    assert ("Focal loss" in choices) == any(cell.method == "FL" for cell in cells)
    sentences = "\n".join(deviations(study, options(protocol)))
    assert ("Training lasts" in sentences) == (protocol != "paper")
    assert (f"batch {config.batch_size}" in sentences) == (protocol != "paper")
    assert (" instead of " in sentences) == any(cell.config.model.name != cell.row for cell in cells)


@pytest.mark.parametrize("text", ["x", "", "-1", "3-", "1,2", "1-2-3", "9" * 50])
def test_seeds_that_are_no_number_or_range_are_refused(text: str) -> None:
    with pytest.raises(EvenhandError, match="a number such as 3 or a range such as 100-104"):
        parse_seeds(text)


@pytest.mark.parametrize("protocol", ["small", "paper"])
def test_gammas_have_both_signs_and_share_runs_with_other_tables(protocol: str) -> None:
    cells = plan(STUDIES["table-gamma"], options(protocol, released=True))
    objectives = {cell.config.objective for cell in cells}
    assert {"cce", "cce:gamma=released", "cce:gamma=-20"} <= objectives
    assert len([each for each in objectives if each.startswith("cce")]) >= 5
    gammas, table = ({job.folder for job in jobs_of(plan(STUDIES[name], options(protocol)), Path("runs"))} for name in
                     ("table-gamma", "table-cifar10"))  # fmt: skip
    assert len(gammas & table) >= 4 * 3


@pytest.mark.parametrize(("figure", "table"), [("figure-tsne", "table-fashion"), ("figure-convergence", "table-road")])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_figures_are_drawn_from_runs_of_the_tables(figure: str, table: str, protocol: str) -> None:
    runs, others = (
        {job.folder for job in jobs_of(plan(STUDIES[name], options(protocol)), Path("runs"))}
        for name in (figure, table)
    )
    assert runs <= others


def test_convergence_has_its_test_errors() -> None:
    cells = plan(STUDIES["figure-convergence"], options("paper"))
    assert all(cell.config.track_test and cell.config.model.name == "resnet101" for cell in cells)


def test_fewer_epochs_keep_the_shape_of_the_schedule_and_are_said() -> None:
    study = STUDIES["table-cifar10"]
    config = plan(study, options("paper", epochs=50))[0].config
    assert (config.epochs, config.schedule.milestones, config.schedule.warmup_epochs) == (50, (15, 30, 40), 1.25)
    assert any("50 epochs (the paper: 200)" in each for each in deviations(study, options("paper", epochs=50)))
    assert not any("epochs" in each for each in deviations(study, options("paper")))
    assert len(plan(study, options("small", epochs=2))) == len(plan(study, options("small")))


def test_mirroring_is_explained_wherever_a_data_set_should_not_be_mirrored() -> None:
    assert not SVHN.info.flip
    assert mirror_twins(list(COUNTS)[:9])
    unfit = {name for name, each in STANDARDS.items() if not each.info.flip} | {"road-marking"}
    assert set(MIRRORED) == unfit
    for name in ("table-road", "table-svhn"):
        for protocol, words in (("paper", "so does this study"), ("fair", "this study does not")):
            [sentence] = [each for each in deviations(STUDIES[name], options(protocol)) if "mirrors" in each]
            flips = {cell.config.augmentation.flip for cell in plan(STUDIES[name], options(protocol))}
            assert words in sentence
            assert flips == ({True} if protocol == "paper" else {None}), "None: as the data set allows"
    assert not any("mirrors" in each for each in deviations(STUDIES["table-cifar10"], options("paper")))


def test_another_source_takes_the_place_of_the_studys_own() -> None:
    study = STUDIES["table-gamma"]
    cells = plan(study, options("small", source="fashion-mnist"))
    assert {cell.config.data.source for cell in cells} == {"fashion-mnist"}
    assert not any(cell.comparable for cell in cells)
    assert any(
        "only the order of methods" in each for each in deviations(study, options("small", source="fashion-mnist"))
    )
    runs = plan(STUDIES["table-road"], options("paper", source="road-marking:split=runs"))
    assert all(cell.comparable for cell in runs)


def test_known_sizes_are_those_of_the_notes() -> None:
    golden = {"cifar10": 12406, "cifar100": 10847, "fashion-mnist": 14886, "tiny-imagenet": 21549}
    assert {name: size_of(DataConfig(source=name, imbalance="exp:100")).train for name in golden} == golden
    assert size_of(DataConfig(source="tiny-imagenet")).image_size == 56
    digits = size_of(DataConfig(source="digits"))
    assert (digits.image_size, digits.train + digits.test) == (8, 1797)


@needs("road-marking")
def test_the_known_size_of_road_marking_is_that_of_its_split() -> None:
    config = plan(STUDIES["table-road"], options("small"))[0].config
    splits, size = make_splits(load_source("road-marking", data_root=DATA), val_fraction=0), size_of(config.data)
    assert (size.counts, size.test) == (tuple(splits.counts.tolist()), len(splits.test))


def test_an_estimate_counts_images_and_takes_two_forwards_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.experiments.grid.runtime_estimate.MOST_SECONDS", 0.2)
    configs = [make_config(data__source="digits", objective=name, epochs=2, select="last") for name in ("ce", "cot")]
    one, both = estimate(configs[:1]), estimate(configs)
    assert (one.trained, one.tested) == (2 * 1438, 359)
    assert both.trained == 2 * one.trained
    assert one.seconds > 0
    assert list(one.speeds) == ["resnet8 at 8x8, batch 64"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"seeds": ()}, "at least 1 seed, got 0"),
        ({"seeds": 3}, r"such as range\(3\), got 3"),
        ({"model": "resnet9"}, "resnet9"),
        ({"epochs": 0}, "1 epoch, got 0"),
        ({"protocol": "big"}, "got 'big'"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(EvenhandError, match=words):
        StudyOptions(**wrong)  # type: ignore[arg-type]


def test_a_wrong_id_names_the_nearest() -> None:
    with pytest.raises(EvenhandError, match="did you mean table-fashion"):
        find_study("table-fashoin")
