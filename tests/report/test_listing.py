"""What is found under a folder, and how it is told to stand."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.core.locks import claimed
from evenhand.experiments.grid.jobs import Failure, Job, write_failure
from evenhand.report import _listing as listing
from evenhand.report._listing import Listing, RunState
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from tests.fabricated import write_pictured_run
from tests.report.served_runs import history_row, write_comparison, write_run
from tests.runs.test_old import OLD


def names(root: Path) -> set[str]:
    return {run.entry.name for run in Listing(root).runs()}


def only(root: Path) -> RunState:
    (run,) = Listing(root).runs()
    return run


def test_a_finished_run_is_told_with_its_figures(tmp_path: Path) -> None:
    write_run(tmp_path / "a", objective="focal:gamma=2", seed=7)
    run = only(tmp_path)
    assert (run.entry.name, run.state, run.problems) == ("a", "finished", ())
    assert (run.source, run.imbalance, run.objective, run.model) == ("digits", "exp:20", "focal", "resnet8")
    assert (run.seed, run.epochs_done, run.epochs) == (7, 4, 4)
    assert run.balanced_accuracy == pytest.approx((0.9 + 0.7 + 0.25) / 3)
    assert run.interval == Run(tmp_path / "a").summary.balanced_accuracy_interval
    assert (run.few, run.worst_class, run.worst_recall) == (0.25, "owl", 0.25)


def test_a_comparison_is_told_with_its_best_objective_first(tmp_path: Path) -> None:
    write_comparison(tmp_path / "c")
    listed = Listing(tmp_path)
    assert listed.runs() == []
    (found,) = listed.comparisons()
    assert (found.entry.name, found.seeds, found.verdict) == ("c", 3, "Use cce.")
    assert found.balanced_accuracy == (("cce", 0.7), ("ce", 0.6))
    assert found.few == (("ce", 0.2),)


def test_runs_are_found_in_folders_of_folders_but_not_in_hidden_ones_or_too_deep(tmp_path: Path) -> None:
    deep = Path(*"12345")
    for place in ("a", "grid/b", deep, deep / "6", ".hidden/c", "grid/.grid/d", "a/weights", "a/state/e"):
        write_run(tmp_path / place)
    assert names(tmp_path) == {"a", "grid/b", deep.as_posix()}


def test_the_folder_itself_may_be_a_run_and_hold_one_of_its_own_name(tmp_path: Path) -> None:
    root = write_run(tmp_path / "same")
    write_run(root / "same")
    first, second = Listing(root).runs()
    assert first.entry.name == second.entry.name == "same"
    assert first.entry.id != second.entry.id


def test_links_are_not_followed_wherever_they_lead(tmp_path: Path) -> None:
    outside = write_run(tmp_path / "outside")
    root = tmp_path / "root"
    inside = write_run(root / "inside")
    (root / "out").symlink_to(outside)
    (root / "again").symlink_to(inside)
    (root / "loop").symlink_to(root)
    (root / "borrowed").mkdir()
    (root / "borrowed" / "config.yaml").symlink_to(outside / "config.yaml")
    (inside / "summary.json").unlink()
    (inside / "summary.json").symlink_to(outside / "summary.json")
    assert names(root) == {"inside"}
    assert only(root).balanced_accuracy is None


def test_a_link_to_the_root_is_served_as_what_it_leads_to(tmp_path: Path) -> None:
    write_run(tmp_path / "root" / "a")
    (tmp_path / "link").symlink_to(tmp_path / "root")
    assert names(tmp_path / "link") == {"a"}


def test_too_many_folders_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_FOLDERS", 3)
    for name in "abcd":
        write_run(tmp_path / name)
    listed = Listing(tmp_path)
    assert len(listed.runs()) == 2
    assert "Only the first 3 folders" in listed.note


def test_no_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match=r"There is no folder .*nowhere; give"):
        Listing(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("age", "seconds", "state"),
    [
        (5, 0.5, "training"),
        (59, 0.5, "training"),
        (70, 0.5, "stopped"),
        (170, 60.0, "training"),
        (190, 60.0, "stopped"),
    ],
)
def test_news_within_a_minute_or_three_epochs_means_training(
    tmp_path: Path, age: float, seconds: float, state: str
) -> None:
    run = write_run(tmp_path / "a", done=2, finished=False, age=age)
    Run(run).write_history([{**history_row(1), "seconds": seconds}])
    os.utime(run / "history.csv", (time.time() - age,) * 2)
    assert only(tmp_path).state == state


def test_a_run_whose_first_epoch_is_not_over_is_training(tmp_path: Path) -> None:
    write_run(tmp_path / "a", done=0, finished=False)
    run = only(tmp_path)
    assert (run.state, run.epochs_done, run.epochs, run.problems) == ("training", None, 4, ())


def test_a_lock_means_training_however_long_an_epoch_takes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", done=1, finished=False, age=10_000)
    with claimed(folder):
        assert only(tmp_path).state == "training"
    assert only(tmp_path).state == "stopped"


def test_a_run_that_failed_in_a_grid_says_why(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", done=1, finished=False)
    write_failure(Failure(Job(Config(), folder), "The loss became NaN."))
    run = only(tmp_path)
    assert (run.state, run.problems) == ("failed", ("The loss became NaN.",))
    Job(Config(), folder).failure.write_text("{")
    assert "the reason cannot be read" in only(tmp_path).problems[0]


def test_what_a_grid_keeps_beside_the_root_is_not_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", done=1, finished=False)
    write_failure(Failure(Job(Config(), folder), "secret"))
    assert only(folder).problems == ()


def test_what_a_grid_keeps_behind_a_link_is_not_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "outside" / "a", done=1, finished=False)
    write_failure(Failure(Job(Config(), folder), "secret"))
    write_run(tmp_path / "root" / "a", done=1, finished=False)
    (tmp_path / "root" / ".grid").symlink_to(tmp_path / "outside" / ".grid")
    assert only(tmp_path / "root").problems == ()


DAMAGE = [
    ("config.yaml", b"a: [", "Cannot read the config config.yaml: "),
    ("config.yaml", b"\xff\xfe", "Cannot read the config config.yaml: "),
    ("config.yaml", b"", "Cannot read the config config.yaml: expected KEY: VALUE lines, got NoneType."),
    ("config.yaml", b"- 1", "Cannot read the config config.yaml: expected KEY: VALUE lines, got list."),
    ("config.yaml", b"[" * 5000, "Cannot read the config config.yaml: it is nested more than 20 deep."),
    ("config.yaml", b"objective: !!python/object/apply:os.getcwd []", "Cannot read the config config.yaml: "),
    ("config.yaml", b"objective: !!bool x", "Cannot read the config config.yaml: "),
    ("config.yaml", b"seed: 0x" + b"f" * 6000, "Cannot read the config config.yaml: a value has 6,002 characters"),
    ("config.yaml", b"seed: 0x" + b"f" * 3000, "Cannot read the config config.yaml: a whole number has 12000 bits"),
    ("config.yaml", b"colour: red", "Cannot use the config config.yaml: Unknown setting 'colour'"),
    ("history.csv", b"epoch,train_loss\n1,2.0\n2,", "Cannot read the history in history.csv: "),
    ("history.csv", b"epoch\n1,2,3\n", "Cannot read the history in history.csv: "),
    ("history.csv", b"epoch\n7\n", "Cannot read the history in history.csv: row 1 has epoch 7.0."),
    ("history.csv", b"\xff", "Cannot read history.csv: "),
    ("summary.json", b"", "Cannot read summary.json: "),
    ("summary.json", b'{"balanced_accuracy": 0.', "Cannot read summary.json: "),
    ("summary.json", b"[]", "Cannot read summary.json: "),
    ("summary.json", b'{"a":' * 100_000, "Cannot read summary.json: "),
    ("summary.json", b'{"a":' + b"9" * 5000 + b"}", "Cannot read summary.json: "),
]


@pytest.mark.parametrize(("name", "content", "words"), DAMAGE)
def test_a_damaged_file_is_a_row_that_says_so(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (write_run(tmp_path / "a") / name).write_bytes(content)
    write_run(tmp_path / "b")
    listed = {run.entry.name: run for run in Listing(tmp_path).runs()}
    (problem,) = listed["a"].problems
    assert problem.startswith(words)
    assert problem.endswith(".")
    assert str(tmp_path) not in problem
    assert listed["a"].objective == "cce"  # from the other file
    assert listed["b"].problems == ()


def test_a_damaged_comparison_is_a_row_that_says_so(tmp_path: Path) -> None:
    (write_comparison(tmp_path / "c") / "comparison.json").write_text("{")
    listed = Listing(tmp_path)
    listed.refresh()
    assert "Cannot read comparison.json" in listed.comparisons()[0].problems[0]


ODD = [None, [], {}, "text", True, float("nan"), float("inf"), 10**400, [[1, 2]], {"few": 3}]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("key", ["balanced_accuracy", "groups", "worst_class", "per_class", "selected"])
def test_values_of_the_wrong_kind_are_a_problem_of_that_run_alone(tmp_path: Path, key: str, odd: Any) -> None:
    folder = write_run(tmp_path / "a")
    content = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**content, key: odd}))
    write_run(tmp_path / "b")
    listed = {run.entry.name: run for run in Listing(tmp_path).runs()}
    if key == "groups" and odd == {}:  # of groups none need be told
        assert listed["a"].problems == ()
        return
    (problem,) = listed["a"].problems
    assert problem.startswith(f"Cannot read summary.json: {key}" if odd == odd and odd != ODD[6] else "Cannot read")
    assert (listed["a"].balanced_accuracy, listed["a"].epochs_done) == (None, 4)
    assert listed["b"].balanced_accuracy is not None


@pytest.mark.parametrize("odd", ODD)
def test_a_comparison_with_values_of_the_wrong_kind_shows_what_it_has(tmp_path: Path, odd: Any) -> None:
    write_comparison(tmp_path / "c", **dict.fromkeys(("table", "verdicts", "seeds", "source"), odd))
    listed = Listing(tmp_path)
    listed.refresh()
    assert listed.comparisons()[0].balanced_accuracy == ()


def test_figures_that_are_not_those_of_the_predictions_are_told(tmp_path: Path) -> None:
    write_pictured_run(tmp_path / "a", names=("cat", "dog", "owl"))
    assert only(tmp_path).problems == ()
    path = tmp_path / "a" / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "balanced_accuracy": 1.0}))
    (problem,) = only(tmp_path).problems
    assert problem.startswith("Cannot use summary.json: its balanced_accuracy is 1.0, but the predictions give")
    assert only(tmp_path).balanced_accuracy is None


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    with (write_run(tmp_path / "a") / "config.yaml").open("r+b") as file:
        file.truncate(2**30)
    assert "1,073,741,824 bytes" in only(tmp_path).problems[0]


@pytest.mark.parametrize(
    "name", ["predictions.npz", "features.npz", "thumbnails.npz", "checksums.json", "summary.json"]
)
def test_gigabytes_of_nothing_cost_no_time(tmp_path: Path, name: str) -> None:
    for number in range(20):
        write_pictured_run(tmp_path / str(number), names=("cat", "dog", "owl"))
        with (tmp_path / str(number) / name).open("r+b") as file:
            file.truncate(2**31)
    began = time.process_time()
    listed = Listing(tmp_path).runs()
    assert time.process_time() - began < 5
    if name in ("predictions.npz", "summary.json"):
        assert all("2,147,483,648 bytes" in " ".join(run.problems) for run in listed)
    assert all((run.balanced_accuracy is None) == (name == "summary.json") for run in listed)


def test_predictions_beyond_the_limit_of_one_list_are_checked_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        path = write_pictured_run(tmp_path / str(number), names=("cat", "dog", "owl")) / "summary.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "balanced_accuracy": 1.0}))
    size = (tmp_path / "0" / "predictions.npz").stat().st_size
    monkeypatch.setattr(listing, "MOST_CHECKED", 2 * size)
    listed = Listing(tmp_path)
    assert [sum(bool(run.problems) for run in listed.runs()) for _ in range(3)] == [2, 4, 4]


def test_files_that_have_not_changed_are_not_read_again_and_changed_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    genuine = listing.run_figures
    monkeypatch.setattr(listing, "run_figures", lambda run, **how: read.append(run.path.name) or genuine(run, **how))
    folder = write_run(tmp_path / "a", done=2, finished=False)
    listed = Listing(tmp_path)
    assert listed.runs()[0].epochs_done == 2
    assert listed.runs()[0].epochs_done == 2
    assert read == ["a"]
    Run(folder).write_history([history_row(epoch) for epoch in (1, 2, 3)])
    assert listed.runs()[0].epochs_done == 3
    assert read == ["a", "a"]
    (folder / "config.yaml").unlink()
    assert listed.runs() == []
    assert listed._cache == {}


def test_an_id_finds_what_is_there_now_and_nothing_else(tmp_path: Path) -> None:
    outside = write_run(tmp_path / "outside")
    root = tmp_path / "root"
    folder = write_run(root / "a")
    listed = Listing(root)
    known = listed.runs()[0].entry.id
    found = listed.find(known)
    assert found is not None
    assert found.path == folder
    for other in ("", "a", "..", "../outside", str(outside), "\0", known[:-1], f"{known}/", f"{known}/../.."):
        assert listed.find(other) is None
    write_run(root / "b")
    (new,) = {run.entry.id for run in Listing(root).runs()} - {known}
    assert listed.find(new) is not None
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    assert listed.find(known) is None


def test_unreadable_folders_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b")
    genuine = os.scandir

    def refusing(path: Path) -> Any:
        if Path(path).name == "b":
            raise PermissionError(13, "no")
        return genuine(path)

    monkeypatch.setattr(listing.os, "scandir", refusing)
    assert names(tmp_path) == {"a"}


@pytest.mark.parametrize("runs", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_the_damaged_ones_among_many_runs_are_told_and_the_others_shown(tmp_path: Path, runs: int) -> None:
    """Of 500 runs 25."""
    apart = 4 if runs == 20 else 20
    files = [path for path in OLD.iterdir() if path.is_file()]
    for number in range(runs):
        (tmp_path / f"{number:03}").mkdir()
        for path in files:
            shutil.copy(path, tmp_path / f"{number:03}")
    damaged = ("config.yaml", "splits.json", "history.csv", "predictions.npz", "summary.json")
    for number in range(runs // apart):
        path = tmp_path / f"{apart * number:03}" / damaged[number % 5]
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    began = time.process_time()
    listed = {run.entry.name: run for run in Listing(tmp_path).runs()}
    assert time.process_time() - began < 30
    assert [int(name) for name in sorted(listed) if listed[name].problems] == list(range(0, runs, apart))
    assert all(len(run.problems) <= 1 for run in listed.values())
    assert all(run.balanced_accuracy is not None for run in listed.values() if not run.problems)
