"""CSV manifests: columns, paths, and a sentence with the line for each mistake."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.errors import EvenhandError
from evenhand.data._manifest import load_csv
from evenhand.data.splits import make_splits


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.png", "b.png", "c.png", "d.png", "deep/é, ü.png"):
        (folder / name).touch()
    (tmp_path / "outside.png").touch()
    return folder


def written(root: Path, text: str, encoding: str = "utf-8") -> Path:
    (root / "list.csv").write_bytes(text.encode(encoding))
    return root / "list.csv"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_paths_and_labels(root: Path, encoding: str, end: str) -> None:
    lines = ["path,label", "b.png,dog", "./a.png, cat ", "", '"deep/é, ü.png",dog', ""]
    table = load_csv(written(root, end.join(lines), encoding))
    assert table.name == "list"
    assert table.class_names == ("cat", "dog")
    assert table.labels.tolist() == [1, 0, 1]
    assert table.ids.tolist() == ["b.png", "a.png", "deep/é, ü.png"]
    assert table.splits is None
    assert table.groups is None
    assert table.notes == ()


def test_splits_groups_and_other_columns(root: Path) -> None:
    lines = "group,Label,path,split,weight\ng,x,a.png,train,1\n,y,b.png,Train,1\n,x,c.png,test,1\nh,y,d.png,TEST,1\n"
    table = load_csv(written(root, lines))
    assert table.splits.tolist() == ["train", "train", "test", "test"]
    assert table.groups[0] == "g"
    assert len(set(table.groups.tolist())) == 4
    assert table.notes == ("Ignored columns of list.csv: 'weight'.",)
    assert (table.info.flip, table.info.image_size) == (True, None)


def test_an_empty_split_column_fixes_nothing(root: Path) -> None:
    table = load_csv(written(root, "path,label,split\na.png,x,\nb.png,y,\n"))
    assert table.splits is None


def test_groups_keep_together(root: Path) -> None:
    lines = "path,label,group\na.png,x,1\nb.png,x,1\nc.png,x,2\nd.png,y,3\ndeep/é\\, ü.png,y,4\n"
    table = load_csv(written(root, lines.replace("deep/é\\, ü.png", '"deep/é, ü.png"')))
    splits = make_splits(table, val_fraction=0)
    assert not set(table.groups[splits.train]) & set(table.groups[splits.test])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "must start with a header line path,label"),
        ("path;label\na.png;x\n", "got 'path;label'"),
        ("path,label,label\na.png,x,y\n", "got 'path,label,label'"),
        ("path,label\n", "lists no images"),
        ("path,label\na.png,x\n", "only one class, 'x'"),
        ("path,label\na.png,x\nb.png, \n", "line 3: the label is empty"),
        ("path,label\n,x\n", "line 2: the path is empty"),
        ("path,label\na.png\n", "line 2: expected 2 fields, got 1"),
        ("path,label\na.png,x,y\n", "line 2: expected 2 fields, got 3"),
        ("path,label\na.png,x\nb.png,y\n./deep/../a.png,y\n", "line 4: 'a.png' is already in line 2"),
        ("path,label\n../outside.png,x\n", r"line 2: '\.\./outside\.png' leaves the folder"),
        ("path,label\ndeep/../../outside.png,x\n", r"line 2: '\.\./outside\.png' leaves the folder"),
        ("path,label\n/etc/passwd,x\n", "line 2: '/etc/passwd' leaves the folder"),
        ("path,label\ndeep,x\n", "line 2: 'deep' is not a file"),
        ("path,label\nq.png,x\na.png,y\n", r"names 1 file that is not there: 'q\.png' \(line 2\);"),
        (
            "path,label\nq,x\nr,y\ns,y\nt,y\n",
            r"4 files that are not there: 'q' \(line 2\), 'r' .*, 's' \(line 4\), \.\.\.;",
        ),
        ("path,label,split\na.png,x,train\nb.png,y,dev\n", "line 3: the split must be train, val or test, got 'dev'"),
        ("path,label,split\na.png,x,train\nb.png,y,\n", "line 3: the split must be train, val or test, got ''"),
        ("path,label,split\na.png,x,train\nb.png,y,train\n", "no test images"),
        ("path,label,split\na.png,x,train\nb.png,y,test\n", "only one of train and test: 'x', 'y'"),
        (
            "path,label,split,group\na.png,x,train,g\nb.png,y,train,h\nc.png,x,test,g\nd.png,y,test,i\n",
            "line 4: the group 'g' is in train and in test",
        ),
        ('path,label\n"a.png,x\n', "as CSV, line"),
    ],
)
def test_refusals(root: Path, lines: str, message: str) -> None:
    with pytest.raises(EvenhandError, match=message) as caught:
        load_csv(written(root, lines))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["link.png", "folder/outside.png"])
def test_links_that_leave_are_refused(root: Path, name: str) -> None:
    (root / "link.png").symlink_to(root.parent / "outside.png")
    (root / "folder").symlink_to(root.parent)
    with pytest.raises(EvenhandError, match=f"line 3: '{name}' is a link that leaves"):
        load_csv(written(root, f"path,label\na.png,x\n{name},y\n"))


def test_links_that_stay_are_read(root: Path) -> None:
    (root / "link.png").symlink_to("deep/é, ü.png")
    assert len(load_csv(written(root, "path,label\na.png,x\nlink.png,y\n"))) == 2


def test_not_utf8(root: Path) -> None:
    with pytest.raises(EvenhandError, match="not in UTF-8"):
        load_csv(written(root, "path,label\na.png,é\n", "latin-1"))
    with pytest.raises(EvenhandError, match=r"not in UTF-8|must start with"):
        load_csv(written(root, "path,label\na.png,x\n", "utf-16"))


def test_a_nul(root: Path) -> None:
    with pytest.raises(EvenhandError):
        load_csv(written(root, "path,label\na\0.png,x\nb.png,y\n"))


@given(content=st.one_of(st.binary(max_size=80), st.text(alphabet="path,lbe\n\"'.\r;\x00ab/é", max_size=80)))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_any_content_gives_one_sentence(tmp_path_factory: pytest.TempPathFactory, content: bytes | str) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    header = b"path,label\n" if isinstance(content, str) else b""
    path.write_bytes(header + (content if isinstance(content, bytes) else content.encode()))
    with pytest.raises(EvenhandError) as caught:
        load_csv(path)
    assert str(caught.value)


@pytest.mark.parametrize("kind", ["absolute", "dots", "link", "linked folder", "link to a link"])
def test_files_elsewhere_are_taken_where_that_is_allowed(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    for folder in (root, tmp_path / "elsewhere"):
        folder.mkdir()
        for name in ("a.png", "b.png"):
            (folder / name).touch()
    outside = tmp_path / "elsewhere"
    (root / "link.png").symlink_to(outside / "a.png")
    (root / "again.png").symlink_to("link.png")
    (root / "folder").symlink_to(outside)
    named = {
        "absolute": str(outside / "a.png"), "dots": "../elsewhere/a.png", "link": "link.png",
        "linked folder": "folder/a.png", "link to a link": "again.png",
    }[kind]  # fmt: skip
    (root / "list.csv").write_text(f"path,label\n{named},x\nb.png,y\n")
    with pytest.raises(EvenhandError, match="--allow-outside"):
        load_csv(root / "list.csv")
    table = load_csv(root / "list.csv", allow_outside=True)
    assert (table.pixels.root / table.pixels.paths[0]).samefile(outside / "a.png")
