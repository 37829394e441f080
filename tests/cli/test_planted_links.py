"""Links that somebody planted in a folder of runs: whatever a command writes there, it writes there only."""

import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from evenhand.cli import app
from evenhand.core.cache import clear_cache
from evenhand.runs import filenames as names
from tests.fabricated import write_comparison_folder
from tests.trained import Trained, evenhand

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
QUICK = ("digits", "--imbalance", "exp:50", "--epochs", "1", "--set", "compute.precision=float32", "--quiet")


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, and the names of all else."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        for path in folder.rglob("*")
    }


def move_and_link(place: Path, canary: Path) -> None:
    """Move a file or folder elsewhere, or make one there, and leave a link."""
    if place.is_dir():
        shutil.copytree(place, canary / place.name)
        shutil.rmtree(place)
    else:
        (canary / place.name).write_bytes(place.read_bytes() if place.exists() else b"canary")
        place.unlink(missing_ok=True)
    place.symlink_to(canary / place.name)


def relative(place: Path, canary: Path) -> None:
    move_and_link(place, canary)
    place.unlink()
    place.symlink_to(os.path.relpath(canary / place.name, place.parent))


def hard(place: Path, canary: Path) -> None:
    if place.is_dir():
        for path in place.rglob("*"):
            if path.is_file():
                os.link(path, canary / path.name)
        return
    if not place.exists():
        place.write_bytes(b"canary")
    os.link(place, canary / place.name)


def dangling(place: Path, canary: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(canary / place.name)


def chain(place: Path, canary: Path) -> None:
    """Two links one after the other."""
    move_and_link(place, canary)
    os.rename(place, place.parent / "step")
    place.symlink_to("step")


def whole_folder(place: Path, canary: Path) -> None:
    """Empty folder elsewhere in place of whatever was there."""
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    (canary / "folder").mkdir()
    place.symlink_to(canary / "folder")


Way = Callable[[Path, Path], None]
WAYS = [move_and_link, relative, hard, dangling, chain, whole_folder]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a comparison of two runs, which tests copy."""
    folder = tmp_path_factory.mktemp("planted") / "compared"
    with pytest.raises(SystemExit) as ended:
        app(["compare", *QUICK, "--objectives", "ce,cce", "--seeds", "1", "--out", str(folder)])
    assert not ended.value.code
    return folder


PLANTED = ["comparison.json", "looks.json", "comparison.csv", "comparison.md", "report.html", ".lock", ".grid", "run"]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", PLANTED)
def test_a_comparison_with_planted_links(
    compared: Path, tmp_path: Path, name: str, capsys: Capture, monkeypatch: Patch
) -> None:
    for way in WAYS:
        folder, canary = tmp_path / way.__name__ / "compared", tmp_path / way.__name__ / "canary"
        shutil.copytree(compared, folder)
        canary.mkdir()
        place = min(folder.glob(f"*/{names.CONFIG}")).parent if name == "run" else folder / name
        way(place, canary)
        before = contents(canary)
        again = ("compare", *QUICK, "--objectives", "ce,cce,focal", "--seeds", "1", "--out", folder)
        for arguments in (again, ("report", folder), ("compare", *QUICK, "--out", folder, "--status")):
            code, _, err = evenhand(capsys, monkeypatch, *arguments)
            assert code in (0, 1, 2), err
            assert "Traceback" not in err
        assert contents(canary) == before, (way.__name__, name)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["report.html", names.COMPARISON, names.INTERIM_ANALYSES])
def test_a_report_of_a_comparison(tmp_path: Path, name: str, way: Way, capsys: Capture, monkeypatch: Patch) -> None:
    folder, canary = tmp_path / "compared", tmp_path / "canary"
    write_comparison_folder(folder, names=("cat", "dog", "owl"), seeds=1)
    canary.mkdir()
    way(folder / name, canary)
    before = contents(canary)
    code, _, err = evenhand(capsys, monkeypatch, "report", folder)
    assert code in (0, 2), err
    assert contents(canary) == before


@pytest.mark.parametrize("way", [WAYS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in WAYS[1:])])
def test_predictions_and_models_inside_a_run(
    photos_run: Trained, tmp_path: Path, way: Way, capsys: Capture, monkeypatch: Patch
) -> None:
    """`--out` and `--onnx` below a folder of the run that somebody replaced by a link, and links of their names."""
    run, canary = tmp_path / "run", tmp_path / "canary"
    image = next(each for each in photos_run.photos.rglob("*") if each.is_file())
    shutil.copytree(photos_run.run, run)
    (run / "inner").mkdir()
    canary.mkdir()
    for place in (run / "inner", run / "out.csv", run / "model.onnx"):
        (canary / place.name).mkdir()
        way(place, canary / place.name)
    before = contents(canary)
    for arguments in (
        ("predict", run, image, "--out", run / "out.csv"),
        ("predict", run, image, "--out", run / "inner" / "out.csv"),
        ("predict", run, image, "--out", run / "weights" / ".." / "inner" / "new" / "out.csv"),
        ("export", run, "--onnx", run / "model.onnx"),
        ("export", run, "--folder", run / "inner" / "model"),
        ("evaluate", run, image.parent.parent, "--out", run / "inner" / "evaluated"),
        ("report", run, "--out", run / "inner" / "report.html"),
    ):
        code, _, err = evenhand(capsys, monkeypatch, *arguments)
        assert code in (0, 2), err
        assert "Traceback" not in err
        assert contents(canary) == before, arguments


def test_a_tar_from_a_stranger(photos_run: Trained, tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    """An archive with links of all files and folders of a run, which point out of it."""
    canary = tmp_path / "canary"
    shutil.copytree(photos_run.run, canary)
    (canary / names.SUMMARY).unlink()
    (canary / "out.csv").write_bytes(b"canary")
    made = tmp_path / "made"
    made.mkdir()
    shutil.copy(photos_run.run / names.CONFIG, made)
    for path in canary.iterdir():
        if path.name != names.CONFIG:
            (made / path.name).symlink_to(f"../../canary/{path.name}")
    with tarfile.open(tmp_path / "run.tar", "w") as archive:
        archive.add(made, "strange")
    (tmp_path / "unpacked").mkdir()
    with tarfile.open(tmp_path / "run.tar") as archive:
        archive.extractall(tmp_path / "unpacked")
    run = tmp_path / "unpacked" / "strange"
    assert (run / "weights").is_symlink()
    before = contents(canary)
    image = next(each for each in photos_run.photos.rglob("*") if each.is_file())
    for arguments in (
        ("train", "--resume", run),
        ("report", run),
        ("evaluate", run, "--adjust", "0.5"),
        ("evaluate", run, "--prior", "uniform"),
        ("predict", run, image, "--out", run / "out.csv"),
        ("export", run, "--onnx", run / "model.onnx"),
    ):
        code, _, err = evenhand(capsys, monkeypatch, *arguments)
        assert code in (0, 2), err
        assert contents(canary) == before, arguments


@pytest.mark.parametrize("part", ["pixels", "features", "tables"])
def test_clearing_a_cache_with_links(tmp_path: Path, part: str) -> None:
    canary, root = tmp_path / "canary", tmp_path / "cache"
    (canary / "deep").mkdir(parents=True)
    (canary / "deep" / "file").write_bytes(b"canary")
    before = contents(canary)
    for linked in (True, False):
        (root / part / "deep").mkdir(parents=True)
        (root / part / "deep" / "link").symlink_to(canary)
        (root / part / "file").symlink_to(canary / "deep" / "file")
        os.link(canary / "deep" / "file", root / part / "hard")
        if linked:  # the folder itself is one
            shutil.rmtree(root / part)
            (root / part).symlink_to(canary)
        clear_cache([part], root)
        assert not (root / part).exists()
        assert contents(canary) == before
