"""Names that a terminal, a browser or a spreadsheet would obey are shown spelled out by every verb."""

import contextlib
import csv
import importlib
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from evenhand.cli import EXAMPLES
from evenhand.core.cache import clear_cache, list_cache
from evenhand.core.extras import how_to_install
from evenhand.core.files import write_csv
from evenhand.core.text import json_line, plain_cell, visible
from evenhand.report.page import write_report
from tests.trained import Trained, config, draw, evenhand

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

HOSTILE = {
    "colour": "\x1b[31mred",
    "title of the window": "\x1b]0;mine\x07",
    "clear the screen": "\x1b[2J\x1b[H",
    "one byte escape": "\x9b31mred",
    "right to left": "cat\u202egnp.exe",
    "isolated": "\u2067cat\u2069",
    "mark": "\u200fcat\u200e",
    "tag": "cat\U000e0041",
    "line separator": "cat\u2028dog",
    "carriage return": "good\rbad",
    "backspace": "bad\b\b\bgood",
    "null width": "\ufeffcat",
}
FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1+1", "|calc", "%appdata%"]


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_that_is_obeyed_stays(kind: str) -> None:
    shown = visible(HOSTILE[kind])
    assert shown.isprintable()
    assert shown != HOSTILE[kind]
    assert json.loads(json_line([HOSTILE[kind]])) == [HOSTILE[kind]]
    assert json_line([HOSTILE[kind]]).isprintable()


@pytest.mark.parametrize("name", ["été", "猫", "قطة", "👩‍🚀", "می‌خواهم", "a b", "naïve_1"])
def test_names_of_every_script_stay_as_they_are(name: str) -> None:
    assert visible(name) == name
    assert json_line([name]) == f'["{name}"]'


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_made_text(text: str) -> None:
    cell = plain_cell(text)
    assert isinstance(cell, str)
    assert cell == f"'{text}"


@pytest.mark.parametrize("value", ["cat", "a=b", "1.5", "", "dog (-1)", -0.5, 3, None])
def test_other_cells_stay(value: object) -> None:
    assert plain_cell(value) == value


NAMES = [HOSTILE["colour"], HOSTILE["right to left"], "=1+1"]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run whose classes have the worst of names, and its pictures."""
    from evenhand.training.run import train_run

    folder = tmp_path_factory.mktemp("odd")
    photos = draw(folder / "photos", dict.fromkeys(NAMES, 12))
    return Trained(train_run(config(photos), folder / "run").path, photos)


def assert_spelled_out(*texts: str) -> None:
    for text in texts:
        assert visible(text, keep="\n") == text
    told = "".join(texts)
    assert "\\x1b[31mred" in told or "\\u001b[31mred" in told
    assert "\\u202e" in told


def test_verbs_show_names_spelled_out(capsys: Capture, monkeypatch: Patch, odd: Trained, tmp_path: Path) -> None:
    for command in (
        ("inspect", odd.photos),
        ("inspect", odd.photos, "--json"),
        ("evaluate", odd.run),
        ("evaluate", odd.run, "--json"),
        ("predict", odd.run, odd.photos, "--json"),
    ):
        code, out, err = evenhand(capsys, monkeypatch, *command)
        assert code == 0, err
        assert_spelled_out(out, err)
    code, _, err = evenhand(capsys, monkeypatch, "evaluate", odd.run, draw(tmp_path / "x", {"\x1b[31mred\u202e": 2}))
    assert code == 2
    assert_spelled_out(err)
    code, _, err = evenhand(capsys, monkeypatch, "inspect", "\x1b[31mred\u202e")
    assert code == 2
    assert_spelled_out(err)


def test_the_page_shows_names_spelled_out(odd: Trained, tmp_path: Path) -> None:
    page = write_report([odd.run], tmp_path / "page.html", embedding=False).read_text(encoding="utf-8")
    assert_spelled_out(page)


def test_predictions_for_spreadsheets_and_raw(
    capsys: Capture, monkeypatch: Patch, odd: Trained, tmp_path: Path
) -> None:
    shutil.copytree(odd.photos / "=1+1", tmp_path / "=inbox")
    monkeypatch.chdir(tmp_path)
    _, quoted, _ = evenhand(capsys, monkeypatch, "predict", odd.run, "=inbox")
    _, raw, _ = evenhand(capsys, monkeypatch, "predict", odd.run, "=inbox", "--raw")
    safe, plain = (list(csv.reader(io.StringIO(text, newline=""))) for text in (quoted, raw))
    assert len(safe) == len(plain) == 13
    for one, other in zip(safe[1:], plain[1:], strict=True):
        assert one[0] == f"'{other[0]}"
        assert sorted(other[1::2]) == sorted(NAMES)
        assert [plain_cell(name) for name in other[1::2]] == one[1::2]
        assert one[2::2] == other[2::2]


def test_predictions_on_a_terminal_are_spelled_out(capsys: Capture, monkeypatch: Patch, odd: Trained) -> None:
    module = importlib.import_module("evenhand.cli.predict")
    monkeypatch.setattr(module, "_output", lambda *_: contextlib.nullcontext(Terminal()))
    written.clear()
    code, _, _ = evenhand(capsys, monkeypatch, "predict", odd.run, odd.photos)
    assert code == 0
    assert_spelled_out("".join(written))


@pytest.mark.parametrize("text", FORMULAS)
def test_tables_for_spreadsheets_and_raw(tmp_path: Path, text: str) -> None:
    for raw, cell in ((False, f"'{text}"), (True, text)):
        write_csv(tmp_path / "x.csv", [{"name": text, "recall": -0.5}], raw=raw)
        with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
            assert list(csv.DictReader(file)) == [{"name": cell, "recall": "-0.5"}]


@pytest.mark.usefixtures("undrawn")
def test_compare_quotes_classes_unless_raw(capsys: Capture, monkeypatch: Patch, odd: Trained, tmp_path: Path) -> None:
    asked = ("compare", odd.photos, "--recipe", "small", "--epochs", "1", "--seeds", "1", "--objectives", "ce,cce")
    for more, quoted in (((), plain_cell), (("--raw",), str)):
        code, _, err = evenhand(capsys, monkeypatch, *asked, "--quiet", "--out", tmp_path / "both", *more)
        assert code == 0, err
        with (tmp_path / "both" / "per_class.csv").open(newline="", encoding="utf-8") as file:
            assert sorted(row["name"] for row in csv.DictReader(file)) == sorted(map(quoted, NAMES))


written: list[str] = []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written.append(text)
        return len(text)


PARTS = ["config", "config show", "config copy", "cache", "cache list", "cache clear"]


@pytest.mark.parametrize("verb", [verb.__name__ for verb in EXAMPLES] + PARTS)
def test_each_help_ends_with_two_examples(capsys: Capture, monkeypatch: Patch, verb: str) -> None:
    code, out, _ = evenhand(capsys, monkeypatch, *verb.split(), "--help")
    assert code == 0
    *_, heading, first, second = [line.strip() for line in out.splitlines() if line.strip()]
    assert heading == "Examples:"
    assert first.startswith(f"evenhand {verb}")
    assert second.startswith(f"evenhand {verb}")


@pytest.mark.parametrize(
    "extra", ["timm", "onnx", "serve", "ray", "slurm", "tensorboard", "wandb", "mlflow", "trackio", "datasets"]
)
def test_hints_name_packages_that_an_index_has(extra: str) -> None:
    command = how_to_install(extra)
    assert command.startswith("pip install ")
    assert "evenhand" not in command
    assert ">=" in command


def test_the_cache_is_listed_and_cleared(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setattr("evenhand.core.cache.platformdirs.user_cache_path", lambda *_, **__: tmp_path)
    for name, size in {
        "pixels/a.pixels": 2_500_000,
        "features/b.npz": 10,
        "backbones/f.pth": 1,
        "data/c/d.gz": 999,
        "old/e": 1,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    outside = tmp_path.parent / "outside"
    outside.mkdir()
    (outside / "keep").touch()
    _, out, _ = evenhand(capsys, monkeypatch, "cache")
    lines = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert "2 MB" in lines["pixels"]
    assert "999 bytes" in lines["data"]
    assert "5 files" in lines["all"]
    assert "no folder 'nothing'" in evenhand(capsys, monkeypatch, "cache", "clear", "nothing")[2]
    assert "removed features" in evenhand(capsys, monkeypatch, "cache", "clear", "features")[1]
    assert [part.files for part in list_cache()] == [1, 0, 0, 1, 1, 1]
    shutil.rmtree(tmp_path / "old")
    (tmp_path / "old").symlink_to(outside)
    evenhand(capsys, monkeypatch, "cache", "clear")
    kept = {"pixels": 0, "features": 0, "tables": 0, "backbones": 1, "data": 1}
    assert {part.name: part.files for part in list_cache()} == kept
    assert (outside / "keep").exists()
    assert clear_cache() == []


def test_every_setting_is_explained(capsys: Capture, monkeypatch: Patch) -> None:
    from evenhand.runs.config import make_config
    from evenhand.runs.settings import list_settings

    _, out, _ = evenhand(capsys, monkeypatch, "config", "show")

    def keys(content: dict[str, object], prefix: str = "") -> Iterator[str]:
        for key, value in content.items():
            if isinstance(value, dict):
                yield from keys(value, f"{prefix}{key}.")
            else:
                yield prefix + key

    named = {each.key: each for each in list_settings()}
    assert set(named) == set(keys(make_config().model_dump()))
    for each in named.values():
        assert each.help.endswith("."), each.key
        assert each.help in out
        assert f"  {each.key} = " in out
    assert "erm" in named["objective"].help
    # 1 and 0 are neither true nor false, and what is shown is what YAML reads.
    shown = dict(line.strip().split("  (")[0].split(" = ", 1) for line in out.splitlines() if " = " in line)
    for key in ("seed", "compute.nodes", "data.fraction", "compute.compile", "schedule.milestones", "start.weights"):
        default = named[key].default
        assert yaml.safe_load(shown[key]) == (list(default) if isinstance(default, tuple) else default)
        assert shown[key] not in ("true", "false") or isinstance(default, bool)
