"""File names that tell which pictures belong together."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.data._tracks import find_tracks, write_groups
from evenhand.data.folders import load_folder
from evenhand.data.inspection import inspect_source
from evenhand.data.sources import load_source
from evenhand.data.splits import make_splits

TRACKS, FRAMES = 8, 6


def draw_all(root: Path, names: dict[str, list[str]]) -> Path:
    rng = np.random.default_rng(0)
    for name, files in names.items():
        (root / name).mkdir(parents=True)
        for file in files:
            Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(root / name / file)
    return root


@pytest.fixture
def signs(tmp_path: Path) -> Path:
    """Names as in GTSRB."""
    frames = [f"{track:05d}_{frame:05d}.png" for track in range(TRACKS) for frame in range(FRAMES)]
    return draw_all(tmp_path / "traffic signs", {f"{k:05d}": frames for k in range(3)})


def test_the_printed_command_keeps_each_track_in_one_split(signs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(signs.parent)
    advice = inspect_source("traffic signs").advice[0]
    assert f"{3 * TRACKS * FRAMES} images in {3 * TRACKS} tracks" in advice
    assert "evenhand inspect 'traffic signs' --groups 'traffic signs.csv', then train on 'traffic signs.csv'." in advice
    found = inspect_source("traffic signs", groups="traffic signs.csv")
    assert found.advice[0] == advice
    table = load_source("traffic signs.csv")
    assert table.class_names == ("00000", "00001", "00002")
    assert len(table) == 3 * TRACKS * FRAMES
    splits = make_splits(table, seed=0)
    tracks = [{name.rpartition("_")[0] for name in table.ids[rows].tolist()} for rows in (splits.train, splits.test)]
    assert tracks[0] & tracks[1] == set()
    assert len(splits.test) >= 3 * FRAMES
    assert not any("TRACK_FRAME" in line for line in inspect_source("traffic signs.csv").advice)


def test_given_splits_are_kept(tmp_path: Path) -> None:
    frames = [f"{track:05d}_{frame:05d}.png" for track in range(TRACKS) for frame in range(FRAMES)]
    root = tmp_path / "signs"
    draw_all(root / "train", {"a": frames, "b": frames})
    draw_all(root / "test", {"a": ["1.png"], "b": ["2.png"]})
    tracks = write_groups(load_folder(root), tmp_path / "signs.csv")
    assert tracks.number == 2 * TRACKS
    table = load_source(tmp_path / "signs.csv")
    assert len(table.rows("test")) == 2
    assert len(set(table.groups[table.rows("train")].tolist())) == 2 * TRACKS


@pytest.mark.parametrize(
    "names",
    [
        [f"image_{k:04d}.png" for k in range(30)],  # Caltech-101
        [f"{k}.png" for k in range(30)],
        [f"n01440764_{37 * k}.png" for k in range(30)],  # ImageNet: the number of the class
        [f"{k}_{7 * k % 31}.png" for k in range(30)],  # no frames
        [f"{k // 6:03d}_{1000 * k}.png" for k in range(30)],  # not successive
    ],
)
def test_other_names_are_no_tracks(tmp_path: Path, names: list[str]) -> None:
    table = load_folder(draw_all(tmp_path / "photos", {"a": names, "b": names}))
    assert find_tracks(table) is None
    with pytest.raises(EvenhandError, match="tell of no groups"):
        write_groups(table, tmp_path / "photos.csv")


def test_a_csv_that_is_not_above_the_images_is_refused(signs: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(EvenhandError, match=r"is not above the images in .*; choose a file such as .*groups\.csv\.$"):
        write_groups(load_folder(signs), tmp_path / "other" / "groups.csv")
