"""`evenhand evaluate` as a person types it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from evenhand.metrics.predictions import load_predictions
from evenhand.runs.comparison import Comparison
from evenhand.runs.comparison_schemas import ComparedRun
from evenhand.runs.summary import summarise
from evenhand.training import posthoc
from evenhand.training.run import train_run
from tests.trained import COUNTS, Trained, assert_one_sentence, config, draw, evenhand

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def copy(photos_run: Trained, tmp_path: Path) -> Path:
    """A run that a test may change."""
    return Path(shutil.copytree(photos_run.run, tmp_path / "copy"))


def test_its_own_test_set_again(capsys: Capture, monkeypatch: Patch, photos_run: Trained) -> None:
    before = {path: path.stat().st_mtime_ns for path in photos_run.run.rglob("*")}
    code, out, err = evenhand(capsys, monkeypatch, "evaluate", photos_run.run, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads((photos_run.run / "summary.json").read_text())
    assert before == {path: path.stat().st_mtime_ns for path in photos_run.run.rglob("*")}


def test_a_comparison_gives_its_recommended_run(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, copy: Path
) -> None:
    compared = Comparison(
        source="photos",
        imbalance="none",
        model="resnet8",
        baseline="cce",
        objectives=["cce"],
        seeds=[0],
        shot_rule="",
        runs=[ComparedRun(objective="cce", seed=0, folder=copy)],
        rows=[],
        differences=[],
        verdicts=["Use cce."],
        recommended="cce",
        method="",
        notes=[],
    )
    compared.write(copy.parent)
    code, out, err = evenhand(capsys, monkeypatch, "evaluate", copy.parent, "--json")
    assert code == 0
    assert err == "evenhand: using the recommended objective cce (undecided): copy\n"
    assert json.loads(out) == json.loads((photos_run.run / "summary.json").read_text())


def test_the_table_says_what_the_summary_does(capsys: Capture, monkeypatch: Patch, photos_run: Trained) -> None:
    code, out, _ = evenhand(capsys, monkeypatch, "evaluate", photos_run.run)
    assert code == 0
    summary = json.loads((photos_run.run / "summary.json").read_text())
    low, high = summary["balanced_accuracy_interval"]
    assert "cce, resnet8, on photos: 12 images" in out
    assert 0 < summary["balanced_accuracy"] < 1, "the pictures are too easy or too hard to show anything"
    headline = next(line for line in out.splitlines() if line.startswith("balanced accuracy"))
    assert headline.split()[2:] == [f"{summary['balanced_accuracy']:.1%}", f"{low:.1%}", "to", f"{high:.1%}"]
    for row in summary["per_class"]:
        line = next(line for line in out.splitlines() if line.startswith(row["name"]) and row["group"] in line)
        low, high = row["recall_interval"]
        shares = [f"{row[key]:.1%}" for key in ("precision", "f1")]
        counts = [str(row["train_count"]), str(row["test_count"])]
        found = [*counts, f"{row['recall']:.1%}", f"{low:.1%}", "to", f"{high:.1%}", *shares, row["group"]]
        assert line.removeprefix(row["name"]).split() == found
    assert "öwl [bold]" in out, "a class name was read as markup"
    assert low < high, "no interval is without width"
    worst = next(line.rstrip() for line in out.splitlines() if line.startswith("worst class"))
    assert worst.split(maxsplit=3)[2:] == [f"{summary['worst_class']['recall']:.1%}", summary["worst_class"]["name"]]


@pytest.mark.parametrize("select", ["best", "last"])
def test_files_that_are_missing_or_damaged_are_written_again(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path, select: str
) -> None:
    run = train_run(config(photos_run.photos, select=select), tmp_path / "run").path
    names = ("summary.json", "predictions.npz")
    before = [(run / name).read_bytes() for name in names]
    (run / "summary.json").unlink()
    (run / "predictions.npz").write_bytes(before[1][:500])
    code, _, err = evenhand(capsys, monkeypatch, "evaluate", run)
    assert code == 0
    assert err.count("wrote") == 2
    assert [(run / name).read_bytes() for name in names] == before


def test_the_test_set_stays_when_images_are_added(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    photos = draw(tmp_path / "photos", COUNTS)
    run = train_run(config(photos, epochs=1), tmp_path / "run").path
    for number in range(20):
        shutil.copy(photos / "dog" / "0.png", photos / "dog" / f"again{number}.png")
    draw(photos, {"emu": 3})
    code, out, err = evenhand(capsys, monkeypatch, "evaluate", run, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads((run / "summary.json").read_text())
    lost = str(load_predictions(run / "predictions.npz").ids[0])
    (photos / lost).write_bytes(b"no picture")
    result = evenhand(capsys, monkeypatch, "evaluate", run)
    assert_one_sentence(result, lost)
    assert "--skip-bad" not in result[2], "a test set is judged whole"
    (photos / lost).unlink()
    assert_one_sentence(evenhand(capsys, monkeypatch, "evaluate", run), f"1 of 12 images that {run} names")


def test_a_summary_that_says_otherwise_is_told_and_mended(capsys: Capture, monkeypatch: Patch, copy: Path) -> None:
    content = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps({**content, "balanced_accuracy": 0.123}))
    code, out, err = evenhand(capsys, monkeypatch, "evaluate", copy, "--json")
    assert code == 0
    assert json.loads(out)["balanced_accuracy"] == content["balanced_accuracy"]
    assert "Cannot use summary.json: its balanced_accuracy is 0.123, but the predictions give" in err
    assert json.loads((copy / "summary.json").read_text())["balanced_accuracy"] == content["balanced_accuracy"]


def test_another_source_by_the_names_of_its_classes(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path
) -> None:
    other = draw(tmp_path / "other", {"dog": 6, "öwl [bold]": 5}, seed=9)
    target = tmp_path / "judged"
    code, out, err = evenhand(capsys, monkeypatch, "evaluate", photos_run.run, other, "--json", "--out", target)
    assert code == 0
    assert err.count("wrote") == 2
    summary, predictions = json.loads(out), load_predictions(target / "predictions.npz")
    assert json.loads((target / "summary.json").read_text()) == summary
    assert predictions.class_names == tuple(COUNTS)
    assert predictions.targets.tolist() == [1] * 6 + [2] * 5
    assert predictions.train_counts.tolist() == [24, 16, 8]
    assert summary["absent_classes"] == ["cat, tabby"]
    assert (summary["source"], summary["split"], summary["images"]) == ("other", "all", 11)
    assert summary.items() >= summarise(predictions).items()
    code, out, _ = evenhand(capsys, monkeypatch, "evaluate", photos_run.run, other)
    assert "on other (all of it): 11 images" in out
    assert "in no mean: 'cat, tabby'" in out
    assert_one_sentence(evenhand(capsys, monkeypatch, "evaluate", photos_run.run, other, "--out", target), "exists")


def test_of_a_source_with_splits_the_test_images_only(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path
) -> None:
    for split, count in {"train": 4, "test": 3}.items():
        draw(tmp_path / "split" / split, dict.fromkeys(("dog", "cat, tabby"), count))
    code, out, _ = evenhand(capsys, monkeypatch, "evaluate", photos_run.run, tmp_path / "split", "--json")
    assert code == 0
    summary = json.loads(out)
    assert (summary["split"], summary["images"]) == ("test", 6)


def test_arrays_of_other_channels(capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 30, 20), dtype=np.uint8)
    names = np.array(["dog", "cat, tabby"])
    np.savez(tmp_path / "grey.npz", train_images=images, train_labels=np.arange(6) % 2, class_names=names)
    code, out, err = evenhand(capsys, monkeypatch, "evaluate", photos_run.run, tmp_path / "grey.npz", "--json")
    assert code == 0, err
    assert json.loads(out)["images"] == 6


def test_training_images_among_them_are_told(capsys: Capture, monkeypatch: Patch, photos_run: Trained) -> None:
    code, out, err = evenhand(capsys, monkeypatch, "evaluate", photos_run.run, photos_run.photos, "--json")
    assert code == 0
    assert json.loads(out)["images"] == 60
    assert "48 of these 60 images" in err


def test_unreadable_images(capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path) -> None:
    other = draw(tmp_path / "other", {"dog": 3, "cat, tabby": 2})
    (other / "dog" / "1.png").write_bytes(b"no picture")
    assert_one_sentence(evenhand(capsys, monkeypatch, "evaluate", photos_run.run, other), "dog/1.png")
    code, out, _ = evenhand(capsys, monkeypatch, "evaluate", photos_run.run, other, "--skip-bad", "--json")
    assert code == 0
    summary = json.loads(out)
    assert summary["images"] == 4
    assert summary["notes"] == ["Left out as unreadable: 1 of 5 images: 'dog/1.png'."]


def test_evened_weights_read_images_as_they_are_told_to(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    photos = draw(tmp_path / "photos", COUNTS)
    run = train_run(config(photos, epochs=1), tmp_path / "run").path
    damaged, moved = (photos / str(name) for name in load_predictions(run / "predictions.npz").ids[:2])
    damaged.write_bytes(b"no picture")
    moved.rename(tmp_path / "elsewhere.png")
    moved.symlink_to(tmp_path / "elsewhere.png")
    command = ["evaluate", run, "--normalise", "1", "--json"]
    assert_one_sentence(evenhand(capsys, monkeypatch, *command, "--skip-bad"), "--allow-outside")
    assert_one_sentence(evenhand(capsys, monkeypatch, *command, "--allow-outside"), "--skip-bad leaves such images out")
    roots = []
    real = posthoc.load_source
    monkeypatch.setattr(posthoc, "load_source", lambda *a, **b: roots.append(b["data_root"]) or real(*a, **b))
    options = ["--skip-bad", "--allow-outside", "--data-root", tmp_path]
    code, out, err = evenhand(capsys, monkeypatch, *command, *options)
    assert (code, roots) == (0, [tmp_path])
    assert "Left out as unreadable: 1 of 12 test images." in err
    assert json.loads(out)["images"] == 11


def test_mistakes_are_one_sentence(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, copy: Path, tmp_path: Path
) -> None:
    def refused(words: str, *args: str | Path) -> None:
        assert_one_sentence(evenhand(capsys, monkeypatch, "evaluate", *args), words)

    refused("There is no run", tmp_path / "nowhere")
    refused("is no run: it has no config.yaml", tmp_path)
    refused("is a file; give the folder", photos_run.run / "weights" / "best.safetensors")
    refused("did you mean digits", photos_run.run, "digit")
    refused("The model knows none of the classes of digits, '0', '1'", photos_run.run, "digits")
    for option in (["--data-root", "."], ["--skip-bad"], ["--allow-outside"]):
        for wish in (["--adjust", "1"], ["--prior", "train"]):
            refused(f"{option[0]} is for reading images, which --adjust and --prior do not", copy, *wish, *option)
    for name in ("--skip-bad", "--allow-outside"):
        refused(f"{name} is for the images of SOURCE", copy, name)
    (copy / "splits.json").write_text("{")
    refused("splits.json: ", copy)
    weights = copy / "weights" / "best.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    refused("damaged", copy)
    (copy / "weights" / "last.safetensors").unlink()
    refused("best.safetensors, the best epoch so far.", copy)
