"""`evenhand inspect` as a person types it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evenhand.cli import main
from tests.real_data import needs
from tests.trained import assert_one_sentence


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a command."""
    monkeypatch.setattr(sys, "argv", ["evenhand", *args])
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), out, err


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with the usual problems: a damaged file, a duplicate, a leak, a class that is too small."""
    rng = np.random.default_rng(0)
    root = tmp_path / "photos"
    for name, count in {"cat": 30, "dog": 12, "owl [bold]": 5}.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            image = Image.fromarray(rng.integers(0, 255, (20 + i % 2, 24, 3), dtype=np.uint8))
            image.save(root / name / f"{i}.png")
    (root / "cat" / "0.png").write_bytes(b"not a picture")
    (root / "dog" / "copy.png").write_bytes((root / "dog" / "1.png").read_bytes())
    return root


def test_digits_without_any_argument(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "inspect")
    assert code == 0
    assert "digits: 10 classes, 1,438 training images (143 of them for validation) and 359 test images" in out
    assert "nearly balanced" in out
    assert "guide objectives" not in out
    _, out, _ = run(capsys, monkeypatch, "inspect", "digits", "--imbalance", "exp:20")
    assert out.rstrip().endswith("`evenhand guide objectives`; `evenhand objectives` lists the parts.")
    assert "resembles" not in out, "the profile was asked for"
    assert "imbalance ratio 20.3\n" in out
    _, out, _ = run(capsys, monkeypatch, "inspect", "digits", "--imbalance", "exp:50")
    assert "imbalance ratio 71 (asked for: 50; the images of each class are rounded down)" in out


def test_imbalance_as_training_would_see_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run(capsys, monkeypatch, "inspect", "digits", "--imbalance", "exp:20", "--json")
    assert code == 0
    result = json.loads(out)
    assert [row["train"] for row in result["classes"]] == [142, 101, 72, 52, 37, 26, 19, 13, 9, 7]
    assert result["resembles"] == "exp:20"
    reversed_order = "9,8,7,6,5,4,3,2,1,0"
    _, out, _ = run(capsys, monkeypatch, "inspect", "--imbalance", "exp:20", "--class-order", reversed_order, "--json")
    counts = [row["train"] for row in json.loads(out)["classes"]]
    assert counts == sorted(counts)


def test_a_folder_with_troubles(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, photos: Path
) -> None:
    code, out, _ = run(capsys, monkeypatch, "inspect", str(photos))
    assert code == 0
    assert "cat/0.png" in out
    assert "--skip-bad" in out
    assert "dog/1.png" in out
    assert "dog/copy.png" in out
    assert "owl [bold]" in out, "a class name was read as markup"
    assert "24x20" in out
    assert "Too few test images to evaluate" in out
    assert "the seeds of compare rotate through all images" in " ".join(out.split())
    _, out, _ = run(capsys, monkeypatch, "inspect", str(photos), "--json")
    result = json.loads(out)
    assert list(result["unreadable"]) == ["cat/0.png"]
    (duplicate,) = result["duplicates"]
    assert sorted(duplicate["ids"]) == ["dog/1.png", "dog/copy.png"]
    assert duplicate["leaks"] == ("test" in duplicate["splits"] and len(set(duplicate["splits"])) > 1)


def test_classes_too_small_to_split_are_shown_and_can_be_dropped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, photos: Path
) -> None:
    for extra in sorted((photos / "owl [bold]").iterdir())[1:]:
        extra.unlink()
    code, out, _ = run(capsys, monkeypatch, "inspect", str(photos))
    assert code == 0
    assert "Prevents training" in out
    assert "--drop-small" in out
    code, out, _ = run(capsys, monkeypatch, "inspect", str(photos), "--drop-small")
    assert code == 0
    assert "2 classes" in out
    assert "Prevents training" not in out


def test_many_classes_are_cut_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    labels = np.repeat(np.arange(60), np.arange(60, 0, -1) + 4)
    images = np.arange(len(labels) * 16, dtype=np.uint32).view(np.uint8).reshape(len(labels), 8, 8)
    np.savez(tmp_path / "many.npz", train_images=images, train_labels=labels)
    code, out, _ = run(capsys, monkeypatch, "inspect", str(tmp_path / "many.npz"))
    assert code == 0
    assert "36 more (--json lists all)" in out


def test_figure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = tmp_path / "new" / "classes.png"
    code, out, _ = run(capsys, monkeypatch, "inspect", "--imbalance", "step:10", "--figure", str(target))
    assert code == 0
    assert str(target) in out.replace("\n", "")
    with Image.open(target) as image:
        assert image.width > 700


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["cifar12"], "did you mean cifar10"),
        (["nowhere/at/all"], "nowhere/at/all"),
        (["digits", "--imbalance", "exp:x"], "exp:x"),
        (["digits", "--imbalance", "exp:1000"], "would leave"),
        (["digits", "--class-order", "1,2", "--imbalance", "exp:2"], "all 10 class names"),
        (["digits", "--figure", "classes.gif"], "classes.gif"),
        (["digits", "--image-size", "0"], "image size"),
        (["digits:classes=3"], "digits takes no options"),
    ],
)
def test_mistakes_are_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: list[str], words: str
) -> None:
    assert_one_sentence(run(capsys, monkeypatch, "inspect", *args), words)


def test_help_and_version_are_quick_and_import_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['evenhand', '--help']\n"
        "import evenhand.cli\n"
        "try: evenhand.cli.main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'scipy', 'matplotlib'} & set(sys.modules), 'heavy imports'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "inspect" in done.stdout
    done = subprocess.run([sys.executable, "-m", "evenhand", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("evenhand ")


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m evenhand objectives | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.slow
@needs("road-marking")
def test_real_road_marking(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "inspect", "road-marking:split=runs", "--json")
    assert code == 0
    result = json.loads(out)
    assert sum(row["train"] + row["test"] for row in result["classes"]) == 1324
    assert not any(each["leaks"] for each in result["duplicates"])
