"""`evenhand reproduce` as a person types it."""

import json
from pathlib import Path

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.paper.api import folder_name
from evenhand.paper.planning import StudyOptions
from evenhand.paper.studies import STUDIES
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
        (("nonsense-of-mine",), "evenhand reproduce alone lists all"),
        (("table-fashion", "--seeds", "0"), "at least 1 seed, got 0"),
        (("table-fashion", "--epochs", "0"), "at least 1 epoch, got 0"),
        (("table-fashion", "--protocol", "large"), "small or paper, got 'large'"),
        (("table-fashion", "--engine", "slurm"), "local or ray, got 'slurm'"),
        (("table-fashion", "--ray-address", "auto"), "needs --engine ray"),
        (("table-road",), "put dataset_annotations.txt and images/ into"),
        (("table-road", "--source", "no-such-set"), "neither a known data set"),
        (("table-fashion", "--only", "CCE,exp:50"), "No cell of this study is called 'exp:50'; there are "),
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
    assert out.count("_seed") == 60
    assert "60 runs, 0 of them done; 770,190 images to train on (all epochs) and 600,000 to test on" in out
    assert "images/s with resnet8 at 28x28, batch 64" in out
    assert "on this machine with 2 runs at a time" in out
    assert "2 epochs (protocol small: 10, the paper: 200)" in out
    assert out.splitlines()[-1].startswith("before that, data are needed that are not here: ")
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
    assert "every second leftturn is shown as a rightturn" in out
    seconds = 0.01 * (5 * 1059 * 100 + 4 * 265 * 100 / 3)
    assert f"about {seconds / 3600:.1f} h on this machine with 1 runs at a time" in out


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
    ],
)
def test_a_cut_study_has_a_folder_of_its_own(options: StudyOptions, name: str) -> None:
    assert folder_name(STUDIES["table-gamma"], options) == name


@pytest.mark.parametrize("study", ["table-road-sota", "figure-convergence"])
def test_what_failed_is_told_before_what_cannot_be_made(run, monkeypatch, study: str) -> None:  # type: ignore[no-untyped-def]
    def refuse(*_: object, **__: object) -> None:
        raise EvenhandError("It cannot be made.")

    def fail(grid: list[Job], **_: object) -> list[Failure]:
        return [Failure(grid[0], "It burst.")]

    monkeypatch.setattr("evenhand.cli.grid_progress.run_grid", fail)
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
    assert len(json.loads(Path("here/claims/table.json").read_text())["claims"]) == 9


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
