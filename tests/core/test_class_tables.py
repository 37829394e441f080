"""Files of class weights, shares and costs: as spreadsheets write them, and every mistake as one sentence."""

import json
from pathlib import Path

import pandas as pd
import pytest

from evenhand.core.class_tables import read_class_values, reading
from evenhand.core.errors import EvenhandError

NAMES = ["lynx", "cat"]
VALUES = {"lynx": 20.0, "cat": 1.5}


@pytest.mark.parametrize(
    "text",
    [
        "cat,1.5\nlynx,20\n",
        "class,weight\ncat,1.5\nlynx,20\n",
        "\ufeffKlasse;Gewicht\r\ncat;1.5\r\nlynx;20\r\n",
        'class\tweight\n"cat"\t1.5\n lynx \t 20 \n',
        "cat,1.5,,\n,,,\nlynx,20,,\n",
        "cat,15e-1\n\n\nlynx,2e1",
    ],
)
@pytest.mark.parametrize("names", [None, NAMES])
def test_tables_as_programs_write_them(tmp_path: Path, text: str, names: list[str] | None) -> None:
    path = tmp_path / "values.csv"
    path.write_text(text, encoding="utf-8")
    found = read_class_values(path, "weight", names)
    assert found == VALUES
    assert names is None or list(found) == names


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_tables_are_read_as_pandas_reads_them(tmp_path: Path, mark: str) -> None:
    names = ["a, b", "c;d", "e\tf", "1", "0.5", 'say "x"', "Löwe"]
    frame = pd.DataFrame({"class": names, "share": [0.1 * k + 1e-9 for k in range(7)]})
    frame.to_csv(tmp_path / "values.csv", sep=mark, index=False)
    # pandas 2 (the last for Python 3.10) reads numbers to the last bit only where it is asked to.
    expected = pd.read_csv(tmp_path / "values.csv", sep=mark, dtype={"class": str}, float_precision="round_trip")
    found = read_class_values(tmp_path / "values.csv", "share", names)
    assert found == expected.set_index("class")["share"].to_dict()


def test_json_is_an_object(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    path.write_text(json.dumps(VALUES))
    assert read_class_values(path, "share", NAMES) == VALUES


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "cat,1\n", "its rows lack 'lynx'; give a share for every class"),
        ("a.csv", "cat,1\nlynx,2\ndog,3\n", "its rows have unknown classes: 'dog'; the model knows 'lynx', 'cat'"),
        ("a.csv", "cat,1\nlynx,2\ncat,3\n", "'cat' is given twice in its rows"),
        ("a.csv", "cat,nan\nlynx,2\n", "the share of 'cat' must be finite, got nan"),
        ("a.csv", "cat,1e999\nlynx,2\n", "the share of 'cat' must be finite, got 1e999"),
        ("a.csv", "cat,1_5\nlynx,2\n", "the share of 'cat' must be a number, got '1_5'"),
        ("a.csv", "cat,1e101\nlynx,2\n", "the share of 'cat' must be at most 1e+100, got 1e101"),
        ("a.csv", "cat,0\nlynx,2\n", "the share of 'cat' must be above 0, got 0"),
        ("a.csv", "cat,-1\nlynx,2\n", "the share of 'cat' must be above 0, got -1"),
        ("a.csv", "cat;0,3\nlynx;0,7\n", "the share of 'cat' must be a number, got '0,3'"),
        ("a.csv", "cat,1,why\nlynx,2\n", "each row must have a class and its share, got 'cat,1,why'"),
        ("a.csv", "cat,\nlynx,2\n", "each row must have a class and its share, got 'cat'"),
        ("a.csv", "", "its rows lack 'cat', 'lynx'; give a share for every class"),
        ("a.json", '{"cat": 1, "cat": 2}', "'cat' is given twice in its rows"),
        ("a.json", '{"cat": [1], "lynx": 2}', "the share of 'cat' must be a number, got [1]"),
        ("a.json", '{"cat": true, "lynx": 2}', "the share of 'cat' must be a number, got True"),
        ("a.json", '{"cat": null, "lynx": 2}', "the share of 'cat' must be a number, got None"),
        ("a.json", '{"cat": NaN, "lynx": 2}', "the share of 'cat' must be finite, got nan"),
        ("a.json", '{"cat": 1' + "0" * 400 + ', "lynx": 2}', "the share of 'cat' must be a number, got 1000"),
        ("a.json", "[1, 2]", "it must hold one object, of classes and the share of each"),
        ("a.json", "{", "Expecting property name enclosed in double quotes"),
        ("a.json", "[" * 100_000, "it is nested too deeply"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(EvenhandError) as refused, reading(path, "class shares"):
        read_class_values(path, "share", NAMES, positive=True)
    assert str(refused.value).startswith(f"Cannot read class shares from {path}: {message}")
    assert str(refused.value).count("\n") == 0
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("content", ["cat,1\n".encode("utf-16"), b"\xff\xfe\x00", b"cat,\x00\nlynx,1\n", b"\x00" * 99])
def test_bytes_that_are_no_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(EvenhandError, match=r"^Cannot read class shares from "), reading(path, "class shares"):
        read_class_values(path, "share", NAMES)
    path.write_bytes("c\u00e4t,1\nlynx,2\n".encode("cp1252"))  # as Excel writes a plain CSV
    with pytest.raises(EvenhandError) as refused, reading(path, "class shares"):
        read_class_values(path, "share", NAMES)
    assert str(refused.value).endswith(": it is not UTF-8 text; save it as CSV in UTF-8.")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    with pytest.raises(EvenhandError) as refused, reading(path, "class weights"):
        read_class_values(path, "weight")
    assert str(refused.value) == f"Cannot read class weights from {path}: No such file or directory."
