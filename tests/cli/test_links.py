"""Links in a run that came from others are not followed; only regular files are read."""

import os
import shutil
from pathlib import Path

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.core.files import read_bytes
from evenhand.report.serving import _Guard
from evenhand.runs import filenames as names
from evenhand.runs.comparison import Comparison
from evenhand.runs.run import Run
from tests.report.served_runs import write_comparison
from tests.trained import Trained, evenhand

SLOW = pytest.mark.slow
QUICK = (names.SUMMARY, names.HISTORY, names.LAST_WEIGHTS, names.FOLDERS[0], "report.html", "out.csv")
PLANTED = (*names.FILES, *names.FOLDERS, "report.html", ".lock", "out.csv")


@pytest.mark.parametrize("name", [each if each in QUICK else pytest.param(each, marks=SLOW) for each in PLANTED])
@pytest.mark.usefixtures("undrawn")
def test_no_verb_writes_through_a_link_in_a_run(
    photos_run: Trained, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, canary = tmp_path / "run", tmp_path / "canary"
    shutil.copytree(photos_run.run, run)
    (run / names.SUMMARY).unlink()  # so that --resume has something to do
    target = canary / name
    target.parent.mkdir(parents=True)
    place = run / name
    if place.is_dir():
        shutil.copytree(place, target)
        shutil.rmtree(place)
    elif name in names.FOLDERS:
        target.mkdir()
    else:
        target.write_bytes(place.read_bytes() if place.is_file() else b"canary")
        place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(target)
    before = {path: path.read_bytes() for path in canary.rglob("*") if path.is_file()}
    image = next(each for each in photos_run.photos.rglob("*") if each.is_file())
    for arguments in (
        ["train", "--resume", str(run)],
        ["report", str(run)],
        ["evaluate", str(run), "--adjust", "0.5"],
        ["predict", str(run), str(image), "--out", str(run / "out.csv")],
    ):
        code, _, err = evenhand(capsys, monkeypatch, *arguments)
        assert code in (0, 2), err
    assert {path: path.read_bytes() for path in canary.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", [names.CONFIG, names.PREDICTIONS, names.SUMMARY, names.BEST_WEIGHTS])
def test_a_link_in_a_run_is_not_read(photos_run: Trained, tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(photos_run.run, run)
    (run / name).unlink()
    (run / name).symlink_to(photos_run.run / name)
    assert not Run(run).has(name)
    with pytest.raises(EvenhandError, match="link"):
        Run(run).refuse_links()


def test_special_files_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(EvenhandError, match=r"regular|folder"):
            read_bytes(path, 10)


@pytest.mark.parametrize(
    "host",
    [
        "evil.com@127.0.0.1",
        "127.0.0.1.",
        "127.0.0.1,evil.com",
        "localhost:",
        "localhost:99999",
        "[::1",
        "",
        "127.0.0.1.evil.com",
        "[::1]:8765@evil",
        "127.0.0.1:8765@evil.com",
        "127.0.0.1:8765:1",
        "127.0.0.1:+80",
        "127.0.0.1:80#",
        "127.0.0.1/x",
        "localhost\\@evil",
        " 127.0.0.1",
        "127.0.0.1\n",
        "127.1",
        "2130706433",
        "[::ffff:7f00:1]",
        "localhost.",
        "evil-localhost",
        "127.0.0.1%00",
        "127.0.0.1:\u0661",
        "[127.0.0.1",
        "[localhost]x",
        "@127.0.0.1",
    ],
)
def test_only_exact_hosts_are_known(host: str) -> None:
    guard = _Guard(None, "127.0.0.1")  # type: ignore[arg-type]
    assert not guard._is_known(host)
    assert all(guard._is_known(each) for each in ("127.0.0.1:8765", "[::1]:80", "LOCALHOST"))


@pytest.mark.parametrize(
    "folder",
    [
        "{outside}",
        "../outside",
        "inner/../../outside",
        ".",
        "link",
        "linked/run",
        "/",
        "../compared/../outside",
        "..",
        "",
        "link/..",
        "./link",
        "inner/./../../outside",
        "//etc",
        "linked/outside",
    ],
)
def test_a_comparison_names_only_runs_inside_its_folder(tmp_path: Path, folder: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    compared = write_comparison(tmp_path / "compared")
    (compared / "link").symlink_to(outside)
    (compared / "linked").symlink_to(tmp_path)
    run = {"objective": "ce", "seed": 0, "folder": folder.format(outside=outside)}
    write_comparison(compared, runs=[run])
    with pytest.raises(EvenhandError, match=r"is not a folder inside|is a link"):
        Comparison.read(compared)
