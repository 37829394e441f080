"""Class folders: layouts, what is ignored, and what is refused."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.data.folders import load_folder


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(path, format="PNG")


def test_flat(tmp_path: Path) -> None:
    put(tmp_path, "dog/2.png", "dog/1.JPG", "cat/a.jpeg", "cat/deep/er/b.webp")
    table = load_folder(tmp_path)
    assert table.class_names == ("cat", "dog")
    assert table.ids.tolist() == ["cat/a.jpeg", "cat/deep/er/b.webp", "dog/1.JPG", "dog/2.png"]
    assert table.labels.tolist() == [0, 0, 1, 1]
    assert table.splits is None
    assert table.groups is None
    assert table.info.flip
    assert all((table.pixels.root / path).is_file() for path in table.pixels.paths)


@pytest.mark.parametrize("val", ["val", "valid", "Validation"])
def test_with_splits(tmp_path: Path, val: str) -> None:
    put(tmp_path, "train/cat/1.png", "train/dog/1.png", f"{val}/cat/2.png", "test/cat/3.png", "test/dog/3.png")
    table = load_folder(tmp_path)
    assert table.class_names == ("cat", "dog")
    assert table.splits.tolist() == ["train", "train", "val", "test", "test"]
    assert table.labels.tolist() == [0, 1, 0, 0, 1]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    put(tmp_path, "bus/1.png", "plane/1.png", "train/1.png")
    assert load_folder(tmp_path).class_names == ("bus", "plane", "train")


def test_what_is_ignored_is_counted(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.png", "dog/1.png", ".git/x.png", "cat/.hidden.png", "outside.png")
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    os.mkfifo(tmp_path / "cat" / "pipe.png")
    table = load_folder(tmp_path)
    assert table.ids.tolist() == ["cat/1.png", "dog/1.png"]
    expected = "Ignored 5 files or folders that are not images: '.git', 'outside.png', 'cat/.hidden.png' and 2 more."
    assert table.notes == (expected,)
    put(tmp_path, "train/cat/1.png", "train/dog/1.png", "test/cat/1.png", "test/dog/1.png")
    assert "'dog/'" in load_folder(tmp_path).notes[0] or "more" in load_folder(tmp_path).notes[0]


def test_odd_names(tmp_path: Path) -> None:
    long = "x" * 200 + ".png"
    put(tmp_path, f"chat à crête/{long}", "犬/линия\nлиния.png", "犬/'quotes\".png")
    table = load_folder(tmp_path)
    assert table.class_names == ("chat à crête", "犬")
    assert table.ids[0].endswith(long)
    assert all((table.pixels.root / path).is_file() for path in table.pixels.paths)


def test_one_class_in_two_unicode_forms(tmp_path: Path) -> None:
    put(tmp_path, "train/caf\u00e9/1.png", "train/bar/1.png", "test/cafe\u0301/1.png", "test/bar/1.png")
    assert load_folder(tmp_path).class_names == ("bar", "caf\u00e9")


@pytest.mark.parametrize(
    ("names", "folders", "message"),
    [
        ([], [], "has no class folders"),
        (["1.png"], [], "has no class folders"),
        (["cat/1.png"], [], "has only one class, 'cat'"),
        ([], ["newt", "rat"], "no images in its class folders: 'newt', 'rat'"),
        (["train/cat/1.png", "train/dog/1.png", "test/cat/1.png"], [], "only one of train and test: 'dog'"),
        (["train/cat/1.png", "test/cat/1.png", "test/newt/1.png"], [], "only one of train and test: 'newt'"),
        (["train/a/1.png", "train/b/1.png", "test/a/1.png", "test/b/1.png", "val/c/1.png"], [], "in val .*: 'c'"),
        (["train/a/1.png", "train/b/1.png", "test/a/1.png"], ["test/b"], "only one of train and test: 'b'"),
        (["train/a/1.png", "train/b/1.png"], ["test"], "test has no class folders"),
        (["train/a/1.png", "val/a/1.png"], [], "train and val but no test folder; rename val to test"),
        (["train/a/1.png", "train/b/1.png"], [], "but no test folder; use .*/train as the source"),
        (["train/a/1.png", "test/a/1.png", "val/a/1.png", "valid/a/1.png"], [], "both val and valid"),
    ],
)
def test_refusals(tmp_path: Path, names: list[str], folders: list[str], message: str) -> None:
    put(tmp_path, *names)
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    with pytest.raises(EvenhandError, match=message) as caught:
        load_folder(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("link", ["cat/2.png", "newt", "cat/deep"])
def test_links_that_leave_are_refused(tmp_path: Path, link: str) -> None:
    root = tmp_path / "root"
    put(tmp_path, "secret/1.png", "root/cat/1.png", "root/dog/1.png")
    target = tmp_path / "secret" / ("1.png" if link.endswith("png") else "")
    (root / link).symlink_to(target)
    with pytest.raises(EvenhandError, match=f"{link} is a link that leaves"):
        load_folder(root)


def test_links_that_stay_are_followed(tmp_path: Path) -> None:
    put(tmp_path, "root/cat/1.png", "root/dog/1.png")
    (tmp_path / "root" / "dog" / "2.png").symlink_to("../cat/1.png")
    (tmp_path / "root" / "dog" / "round").symlink_to("..")  # without care this would go round for ever
    (tmp_path / "link").symlink_to("root")
    ids = load_folder(tmp_path / "link").ids.tolist()
    assert ids[:3] == ["cat/1.png", "dog/1.png", "dog/2.png"]
    (tmp_path / "root" / "dog" / "3.png").symlink_to("nothing")
    with pytest.raises(EvenhandError, match=r"3\.png is a link to nothing"):
        load_folder(tmp_path / "root")


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.png", "dog/1.png")
    try:
        (tmp_path / os.fsdecode(b"dog/\xff.png")).touch()
    except OSError:
        pytest.skip("this file system has only UTF-8 names")
    with pytest.raises(EvenhandError, match="not UTF-8"):
        load_folder(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.png", "dog/1.png")
    (tmp_path / "dog").chmod(0)
    with pytest.raises(EvenhandError, match=r"Cannot read .*dog"):
        load_folder(tmp_path)
    (tmp_path / "dog").chmod(0o700)


part = st.sampled_from(["train", "test", "val", "cat", "dog", ".x", "deep"])
leaf = st.sampled_from(["1.png", "2.JPG", "x.txt", ".y.png", "noending"])


@given(names=st.lists(st.tuples(st.lists(part, max_size=3), leaf), max_size=8))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_any_tree_gives_a_table_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, names: list[tuple[list[str], str]]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for parts, last in names:
        path = root.joinpath(*parts, last)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    try:
        table = load_folder(root)
    except EvenhandError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert table.counts().min() > 0
        assert len(set(table.ids.tolist())) == len(table)
        if table.splits is not None:
            assert table.counts(table.rows("train")).min() > 0
            assert table.counts(table.rows("test")).min() > 0


def test_empty_class_folders_are_left_out_and_named(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.png", "dog/1.png")
    for name in ("newt", "rat"):
        (tmp_path / name).mkdir()
    table = load_folder(tmp_path)
    assert table.class_names == ("cat", "dog")
    assert table.notes == ("Ignored class folders without images: 'newt', 'rat'.",)


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["cat/1.png"], ("cat",)),
        (["train/cat/1.png", "train/dog/1.png", "test/cat/1.png"], ("cat", "dog")),
        (["train/cat/1.png", "test/cat/1.png", "test/newt/1.png"], ("cat", "newt")),
        (["train/cat/1.png", "test/cat/1.png"], ("cat",)),
        (["train/a/1.png", "train/b/1.png", "test/a/1.png", "test/b/1.png", "val/c/1.png"], ("a", "b", "c")),
    ],
)
def test_what_is_only_judged_may_have_any_classes(tmp_path: Path, names: list[str], classes: tuple[str, ...]) -> None:
    put(tmp_path, *names)
    with pytest.raises(EvenhandError):
        load_folder(tmp_path)
    assert load_folder(tmp_path, strict=False).class_names == classes


@pytest.mark.parametrize("link", ["cat/2.png", "newt", "cat/deep"])
def test_links_that_leave_are_followed_where_that_is_allowed(tmp_path: Path, link: str) -> None:
    put(tmp_path, "elsewhere/1.png", "root/cat/1.png", "root/dog/1.png")
    (tmp_path / "root" / link).symlink_to(tmp_path / "elsewhere" / ("1.png" if link.endswith("png") else ""))
    table = load_folder(tmp_path / "root", allow_outside=True)
    assert len(table) == 3
    assert all((table.pixels.root / path).is_file() for path in table.pixels.paths)


@pytest.mark.parametrize(
    ("names", "inner"),
    [
        (["Final_Training/Images/0/1.png", "Final_Training/Images/1/1.png", "Final_Training/Images/2/1.png",
          "Final_Test/0/1.png", "Final_Test/1/1.png"],
         "Final_Training/Images"),
        (["2019/cat/1.png", "2019/dog/1.png", "2020/cat/1.png", "2020/dog/1.png"], "2019"),
        (["train/x/cat/1.png", "train/x/dog/1.png", "train/y/cat/1.png", "train/y/dog/1.png", "test/x/cat/1.png",
          "test/x/dog/1.png", "test/y/cat/1.png", "test/y/dog/1.png"], "x"),
    ],
)  # fmt: skip
def test_a_folder_too_high_is_noticed(tmp_path: Path, names: list[str], inner: str) -> None:
    put(tmp_path, *names)
    [note] = load_folder(tmp_path).notes
    assert note.startswith("The classes are ")
    assert note.endswith(f"if those are the classes, use {tmp_path / inner} as the source.")


@pytest.mark.parametrize(
    "names",
    [
        ["cat/1.png", "dog/1.png"],
        ["cat/a/1.png", "cat/b/1.png", "dog/1.png", "dog/a/1.png"],
        ["cat/a/1.png", "dog/b/1.png"],
        ["cat/a/1.png", "cat/b/1.png", "cat/1.png", "dog/a/1.png", "dog/b/1.png"],
        ["train/cat/1.png", "train/dog/1.png", "test/cat/1.png", "test/dog/1.png"],
    ],
)
def test_folders_below_class_folders_are_no_reason_for_a_note(tmp_path: Path, names: list[str]) -> None:
    put(tmp_path, *names)
    assert load_folder(tmp_path).notes == ()
