"""`evenhand compare` as a person types it."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.experiments.grid.progress import GridCallback
from evenhand.runs.comparison import Comparison
from tests.trained import assert_one_sentence, draw, evenhand

Run = Callable[..., tuple[int, str, str]]
QUICK = ("digits", "--imbalance", "exp:20", "--epochs", "1", "--set", "compute.precision=float32")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return lambda *args: evenhand(capsys, monkeypatch, "compare", *args)


def test_it_compares_and_keeps_what_is_done(run: Run, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    quick = (*QUICK, "--objectives", "ce,cce", "--seeds", "2", "--out", "both")
    code, out, err = run(*quick)
    assert code == 0, err
    assert "Verdict" in out
    assert "cce" in out
    assert re.search(r"^use (ce|cce): evenhand predict both IMAGES$", out, re.MULTILINE)
    folder = tmp_path / "both"
    content = json.loads((folder / "comparison.json").read_text("utf-8"))
    assert (content["objectives"], content["seeds"], content["baseline"]) == (["ce", "cce"], [0, 1], "ce")
    report = (folder / "report.html").read_text("utf-8")
    assert report.count("<svg") > 1
    with (folder / "comparison.csv").open(newline="") as file:
        assert [row["objective"] for row in csv.DictReader(file)] == ["ce", "cce"]
    weights = {path: path.stat().st_mtime_ns for path in folder.glob("*/weights/*")}
    assert len(weights) == 8

    request.getfixturevalue("undrawn")
    # One objective more: the four runs that are there stay as they are.
    code, out, err = run(*quick[:-5], "ce,cce,focal", *quick[-4:], "--json")
    assert code == 0, err
    assert json.loads(out)["objectives"] == ["ce", "cce", "focal"]
    # It is exploratory, so the first verdict and its report stay, and are what predict uses.
    assert json.loads((folder / "comparison.json").read_text("utf-8")) == content
    assert (folder / "report.html").read_text("utf-8") == report
    assert json.loads((folder / "exploratory.json").read_text("utf-8")) == json.loads(out)
    for name in ("exploratory.csv", "exploratory_per_class.csv", "exploratory.md", "exploratory.html"):
        assert (folder / name).is_file(), name
    assert Comparison.read(folder / "exploratory.json").exploratory
    page = (folder / "exploratory.html").read_text("utf-8")
    assert "exploratory.json" in page, "the commands of its page use its own model"
    assert "exploratory.json" not in (folder / "report.html").read_text("utf-8")
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    assert len(list(folder.glob("*/summary.json"))) == 6
    _, out, err = run(*quick[:-5], "ce,cce,focal", *quick[-4:])
    assert "written as exploratory.json; the comparison of ce, cce with 2 seeds in both and its report are kept" in err
    assert re.search(r"^use \S+: evenhand predict both/exploratory.json IMAGES$", out, re.MULTILINE)

    code, out, _ = run(*quick, "--status")
    assert code == 0
    assert "4 runs: 4 done" in out
    assert re.search(r"2 seeds +5\.00% +cce against ce +", out)
    assert re.search(r"2 seeds +exploratory +cce, focal against ce +no claim", out)
    assert "5.00% of the alpha of 5% spent, 0.00% left for all others" in out


@pytest.mark.usefixtures("undrawn")
def test_settings_are_tuned_only_when_asked(run: Run) -> None:
    code, out, err = run(*QUICK, "--objectives", "ce,cce:gamma=-1,cce:gamma=-3", "--seeds", "1", "--out", "listed")
    assert code == 0, err
    assert "not picked" not in out
    assert "Which objective to try: `evenhand guide objectives`" in out
    tuned = ("--objectives", "ce,ce+sampling", "--tune", "--seeds", "1", "--out", "tuned")
    code, out, err = run(*QUICK, *tuned)
    assert code == 0, err
    assert "tuning on validation: 4 settings x 1 seed (3 of ce+sampling)" in err
    assert out.count("not picked") == 2
    assert "picked among 3 settings of ce+sampling" in " ".join(out.split())
    code, out, err = run(*QUICK, *tuned, "--status")
    assert code == 0, err
    assert "4 runs: 4 done" in out


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_fails_does_not_stop_the_others(run: Run, tmp_path: Path) -> None:
    code, out, err = run(*QUICK, "--objectives", "ce,cce,cce:gamma=1e30", "--seeds", "1", "--out", "some")
    assert code == 1
    assert err.rstrip().endswith("1 run failed; the same command tries again")
    assert "Verdict" in out
    content = json.loads((tmp_path / "some" / "comparison.json").read_text("utf-8"))
    assert content["objectives"] == ["ce", "cce"]
    assert content["notes"][0].startswith("cce:gamma=1e+30 with seed 0 failed and is left out: ")
    assert content["notes"][0] in (tmp_path / "some" / "comparison.md").read_text("utf-8")


def test_failed_runs_are_printed_before_why_nothing_can_be_compared(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise EvenhandError("These cannot be compared.")

    def fail(jobs: list[Job], *_: object, callback: GridCallback, **__: object) -> list[Failure]:
        callback.failed(Failure(jobs[0], "It burst."))
        return [Failure(jobs[0], "It burst.")]

    monkeypatch.setattr("evenhand.experiments.api.run_on_engine", fail)
    monkeypatch.setattr("evenhand.experiments.comparison._sequential.compare_runs", refuse)
    code, _, err = run(*QUICK, "--objectives", "ce,cce", "--seeds", "1", "--out", "none")
    assert code == 2
    assert err.index("failed: It burst.") < err.index("These cannot be compared.")


@pytest.mark.usefixtures("undrawn")
def test_a_changed_source_is_refused_before_anything_runs(run: Run, tmp_path: Path) -> None:
    photos = draw(tmp_path / "photos", {"cat": 12, "dog": 8})
    small = ("--image-size", "16", "--epochs", "1", "--set", "compute.precision=float32", "--seeds", "1")
    code, _, err = run("photos", *small, "--objectives", "ce,cce", "--jobs", "1", "--out", "here", "--quiet")
    assert code == 0, err
    (photos / "dog" / "7.png").unlink()
    result = run("photos", *small, "--objectives", "ce,cce,focal", "--jobs", "1", "--out", "here")
    assert_one_sentence(result, "and 1 more were trained; use another --out, or remove those folders.")
    assert len(list((tmp_path / "here").glob("*/summary.json"))) == 2


@pytest.mark.parametrize(
    ("classes", "more", "words"),
    [
        (("left", "right"), (), "(left, right); --no-flip turns this off."),
        (("turn_left", "turn_right"), (), "(turn_left, turn_right); --no-flip turns this off."),
        (("b", "d"), (), "(b, d); --no-flip turns this off."),
        (("speed 30", "speed 80"), (), "--no-flip turns this off."),
        (("left", "right"), ("--no-flip",), ""),
        (("left", "right"), ("--flip",), ""),
        (("cat", "dog"), (), ""),
    ],
)
def test_a_warning_about_mirrored_images_comes_before_the_runs(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    classes: tuple[str, ...],
    more: tuple[str, ...],
    words: str,
) -> None:
    def interrupt(*_: object, **__: object) -> list[Failure]:
        raise EvenhandError("Here the runs would begin.")

    monkeypatch.setattr("evenhand.experiments.api.run_on_engine", interrupt)
    draw(tmp_path / "signs", dict.fromkeys(classes, 8))
    code, _, err = run("signs", "--recipe", "small", "--objectives", "ce,cce", "--seeds", "1", *more)
    assert code == 2
    before, _ = err.split("Here the runs would begin.")
    assert ("are flipped" in before) == bool(words)
    assert words in before


@pytest.mark.usefixtures("undrawn")
def test_links_that_were_followed_once_are_followed_again(run: Run, tmp_path: Path) -> None:
    photos = draw(tmp_path / "elsewhere", {"cat": 12, "dog": 8})
    (tmp_path / "linked").mkdir()
    for name in ("cat", "dog"):
        (tmp_path / "linked" / name).symlink_to(photos / name)
    asked = (
        "linked",
        "--recipe",
        "small",
        "--epochs",
        "1",
        "--seeds",
        "1",
        "--allow-outside",
        "--out",
        "here",
        "--quiet",
    )
    for objectives in ("ce,cce", "ce,cce,focal"):
        code, _, err = run(*asked, "--objectives", objectives)
        assert code == 0, err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("digits", "--objectives", "ce,cse"), "There is no objective 'cse'"),
        (("digits", "--objectives", "ce"), "at least 2 objectives"),
        (("digits", "--objectives", "ce,cce,erm"), "'erm' is given twice, first as 'ce'"),
        (("digits", "--objectives", "ce,"), "Cannot read ''"),
        (("digits", "--seeds", "0"), "at least 1 seed, got --seeds 0"),
        (("digits", "--baseline", "focal", "--objectives", "ce,cce"), "The baseline 'focal' is not among"),
        (("digits", "--tune", "--set", "select=last"), "--tune picks on validation, and select: last has none"),
        (("digits", "--model", "resnet9"), "There is no network 'resnet9'"),
        (("digits", "--jobs", "0"), "At least 1 run at a time is needed"),
        (("digits", "--engine", "pbs"), "The engine is local, ray or slurm"),
        (("no/such/folder",), "no/such/folder"),
    ],
)
def test_what_is_wrong_is_one_sentence(run: Run, tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    assert_one_sentence(run(*args), words)
    assert not list(tmp_path.rglob("config.yaml"))


@pytest.mark.parametrize(("given", "source"), [((), "the built-in digits, as no source is given"), (("a",), "a")])
def test_the_first_line_names_the_built_in_source(run: Run, given: tuple[str, ...], source: str) -> None:
    code, _, err = run(*given, "--margin", "-1")  # refused before anything is read
    assert code == 2
    assert err.startswith(f"evenhand: comparing objectives on {source} ...")
