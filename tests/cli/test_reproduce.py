"""`evenhand reproduce` as a person types it."""

import json
import re
import shutil
from pathlib import Path

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.experiments.grid.progress import GridCallback
from evenhand.paper.api import folder_name
from evenhand.paper.planning import StudyOptions, jobs_of, plan
from evenhand.paper.studies import STUDIES
from evenhand.runs.record import make_record, write_record
from tests.fabricated import predict, write_run
from tests.trained import assert_one_sentence, evenhand


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results go to runs/ of the current folder, and no data set lies around."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENHAND_DATA", str(tmp_path / "data"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    return lambda *args: evenhand(capsys, monkeypatch, "reproduce", *args)


def test_alone_it_lists_everything_with_what_it_needs(run) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run()
    assert code == 0
    for study in STUDIES.values():
        assert any(line.startswith(study.id) and f"needs {study.needs}" in line for line in out.splitlines())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("table-cifar",), "did you mean table-cifar10?"),
        (("nonsense-of-mine",), "evenhand reproduce lists all"),
        (("table-fashion", "--seeds", "0"), "at least 1 seed, got 0"),
        (("table-fashion", "--epochs", "0"), "at least 1 epoch, got 0"),
        (("table-fashion", "--protocol", "large"), "one of small, fair, paper, got 'large'"),
        (("table-fashion", "--engine", "pbs"), "local, ray or slurm, got 'pbs'"),
        (("table-fashion", "--ray-address", "auto"), "needs --engine ray"),
        (("table-road",), "put dataset_annotations.txt and images/ into"),
        (("table-road", "--source", "no-such-set"), "neither a known data set"),
        (("table-fashion", "--only", "CCE,exp:50"), "This study has no cell 'exp:50'; choose from "),
        (("table-fashion", "--seeds", "few"), "a number such as 3 or a range such as 100-104, got 'few'"),
        (("table-fashion", "--model", "resnet9"), "resnet9"),
        (("table-fashion", "--records", "nowhere"), "There is no folder of records nowhere"),
        (("figure-tsne", "--records", "."), "figure-tsne is drawn from run folders"),
        (("table-fashion", "--no-train", "--runs-only"), "leave nothing to do"),
    ],
)
def test_what_is_wrong_is_one_sentence(run, args: tuple[str, ...], words: str) -> None:  # type: ignore[no-untyped-def]
    assert_one_sentence(run(*args), words)


def test_a_figure_of_known_counts_needs_no_data(run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = run("figure-distributions", "--out", tmp_path)
    assert code == 0
    assert err.count("evenhand: wrote") == 3
    assert (tmp_path / "figure-distributions-small" / "figure-distributions.svg").is_file()


def test_a_dry_run_says_what_and_how_long_and_touches_nothing(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run("table-fashion", "--dry-run", "--epochs", "2", "--jobs", "2")
    assert code == 0
    rows = [line for line in out.splitlines() if line.startswith("  fashion-mnist_")]
    assert len(rows) == 20
    assert all(re.search(r": 2 epochs x [\d,]+ images, 3 seeds$", row) for row in rows)
    assert "60 runs, 0 of them done; 770,190 images to train on (all epochs) and 600,000 to test on" in out
    assert re.search(r"^speed of resnet8 at 28x28, batch 64: [1-9][\d,.]* images/s$", out, re.MULTILINE)
    assert re.search(r"^estimated time: \d.* with 2 runs at a time$", out, re.MULTILINE)
    assert "Focal loss: gamma 2 with a factor alpha = 0.25" in out, "what the paper leaves open"
    assert "rare classes have too few images" in out
    assert "2 epochs (protocol small: 10, the paper: 200)" in out
    assert out.splitlines()[-1].startswith("data are missing: ")
    assert not list(tmp_path.iterdir())


def test_some_cells_can_be_taken(run) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run("table-fashion", "--status", "--seeds", "1", "--only", "CCE,erm, exp:100,step:100")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines() if "missing" in line and "_seed" in line]
    kept = {(objective, imbalance) for objective in ("ce", "cce") for imbalance in ("exp-100", "step-100")}
    assert {(name.split("_")[3], name.split("_")[1]) for name in names} == kept
    assert len(names) == 4


def test_the_paper_protocol_says_what_mirroring_does(run, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """With a speed that is known, as a ResNet-101 takes long to measure: 1,059 images, 100 epochs, 4 methods."""
    monkeypatch.setattr("evenhand.experiments.grid.runtime_estimate.seconds_per_image", lambda *_: 0.01)
    code, out, _ = run("figure-convergence", "--dry-run", "--protocol", "paper", "--seeds", "1", "--jobs", "1")
    assert code == 0
    assert "a mirrored leftturn looks like a rightturn" in out
    seconds = 0.01 * (5 * 1059 * 100 + 4 * 265 * 100 / 3)
    assert f"estimated time: {seconds / 3600:.1f} h with 1 run at a time" in out


def test_status_shows_what_is_missing(run) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run("table-road-sota", "--status", "--seeds", "2")
    assert code == 0
    assert out.count("missing") == 5
    assert "4 runs: 4 missing" in out


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (StudyOptions(), "table-gamma-small"),
        (StudyOptions(protocol="paper", epochs=3), "table-gamma-paper-3epochs"),
        (StudyOptions(source="fashion-mnist"), "table-gamma-small-fashion-mnist"),
        (StudyOptions(source="road-marking:split=runs", epochs=1), "table-gamma-small-1epochs-road-marking-splitruns"),
        (StudyOptions(source="/data/my photos/"), "table-gamma-small-my-photos"),
        (StudyOptions(only=("CCE", "exp:100")), "table-gamma-small-only-CCE-exp-100"),
        (StudyOptions("fair", seeds=range(5)), "table-gamma-fair"),
        (StudyOptions("fair", seeds=range(100, 105)), "table-gamma-fair-seeds100-104"),
        (StudyOptions("paper", model="resnet32", epochs=9), "table-gamma-paper-resnet32-9epochs"),
    ],
)
def test_a_cut_study_has_a_folder_of_its_own(options: StudyOptions, name: str) -> None:
    assert folder_name(STUDIES["table-gamma"], options) == name


@pytest.mark.parametrize("study", ["table-road-sota", "figure-convergence"])
def test_a_failed_run_is_reported_before_what_it_causes(run, monkeypatch, study: str) -> None:  # type: ignore[no-untyped-def]
    def refuse(*_: object, **__: object) -> None:
        raise EvenhandError("It cannot be made.")

    def fail(grid: list[Job], *_: object, callback: GridCallback, **__: object) -> list[Failure]:
        callback.begin(grid)
        callback.failed(Failure(grid[0], "It burst."))
        return [Failure(grid[0], "It burst.")]

    monkeypatch.setattr("evenhand.paper.api.run_on_engine", fail)
    monkeypatch.setattr("evenhand.paper.api.read_reproduction", refuse)
    monkeypatch.setattr("evenhand.paper.api.draw_paper_figure", refuse)
    code, _, err = run(study, "--source", "digits", "--seeds", "1", "--quiet")
    assert code == 2
    assert err.index("failed: It burst.") < err.index("It cannot be made.")


def test_claims_are_written_and_shown(run) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run("claims", "--out", "here")
    assert code == 0
    assert "not at Tiny ImageNet Step 100" in out
    assert "wrote" in err
    assert len(json.loads(Path("here/claims/table.json").read_text())["claims"]) == 12


def test_a_study_runs_and_a_second_call_reuses_it(run) -> None:  # type: ignore[no-untyped-def]
    """One run: EfficientNet b0 with CCE, small, on digits."""
    args = ("table-road-sota", "--source", "digits", "--epochs", "1", "--seeds", "1", "--jobs", "1", "--out", "here")
    code, out, err = run(*args)
    assert code == 0, err
    assert "digits, original, resnet8 (in the paper EfficientNet b0)" in out
    assert "run 1/1" in err
    [summary] = Path("here/runs").glob("*/summary.json")
    before = summary.stat().st_mtime_ns
    content = json.loads(Path("here/table-road-sota-small-1epochs-digits/table.json").read_text())
    assert content["runs"] == {"finished": 1, "wanted": 1, "failed": []}
    assert content["command"] == "evenhand reproduce " + " ".join(args)
    code, out, err = run(*args, "--quiet")
    assert (code, out, err) == (0, "", "")
    assert summary.stat().st_mtime_ns == before


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Records of all runs of the long-tailed column with ratio 100, but for CCE with seed 1."""
    options = StudyOptions("fair", range(2), only=("exp:100",))
    for job in jobs_of(plan(STUDIES["table-fashion"], options), tmp_path / "gone"):
        if job.config.objective == "cce" and job.config.seed == 1:
            continue
        predictions = predict([0.9, 0.5 + 0.1 * job.config.seed], names=("a", "b"), counts=(9, 8))
        run = write_run(job.folder, job.config, predictions)
        write_record(make_record(run), tmp_path / "records" / "block" / f"{run.name}.json")
    shutil.rmtree(tmp_path / "gone")
    return tmp_path / "records"


FAIR = ("table-fashion", "--protocol", "fair", "--seeds", "2", "--only", "exp:100", "--records", "records")


@pytest.mark.usefixtures("records")
def test_with_all_records_nothing_is_trained_and_no_data_are_needed(run, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("evenhand.paper.api.run_on_engine", lambda *_, **__: pytest.fail("it trained"))
    code, out, err = run(*FAIR[:-4], "--only", "exp:100,ERM,FL,COT", "--records", "records")
    assert code == 0, err
    assert "ERM" in out
    assert "Not run" not in out
    [page] = Path("runs/reproduce").glob("*/table.md")
    assert "6 of 6 runs" in page.read_text()


@pytest.mark.usefixtures("records")
def test_without_training_what_is_missing_is_listed(run) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run(*FAIR, "--no-train", "--out", "here")
    assert code == 0, err
    assert "Not run: fashion-mnist, LT 100, resnet8 (in the paper ResNet-34): CCE (seed 1)" in out
    [page] = Path("here").glob("*/table.md")
    text = page.read_text()
    assert "7 of 8 runs" in text
    assert "**Not run**\n\n- fashion-mnist, LT 100, resnet8 (in the paper ResNet-34): CCE (seed 1)" in text
    assert f"evenhand reproduce {' '.join(FAIR)} --no-train --out here" in text
    assert not Path("here/runs").exists()


@pytest.mark.usefixtures("records")
def test_only_what_has_no_record_is_trained(run, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    trained: list[Job] = []
    monkeypatch.setattr("evenhand.paper.api.run_on_engine", lambda grid, *_, **__: trained.extend(grid) or [])
    monkeypatch.setattr("evenhand.paper.api.load_source", lambda *_, **__: None)
    code, _, err = run(*FAIR, "--runs-only")
    assert code == 0, err
    assert [(job.config.objective, job.config.seed) for job in trained] == [("cce", 1)]
    code, out, _ = run(*FAIR, "--status")
    assert "1 runs: 1 missing" in out
    monkeypatch.setattr("evenhand.paper._dry_run.estimate", _no_memory)
    code, out, _ = run(*FAIR, "--dry-run")
    assert code == 0
    assert "8 runs, 7 of them done; 446,580 images to train on (all epochs) and 10,000 to test on" in out
    assert "the speed could not be measured here: can't allocate memory" in out


def _no_memory(*_: object, **__: object) -> None:
    raise RuntimeError("can't allocate memory")


@pytest.mark.usefixtures("records")
def test_claims_read_records(run) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run("claims", "--records", "records", "--out", "here")
    assert code == 0
    assert "ours, fashion-mnist LT 100, resnet8, 30 epochs: " in out
    assert "float32, threads per run: 1" in Path("here/claims/table.md").read_text()


def test_claims_read_kept_comparisons(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    kept = Path(__file__).parents[2] / "docs" / "results" / "long-tailed"
    code, out, _ = run("claims", "--comparisons", str(kept), "--out", "here")
    assert code == 0
    assert "ours, cifar10 LT 100, resnet8, a comparison of 5 seeds: does not hold at this scale; cce -3.3" in out
    code, _, err = run("table-fashion", "--comparisons", str(kept), "--no-train")
    assert code == 2
    assert "--comparisons is for claims" in err
    code, _, err = run("claims", "--comparisons", str(tmp_path / "none"))
    assert code == 2
    assert "There is no comparison in" in err


@pytest.mark.parametrize(("load", "busy"), [(0.0, False), (0.1, False), (1.5, True), (40.0, True)])
def test_a_busy_machine_is_reported(run, monkeypatch, load: float, busy: bool) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("evenhand.paper._dry_run.count_processors", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    monkeypatch.setattr("evenhand.experiments.grid.runtime_estimate.seconds_per_image", lambda *_: 3.0)
    monkeypatch.setattr("evenhand.experiments.grid.runtime_estimate.run_overhead", lambda: 1.0)
    code, out, _ = run("table-fashion", "--dry-run", "--seeds", "1", "--only", "CCE")
    assert code == 0
    assert ("warning: The machine is busy" in out) == busy
    assert "speed of resnet8 at 28x28, batch 64: 0.33 images/s" in out
