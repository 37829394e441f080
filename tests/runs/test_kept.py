"""What a folder keeps on disk is counted as `du` does, and its large files are named with their purpose."""

from pathlib import Path

from evenhand.runs import filenames as names
from evenhand.runs.kept import PURPOSES, describe_kept


def test_large_files_of_all_runs_are_added_up(tmp_path: Path) -> None:
    for number in range(3):
        for name, size in {names.STATE: 4_000_000, names.BEST_WEIGHTS: 2_000_000, names.CONFIG: 100}.items():
            path = tmp_path / str(number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(size))
    found = describe_kept(tmp_path)
    assert found == (
        "18 MB: state/state.pt 12 MB (the optimizer, to resume), weights/best.safetensors 6 MB (the best epoch)"
    )


def test_the_sizes_sum_and_what_can_be_deleted_is_named(tmp_path: Path) -> None:
    for name, size in {
        names.THUMBNAILS: 60,
        names.FEATURES: 50,
        names.PREDICTIONS: 40,
        "other.bin": 30,
        "b": 15,
    }.items():
        (tmp_path / name).write_bytes(bytes(size * 1_000_000))
    assert describe_kept(tmp_path) == (
        "195 MB: thumbnails.npz 60 MB (images in the report), features.npz 50 MB (for the map of test images), "
        "predictions.npz 40 MB (test logits, for reports and comparisons), other files 45 MB; "
        "thumbnails.npz and features.npz can be deleted once the report is written"
    )


def test_links_and_sparse_files_elsewhere_are_not_counted(tmp_path: Path) -> None:
    with (tmp_path / "elsewhere").open("wb") as file:
        file.truncate(2**31)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / names.PREDICTIONS).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "run" / "again").symlink_to(tmp_path)
    assert "GB" not in describe_kept(tmp_path / "run")
    assert describe_kept(tmp_path / "missing") == "0 bytes"


def test_every_large_file_has_a_purpose() -> None:
    assert set(names.CHECKED) <= set(PURPOSES)
