"""Parquet files and data sets of Hugging Face's library as sources, written by pyarrow and by that library."""

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.data import _arrow, load_source, open_images
from evenhand.data.audit import find_duplicates
from evenhand.data.inspection import inspect_source
from evenhand.data.splits import make_splits
from evenhand.data.table import FilePixels

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def png(row: int, size: tuple[int, int] = (8, 8)) -> bytes:
    pixels = np.random.default_rng(row).integers(0, 256, (*size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write(path: Path, rows: int = 7, **columns: Any) -> Path:
    """Write a Parquet file with so many rows per group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = columns.pop("metadata", None)
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path, row_group_size=rows)
    return path


def hf_splits(counts: dict[str, int], label: str = "label") -> Any:
    features = datasets.Features({"image": datasets.Image(), label: datasets.ClassLabel(names=["zebra", "ant", "cow"])})
    made = {}
    start = 0
    for split, count in counts.items():
        rows = {"image": [{"bytes": png(start + i), "path": None} for i in range(count)], label: [0, 1] * (count // 2)}
        made[split] = datasets.Dataset.from_dict(rows, features=features)
        start += count
    return datasets.DatasetDict(made)


def class_labels(names: list[str], labels: Any) -> dict[str, Any]:
    """Return columns whose schema names the classes as datasets does."""
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
    structs = [{"bytes": png(row), "path": None} for row in range(len(labels))]
    table = pa.table({"image": structs, "label": labels})
    return dict(zip(table.column_names, table.columns, strict=True)) | {"metadata": features.arrow_schema.metadata}


def assert_refused(source: Path | str, *words: str, **options: Any) -> None:
    with pytest.raises(EvenhandError) as refused:
        open_images(load_source(source, **options), progress=False)
    message = str(refused.value)
    assert "\n" not in message
    assert message.endswith(".")
    for word in words:
        assert word in message


def test_binary_and_struct_columns_give_the_pixels_that_pillow_reads(tmp_path: Path) -> None:
    contents = [png(row) for row in range(20)]
    names = ["dog", "cat"] * 10
    plain = load_source(write(tmp_path / "plain.parquet", img=contents, label=names))
    structs = [{"bytes": content, "path": "x.png"} for content in contents]
    struct = load_source(write(tmp_path / "struct.parquet", picture=structs, label=names))
    for table in (plain, struct):
        assert table.class_names == ("cat", "dog")
        assert table.labels.tolist() == [1, 0] * 10
        assert table.ids[:2].tolist() == ["row/00000", "row/00001"]
        images = open_images(table, progress=False)
        for row in (0, 6, 7, 19):  # across row groups
            np.testing.assert_array_equal(images[row], np.array(Image.open(io.BytesIO(contents[row]))))
    taken = plain.take(np.array([19, 3]))
    assert isinstance(taken.pixels, FilePixels)
    assert [taken.pixels.content(row) for row in (0, 1)] == [contents[19], contents[3]]


def test_changed_images_are_decoded_again(tmp_path: Path) -> None:
    path = write(tmp_path / "data.parquet", image=[png(0), png(1)] * 2, label=[0, 0, 1, 1])
    first = open_images(load_source(path), progress=False)[0]
    write(path, image=[png(5), png(1)] * 2, label=[0, 0, 1, 1])
    second = open_images(load_source(path), progress=False)[0]
    assert not np.array_equal(first, second)


def test_parquet_of_the_hub_and_saved_dataset_agree(tmp_path: Path) -> None:
    made = hf_splits({"train": 12, "validation": 6, "test": 8})
    made.save_to_disk(str(tmp_path / "saved"))
    for split, part in made.items():
        path = tmp_path / "hub" / "data" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        part.to_parquet(str(path))
    saved, hub = load_source(tmp_path / "saved"), load_source(tmp_path / "hub")
    loaded = load_source(f"hf:{tmp_path / 'hub'}")  # the real library, on a folder in the layout of the hub
    for table in (saved, hub, loaded):
        assert table.class_names == ("zebra", "ant")  # in the order of the class label, without the empty one
        assert table.notes == ("Ignored classes without images: 'cow'.",)
        assert table.splits is not None
        assert [int((table.splits == each).sum()) for each in ("train", "val", "test")] == [12, 6, 8]
        assert table.ids[-1] == "test/00007"
        images = open_images(table, progress=False)
        for row in (0, 13, 25):
            np.testing.assert_array_equal(images[row], np.array(Image.open(io.BytesIO(png(row)))))
    splits = make_splits(saved)
    assert len(splits.test) == 8


def test_a_shuffled_selection_of_a_dataset_keeps_images_and_labels_together(tmp_path: Path) -> None:
    made = hf_splits({"train": 12})["train"].shuffle(seed=1)
    expected = [(row["image"].tobytes(), row["label"]) for row in made]
    made.save_to_disk(str(tmp_path / "saved"))
    table = load_source(tmp_path / "saved")
    images = open_images(table, progress=False)
    assert [(images[row].tobytes(), int(table.labels[row])) for row in range(12)] == expected
    assert table.splits is None


def test_options_choose_columns_and_the_test_split(tmp_path: Path) -> None:
    contents, labels = [png(row) for row in range(8)], [0, 1] * 4
    both = {"image": contents, "fine_label": labels, "class": ["x", "y"] * 4}
    path = write(tmp_path / "two.parquet", **both)
    assert_refused(path, "several columns that may be the label", "'fine_label'", "'class'")
    assert load_source(f"{path}:label=class").class_names == ("x", "y")
    assert load_source(f"{path}:image=image:label=fine_label").class_names == ("0", "1")
    assert_refused(f"{path}:label=no", "has no column 'no'", "'fine_label'")
    assert_refused(f"{path}:colour=no", "colour=no", "it takes")
    hf_splits({"train": 8, "validation": 4}).save_to_disk(str(tmp_path / "saved"))
    assert_refused(tmp_path / "saved", "no test split", ":test=validation")
    table = load_source(f"{tmp_path / 'saved'}:test=validation")
    assert table.splits is not None
    assert int((table.splits == "test").sum()) == 4


def test_the_one_other_split_is_trained_on(tmp_path: Path) -> None:
    hf_splits({"fold_a": 4, "fold_b": 4}).save_to_disk(str(tmp_path / "two"))
    assert_refused(tmp_path / "two", "none of which is named train", ":test=fold_b")
    table = load_source(f"{tmp_path / 'two'}:test=fold_b")
    assert table.ids[table.rows("test")].tolist() == [f"fold_b/{row:05d}" for row in range(4)]
    assert table.ids[table.rows("train")].tolist() == [f"fold_a/{row:05d}" for row in range(4)]
    hf_splits({"fold_a": 4, "fold_b": 4, "fold_c": 4}).save_to_disk(str(tmp_path / "three"))
    assert_refused(f"{tmp_path / 'three'}:test=fold_b", "none of which is named train; rename the one to train on")


def test_splits_and_groups_in_columns(tmp_path: Path) -> None:
    contents = [png(row) for row in range(12)]
    split = ["train", "train", "test"] * 4
    group = [f"g{row}" for row in range(12)]
    path = write(tmp_path / "a.parquet", image=contents, label=["a"] * 6 + ["b"] * 6, split=split, group=group)
    table = load_source(path)
    assert table.splits is not None and table.groups is not None  # noqa: PT018
    assert table.splits.tolist() == split
    straddling = write(tmp_path / "b.parquet", image=contents, label=["a", "b"] * 6, split=split, group=["g"] * 12)
    assert_refused(straddling, "the group 'g' is in train and in test")


def test_unlabelled_splits_are_ignored_and_missing_labels_refused(tmp_path: Path) -> None:
    made = hf_splits({"train": 8, "test": 4})
    made["test"] = made["test"].map(lambda _: {"label": -1}, features=made["test"].features)
    made.save_to_disk(str(tmp_path / "saved"))
    table = load_source(tmp_path / "saved")
    assert len(table) == 8
    assert "Ignored the split 'test', which has no labels." in table.notes
    path = write(tmp_path / "missing.parquet", image=[png(0)] * 3, label=[0, None, 1])
    assert_refused(path, "1 of 3 labels", "row 2")


def test_splits_without_the_column_of_labels_are_ignored(tmp_path: Path) -> None:
    labelled = hf_splits({"train": 8, "test": 4})
    labelled["extra"] = labelled["train"].remove_columns("label")
    labelled.save_to_disk(tmp_path / "saved")
    for source in (tmp_path / "saved", f"hf:{tmp_path / 'saved'}"):
        table = load_source(source)
        assert len(table) == 12
        assert table.notes[0] == "Ignored the split 'extra', which has no column 'label'."
    (tmp_path / "files").mkdir()
    for split, found in (("train", labelled["train"]), ("test", labelled["extra"])):
        found.to_parquet(tmp_path / f"files/{split}-00000-of-00001.parquet")
    table = load_source(tmp_path / "files")
    assert table.splits is None
    assert table.counts().tolist() == [4, 4]
    assert table.notes[0] == "Ignored the split 'test', which has no column 'label'."


def test_paths_instead_of_bytes(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for row in range(4):
        (tmp_path / "pictures" / f"{row}.png").write_bytes(png(row))
    paths = [f"pictures/{row}.png" for row in range(4)]
    text = write(tmp_path / "text.parquet", file_name=paths, label=[0, 0, 1, 1])
    struct = [{"bytes": None, "path": str(tmp_path / path)} for path in paths]
    column = pa.array(struct, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    for path in (text, write(tmp_path / "struct.parquet", image=column, label=[0, 0, 1, 1])):
        table = load_source(path)
        assert isinstance(table.pixels, FilePixels)
        assert table.ids.tolist() == ["row/00000", "row/00001", "row/00002", "row/00003"]
        np.testing.assert_array_equal(open_images(table, progress=False)[3], np.array(Image.open(io.BytesIO(png(3)))))
    outside = write(tmp_path / "in" / "out.parquet", file_name=["../text.parquet", "b.png"], label=[0, 1])
    assert_refused(outside, "row 1", "leaves the folder")
    missing = write(tmp_path / "lost.parquet", file_name=["a.png", "b.png"], label=[0, 1])
    assert_refused(missing, "2 files that are not there", "(row 1)")


def test_damaged_images_are_named_and_skipped(tmp_path: Path) -> None:
    contents = [png(row) for row in range(6)]
    contents[2], contents[4] = b"not an image", None  # type: ignore[call-overload]
    path = write(tmp_path / "bad.parquet", image=contents, label=["a", "b"] * 3)
    assert_refused(path, "2 of 6 images cannot be read", "row/00002", "--skip-bad")
    assert sorted(open_images(load_source(path), skip_bad=True, progress=False).bad) == [2, 4]
    audit = inspect_source(path)
    assert sorted(audit.unreadable) == ["row/00002", "row/00004"]


def test_duplicates_are_found_inside_a_file(tmp_path: Path) -> None:
    contents = [png(row) for row in range(10)]
    contents[7] = contents[1]
    table = load_source(write(tmp_path / "twice.parquet", image=contents, label=["a", "b"] * 5))
    found = find_duplicates(table, make_splits(table, val_fraction=0))
    assert [each.ids for each in found] == [("row/00001", "row/00007")]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"text": ["a"] * 4, "label": [0, 0, 1, 1]}, ("no column that looks like the image", "'text'", ":image=NAME")),
        ({"image": [b"x"] * 4, "kind": ["a"] * 4}, ("no column that looks like the label", "'kind'")),
        ({"image": [b"x"] * 4, "label": ["a", "b", " ", "b"]}, ("row 3", "is empty")),
        ({"image": [b"x"] * 4, "label": ["a"] * 4}, ("only one class",)),
        ({"image": [b"x"] * 0, "label": pa.array([], pa.int64())}, ("has no rows",)),
        ({"image": [b"x"] * 4, "label": [[0], [0, 1], [1], [1]]}, ("column 'label'", "has the type list")),
        ({"image": [b"x"] * 4, "label": [0.0, float("nan"), 1.0, 1.0]}, ("1 of 4 labels", "are missing", "row 2")),
        ({"image": [b"x"] * 4, "label": [0.0, 1.0, float("inf"), 1.0]}, ("row 3", "is inf", "whole numbers")),
        ({"image": [[1, 2]] * 4, "label": [0, 0, 1, 1]}, ("column 'image'", "has the type list", "encoded")),
        ({"image": [b"x"] * 4, "label": pa.nulls(4)}, ("column 'label'", "has the type null")),
    ],
)
def test_unusable_columns_are_one_sentence(tmp_path: Path, columns: dict[str, Any], words: tuple[str, ...]) -> None:
    assert_refused(write(tmp_path / "bad.parquet", **columns), *words)


def test_wrong_types_are_one_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "odd.parquet", image=[b"x"] * 2, pixels=[[0.1], [0.2]], label=[0.5, 1.5], names=[0, 1])
    assert_refused(f"{path}:image=pixels:label=names", "has the type list")
    assert_refused(f"{path}:label=label", "row 1", "is 0.5", "whole numbers")


def test_class_labels_are_whole_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "half.parquet", **class_labels(["a", "b"], pa.array([0.0, 0.5, 1.0, 1.5])))
    assert_refused(path, "row 2", "is 0.5", "whole numbers")


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_whole_numbers_that_pandas_made_floats_are_classes(tmp_path: Path, kind: Any) -> None:
    images = [png(row) for row in range(4)]
    table = load_source(write(tmp_path / "a.parquet", image=images, label=pa.array([10.0, 9.0, 9.0, 10.0], kind)))
    assert table.class_names == ("9", "10")
    assert table.labels.tolist() == [1, 0, 0, 1]
    named = load_source(write(tmp_path / "b.parquet", **class_labels(["cat", "dog"], pa.array([1.0, 0.0] * 2, kind))))
    assert [named.class_names[label] for label in named.labels] == ["dog", "cat"] * 2


def test_booleans_and_numbers_are_never_mixed(tmp_path: Path) -> None:
    for name, labels in (("a", [True, False] * 2), ("b", [0, 1] * 2)):
        write(tmp_path / f"data/{name}.parquet", image=[png(0)] * 4, label=labels)
    assert load_source(tmp_path / "data/a.parquet").class_names == ("False", "True")
    assert_refused(tmp_path / "data", "as boolean in", "as number in 'b.parquet'", "save them alike")


def test_files_may_have_their_columns_in_any_order(tmp_path: Path) -> None:
    images, labels = [png(row) for row in range(4)], ["a", "b"] * 2
    write(tmp_path / "data/a.parquet", image=images, label=labels)
    write(tmp_path / "data/b.parquet", label=labels, image=images[::-1])
    table = load_source(tmp_path / "data")
    assert [table.class_names[label] for label in table.labels] == labels * 2
    assert isinstance(table.pixels, FilePixels)
    assert [table.pixels.content(row) for row in range(8)] == images + images[::-1]


def test_a_column_in_the_names_of_folders_is_refused(tmp_path: Path) -> None:
    columns = pa.table({"image": [png(row) for row in range(4)], "label": ["a", "b"] * 2})
    pq.write_to_dataset(columns, tmp_path / "data", partition_cols=["label"])
    assert_refused(tmp_path / "data", "the column 'label' is in the names of folders, such as 'label=", "partitions")


def test_numbers_of_any_size_are_classes(tmp_path: Path) -> None:
    largest = 2**64 - 1
    path = write(tmp_path / "a.parquet", image=[png(0)] * 4, label=pa.array([largest, 7, 10, largest], pa.uint64()))
    assert load_source(path).class_names == ("7", "10", str(largest))


def test_columns_as_views_are_read(tmp_path: Path) -> None:
    images = pa.array([png(row) for row in range(4)], pa.binary_view())
    table = load_source(write(tmp_path / "a.parquet", image=images, label=pa.array(["a", "b"] * 2, pa.string_view())))
    assert table.counts().tolist() == [2, 2]
    with Image.open(io.BytesIO(png(3))) as expected:
        np.testing.assert_array_equal(open_images(table, progress=False)[3], np.asarray(expected))


def test_groups_that_are_not_a_number_are_none(tmp_path: Path) -> None:
    nan = float("nan")
    path = write(tmp_path / "a.parquet", image=[png(0)] * 4, label=["a", "b"] * 2, group=[nan, nan, 1.0, 1.0])
    groups = load_source(path).groups
    assert groups is not None
    assert len(set(groups.tolist())) == 3


@pytest.mark.parametrize("files", [("train-00000-of-00002", "train-00001-of-00002"), ("train", "test"), ("a", "b")])
def test_numbers_with_different_names_are_never_mixed(tmp_path: Path, files: tuple[str, str]) -> None:
    folder = tmp_path / "data"
    for name, names in zip(files, (["cat", "dog"], ["dog", "cat"]), strict=True):
        write(folder / f"{name}.parquet", **class_labels(names, [0, 1] * 4))
    assert_refused(folder, "as number of the classes 'cat', 'dog' in", "'dog', 'cat' in", "save them alike")
    write(folder / f"{files[1]}.parquet", image=[png(0)] * 8, label=["cat", "dog"] * 4)
    assert_refused(folder, "'label' as", "text", "save them alike")


def test_missing_files_of_a_split_are_noted(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"image": [png(row) for row in range(4)], "label": ["a", "b"] * 2}
    for place in (0, 2):
        write(tmp_path / f"data/train-0000{place}-of-00004.parquet", **columns)
    found = load_source(tmp_path / "data").notes
    assert found == ("2 of 4 files are not there, such as train-00001-of-00004.parquet.",)


def test_a_column_of_splits_is_never_half_used(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"image": [png(row) for row in range(8)], "label": ["a", "b"] * 4}
    path = write(tmp_path / "a.parquet", **columns, split=["train"] * 4 + ["test"] * 4)
    assert_refused(f"{path}:test=train", "has a test set, the split 'test', besides test=train")
    assert_refused(f"{path}:test=other", "has no split 'other' in its column 'split'; it has 'test', 'train'")
    numbers = load_source(write(tmp_path / "b.parquet", **columns, split=[0] * 4 + [1] * 4))
    assert numbers.splits is None
    assert numbers.notes == ("Ignored the column 'split', which has no names of splits such as train and test.",)


def test_damaged_files_are_one_sentence(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.parquet", image=[png(row) for row in range(9)], label=[0, 1, 1] * 3).read_bytes()
    rng = np.random.default_rng(0)
    refused: list[str] = []
    for turn in range(30):
        content = bytearray(whole if turn % 2 else whole[: rng.integers(0, len(whole))])
        for place in rng.integers(0, max(len(content), 1), 8).tolist() if turn % 2 else ():
            content[place] ^= 255
        path = tmp_path / f"damaged{turn}.parquet"
        path.write_bytes(bytes(content))
        try:
            open_images(load_source(path), progress=False, skip_bad=True)
        except EvenhandError as error:
            refused.append(str(error))
    assert len(refused) >= 15
    assert not any("\n" in message for message in refused)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "state.json").write_text("{}")
    (tmp_path / "folder" / "dataset_info.json").write_text("[")
    assert_refused(tmp_path / "folder", "Cannot read")
    assert_refused(tmp_path / "nothing.parquet:label=x", "There is no file or folder")


def test_files_that_are_larger_than_the_disk_are_refused_before_they_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "large.parquet", image=[png(row, (64, 64)) for row in range(20)], label=[0, 1] * 10)
    usage = shutil.disk_usage(tmp_path)._replace(free=_arrow.SPARE + 50_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    copied: list[int] = []
    monkeypatch.setattr(_arrow, "encoded", lambda array: copied.append(1) or array)
    assert_refused(path, "GB of images", "free some space")
    assert not copied
    assert not list((tmp_path / "cache").rglob("*.arrow*"))


def test_a_file_that_unpacks_to_ten_gigabytes_is_refused(tmp_path: Path) -> None:
    image, times = png(0, (160, 160)) * 8, 17_000
    many = pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, np.int32)), pa.array([image]))
    path = write(tmp_path / "bomb.parquet", rows=times, image=many, label=[0, 1] * (times // 2))
    assert len(image) * times > 10**10
    assert path.stat().st_size < 10**7
    assert_refused(path, "unpack to more than 100 times")
    assert not list((tmp_path / "cache").rglob("*.arrow*"))


def test_code_of_a_dataset_is_never_run(tmp_path: Path) -> None:
    folder = tmp_path / "scripted"
    folder.mkdir()
    (folder / "scripted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    assert_refused(f"hf:{folder}", "Cannot load hf:")
    assert not (tmp_path / "ran").exists()
    assert_refused("hf:", "give the name of a data set")


@pytest.mark.parametrize("missing", ["pyarrow", "datasets"])
def test_a_missing_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    path = write(tmp_path / "data.parquet", image=[png(0), png(1)], label=[0, 1])
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    source = path if missing == "pyarrow" else "hf:any/name"
    assert_refused(source, missing, "pip install")
