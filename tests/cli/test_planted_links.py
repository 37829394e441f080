"""Links that somebody planted in a folder of runs: whatever a command writes there, it writes there only."""

import os
import shutil
import sys
import tarfile
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evenhand.cli import app
from evenhand.core.cache import clear_cache
from evenhand.core.errors import EvenhandError
from evenhand.runs import filenames as names
from evenhand.runs.run import Run
from evenhand.training._feature_cache import FeatureStore, FeatureStores
from evenhand.training._feature_claims import shared_chunks
from evenhand.training._trackers import TRACKERS
from tests.fabricated import write_comparison_folder
from tests.trained import Trained, evenhand

pytestmark = pytest.mark.usefixtures("undrawn")
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


READ = [(name, way) for name in (names.COMPARISON, names.INTERIM_ANALYSES) for way in (relative, hard, dangling)]


@pytest.mark.parametrize(("name", "way"), [*(("report.html", way) for way in WAYS), *READ])
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


NAMED = [
    ("run", "{root}/run"),
    ("{root}/run", "run"),
    ("alias", "run"),
    ("run", "alias"),
    ("run/weights/..", "run"),
    ("{root}/run", "run/weights/.."),
    ("run/weights/best.safetensors", "run"),
    ("./other/../run", "{root}/other/../run"),
]


@pytest.mark.parametrize(("run", "below"), NAMED)
def test_however_a_run_is_named(
    photos_run: Trained, tmp_path: Path, run: str, below: str, capsys: Capture, monkeypatch: Patch
) -> None:
    """A folder below it is written to, and a link below it is refused."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(photos_run.run, "run")
    for name in ("other", "canary", "run/inner"):
        (tmp_path / name).mkdir()
    (tmp_path / "alias").symlink_to("run")
    (tmp_path / "run" / "link").symlink_to(tmp_path / "canary")
    image = next(each for each in photos_run.photos.rglob("*") if each.is_file())
    run, below = run.format(root=tmp_path), below.format(root=tmp_path)
    code, _, err = evenhand(capsys, monkeypatch, "predict", run, image, "--out", f"{below}/inner/out.csv")
    assert code == 0, err
    assert (tmp_path / "run" / "inner" / "out.csv").is_file()
    code, _, err = evenhand(capsys, monkeypatch, "predict", run, image, "--out", f"{below}/link/out.csv")
    assert (code, contents(tmp_path / "canary")) == (2, {})
    assert "not followed" in err


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


# What is replaced, and the studies that write it or read below it.
REPRODUCED = {
    "figure-distributions-small": ("figure-distributions",),
    "figure.png": ("figure-distributions",),
    "runs": ("table-gamma", "claims"),
    "claims": ("claims",),
    "table.json": ("claims",),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REPRODUCED)
def test_results_of_reproduce(tmp_path: Path, name: str, way: Way, capsys: Capture, monkeypatch: Patch) -> None:
    """`reproduce --out`: its folders are refused, and its files replaced, where they are links."""
    out, canary = tmp_path / "out", tmp_path / "canary"
    figures = out / "figure-distributions-small"
    place = {"table.json": out / "claims" / name, "figure.png": figures / "figure-distributions.png"}.get(
        name, out / name
    )
    if way is hard and place.suffix == "" and name != "runs":
        place.mkdir(parents=True)
        (place / "table.json").write_text("{}")
    place.parent.mkdir(parents=True, exist_ok=True)
    canary.mkdir()
    way(place, canary)
    before = contents(canary)
    for study in REPRODUCED[name]:
        code, _, err = evenhand(capsys, monkeypatch, "reproduce", study, "--out", out, "--no-train")
        assert code in (0, 2), err
        assert "Traceback" not in err
        assert contents(canary) == before, study


@pytest.mark.parametrize("way", [way for way in WAYS if way is not hard])
@pytest.mark.parametrize("name", ["wandb", "tensorboard"])
def test_folders_of_trackers(
    photos_run: Trained, tmp_path: Path, name: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They write below the run: a link there is refused before they start."""
    run, canary = tmp_path / "run", tmp_path / "canary"
    shutil.copytree(photos_run.run, run)
    (run / name).mkdir()
    canary.mkdir()
    way(run / name, canary)
    before = contents(canary)
    started = []
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=lambda **given: started.append(given)))
    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter", lambda folder: started.append(folder), raising=False)
    with pytest.raises(EvenhandError, match="not followed"):
        TRACKERS[name](Run(run))
    assert not started
    assert contents(canary) == before


STORED = ["key", "key/claims", "key/claims/lock", "key/part.npz"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", STORED)
def test_the_cache_of_features(tmp_path: Path, name: str, way: Way) -> None:
    """A store that is a link is not used, so that nothing is added, emptied or removed where it leads."""
    root, canary = tmp_path / "features", tmp_path / "canary"
    store = FeatureStore(root / "key", "key", 2)
    place = root / name
    place.parent.mkdir(parents=True)
    canary.mkdir()
    if place.suffix == "" and place.name != "lock":
        place.mkdir()
        for file in ("mine.npz", "mine.json"):
            (place / file).write_bytes(b"canary")
    way(place, canary)
    before = contents(canary)
    into = np.zeros((2, 2), np.float16)
    rows = {bytes(16): [0], bytes([1] * 16): [1]}
    for chunk in shared_chunks(FeatureStores((store,)), rows, into, seen=set(), batch_size=1, advance=lambda _: None):
        store.add(list(chunk), np.ones((len(chunk), 2), np.float16))
    assert contents(canary) == before
