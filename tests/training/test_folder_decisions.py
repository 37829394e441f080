"""What a model folder decides: the same as the run that it was exported from, from the folder alone."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import evenhand
from evenhand.cli import app
from evenhand.core.errors import EvenhandError
from evenhand.runs.run import Run
from evenhand.runs.unsure import answer_rule, set_rule
from evenhand.training import model_folder
from evenhand.training.cost_files import read_costs
from evenhand.training.decisions import load_unsure
from evenhand.training.model_folder import export_folder
from evenhand.training.posthoc import AdjustmentRequest, evaluate_adjusted
from evenhand.training.run import train_run
from tests.training.runs import tiny

CALIBRATED = "data.calibration_fraction=0.2"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(tiny(CALIBRATED, objective="ce"), tmp_path_factory.mktemp("calibrated") / "run")


@pytest.fixture(autouse=True)
def no_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out ONNX, whose export takes seconds."""
    monkeypatch.setattr(model_folder.importlib.util, "find_spec", lambda _: None)


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    path = tmp_path / "costs.csv"
    path.write_text("class,cost\n" + "".join(f"{k},{1 + 3000 * (k == 9)}\n" for k in range(10)))
    return path


@pytest.fixture
def shares(tmp_path: Path) -> Path:
    path = tmp_path / "secret place" / "shares.csv"
    path.parent.mkdir()
    path.write_text("".join(f"{k},{k + 1}\n" for k in range(10)))
    return path


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (8, 8, 1), dtype=np.uint8) for _ in range(40)]


def moved(folder: Path) -> Path:
    """Return the folder elsewhere: nothing outside it is needed."""
    return Path(shutil.move(folder, folder.with_name("moved")))


def assert_same_answers(folder: Path, run: Path, images: list[np.ndarray], **asked: float) -> None:
    (own,), (other,) = (load_unsure(path, device="cpu", **asked).stream(images) for path in (folder, run))
    np.testing.assert_array_equal(own.probabilities, other.probabilities)
    for name in ("sets", "answered"):
        expected = getattr(other, name)
        assert (getattr(own, name) is None) == (expected is None)
        np.testing.assert_array_equal(getattr(own, name), expected)


@pytest.mark.parametrize("adjusted", [False, True])
def test_sets_and_answers_are_those_of_the_run(
    run: Run, images: list[np.ndarray], tmp_path: Path, adjusted: bool
) -> None:
    source = Run(Path(shutil.copytree(run.path, tmp_path / "run")))
    if adjusted:
        evaluate_adjusted(source.path, AdjustmentRequest(adjust="1.3"))
    folder = moved(export_folder(source.path, tmp_path / "model").path)
    for asked in (
        {"coverage": 0.8},
        {"coverage": 0.55},
        {"min_precision": 0.2},
        {"coverage": 0.7, "min_precision": 0.3},
    ):
        assert_same_answers(folder, source.path, images, **asked)
        own, other = (load_unsure(path, **asked).describe() for path in (folder, source.path))
        assert own == other
    rules = set_rule(Run(folder), 0.8), set_rule(source, 0.8)
    np.testing.assert_array_equal(*(rule.calibration.thresholds(0.8) for rule in rules))


@pytest.mark.parametrize("prior", ["uniform", "train", "file"])
def test_class_shares_and_costs_are_those_of_the_run(
    run: Run, images: list[np.ndarray], costs: Path, shares: Path, tmp_path: Path, prior: str
) -> None:
    given = str(shares) if prior == "file" else prior
    folder = moved(export_folder(run.path, tmp_path / "model").path)
    for options in ({"prior": given}, {"prior": given, "costs": costs}, {"costs": costs}):
        own, other = (evenhand.load(path, device="cpu", **options) for path in (folder, run.path))
        found, expected = own.predict(images), other.predict(images)
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)
        assert found.labels == expected.labels
    stored = moved(export_folder(run.path, tmp_path / "stored", costs=costs, prior=given).path)
    expected = evenhand.load(run.path, device="cpu", costs=costs, prior=given).predict(images)
    found = evenhand.load(stored, device="cpu").predict(images)
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)
    assert found.labels == expected.labels
    assert any(
        label != names
        for label, names in zip(found.labels, evenhand.load(run.path).predict(images).labels, strict=True)
    )
    again = evenhand.load(stored, costs=costs, device="cpu").predict(images)  # for the class shares of the folder
    np.testing.assert_array_equal(again.probabilities, expected.probabilities)
    np.testing.assert_array_equal(evenhand.load(stored).costs, read_costs(costs, run.predictions.class_names))
    assert all(str(shares.parent) not in path.read_text("utf-8") for path in stored.glob("*.[jm][sd]*"))
    assert "secret place" not in (stored / "decisions.json").read_text()


def test_the_card_states_what_is_guaranteed(run: Run, costs: Path, tmp_path: Path) -> None:
    plain = (export_folder(run.path, tmp_path / "plain").path / "README.md").read_text("utf-8")
    number = len(run.splits.calibration)
    assert f"{number} calibration images, which were not trained on, allow prediction sets" in plain
    assert "5 of 10 classes have the 9 that this needs" in plain
    folder = export_folder(run.path, tmp_path / "sets", coverage=0.8, min_precision=0.2).path
    card = (folder / "README.md").read_text("utf-8")
    assert f"with a probability of at least 0.8; calibrated on {number} calibration images." in card
    assert "In every set, with fewer than 4 calibration images: '5 (0)'" in card
    assert "Answers have a precision of at least 0.2 in each shot group, with 90% confidence" in card
    sets = set_rule(run, 0.8).sets([np.exp(run.predictions.log_probabilities())])
    assert f"{(sets.sum(1) > 1).mean():.1%} of them several" in card
    answered = answer_rule(run, 0.2).answered(np.exp(run.predictions.log_probabilities()))
    assert f"it was unsure about {1 - answered.mean():.1%}" in card
    stored = json.loads((folder / "decisions.json").read_text())
    thresholds = set_rule(run, 0.8).calibration.thresholds(0.8)
    assert stored["set_thresholds"] == [None if np.isinf(each) else each for each in thresholds]
    assert stored["coverage"] == 0.8
    priced = (export_folder(run.path, tmp_path / "costs", costs=costs).path / "README.md").read_text("utf-8")
    assert "It decides for the class of least expected cost" in priced
    assert "for these class shares where the model is used: uniform." in priced


def test_a_run_without_calibration_images_promises_nothing(tmp_path: Path) -> None:
    plain = train_run(tiny(objective="label-smoothing", epochs=1), tmp_path / "run")
    for asked in ({"coverage": 0.9}, {"min_precision": 0.9}):
        with pytest.raises(EvenhandError, match=r"has no calibration images.*--set data.calibration_fraction=0.2"):
            export_folder(plain.path, tmp_path / "none", **asked)
    assert not (tmp_path / "none").exists()
    folder = export_folder(plain.path, tmp_path / "model").path
    assert "--coverage and --min-precision are refused" in (folder / "README.md").read_text("utf-8").replace("\\", "")
    for asked in ({"coverage": 0.9}, {"min_precision": 0.9}):
        with pytest.raises(EvenhandError, match=r"model has no calibration images, as the run.*, and export that\."):
            load_unsure(folder, **asked)
    with pytest.raises(
        EvenhandError, match=r"was trained with ce.label-smoothing, whose probabilities hold for no known"
    ):
        evenhand.load(folder, prior="uniform")
    with pytest.raises(EvenhandError, match=r"model was trained with ce.label-smoothing"):
        evenhand.load(folder, costs=tmp_path / "costs.csv")


def test_a_normalised_network_has_no_class_shares_and_no_calibration(run: Run, tmp_path: Path) -> None:
    source = Run(Path(shutil.copytree(run.path, tmp_path / "run")))
    evaluate_adjusted(source.path, AdjustmentRequest(normalise="0.7"))
    folder = export_folder(source.path, tmp_path / "model").path
    stored = json.loads((folder / "decisions.json").read_text())
    assert stored["logits_prior"] is stored["calibration"] is None
    with pytest.raises(EvenhandError, match="was adjusted"):
        export_folder(source.path, tmp_path / "other", coverage=0.8)
    with pytest.raises(EvenhandError, match="hold for no known class shares"):
        evenhand.load(folder, prior="uniform")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 0.9, "costs": "costs.csv"}, "--costs cannot be combined with --coverage or --min-precision"),
        ({"min_precision": 0.9, "prior": "train"}, "--prior cannot be combined with --coverage or --min-precision"),
        ({"coverage": 1.0}, "--coverage takes a number above 0 and below 1, such as 0.9, got 1."),
        ({"min_precision": 0.9999}, "A precision of 0.9999 cannot be shown for any answer"),
        ({"prior": "nowhere.csv"}, "Cannot read class shares from nowhere.csv: No such file or directory."),
        ({"costs": "nowhere.csv"}, "Cannot read costs from nowhere.csv: No such file or directory."),
    ],
)
def test_what_cannot_be_exported_writes_nothing(
    run: Run, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(EvenhandError) as refused:
        export_folder(run.path, tmp_path / "model", **options)  # type: ignore[arg-type]
    assert str(refused.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_prior": [1.0]}, "train_prior has 1 entries for 10 classes"),
        ({"class_names": [str(k) for k in range(9, -1, -1)]}, "is of other classes than its weights"),
        ({"costs": [[1.0] * 9] * 10}, "costs must have 10 columns"),
        ({"coverage": 1.5}, "coverage: input should be less than 1"),
        ({"calibration": None, "coverage": 0.9}, "it has a coverage or a precision without calibration"),
        ({"calibration": {"targets": [10], "own": [1.0], "predicted": [1], "confidence": [1.0]}}, "classes above 9"),
        ({"calibration": {"targets": [1], "own": [], "predicted": [1], "confidence": [1.0]}}, "differ in length"),
        ({"calibration": {"targets": [1], "own": [2.0], "predicted": [1], "confidence": [1.0]}}, "calibration.own.0"),
        ({"train_counts": "many"}, "train_counts: input should be a valid"),
        ("{", "invalid JSON"),
        ("[" * 10_000, "Cannot read"),
    ],
)
def test_a_changed_file_is_one_sentence(
    run: Run, tmp_path: Path, change: dict[str, object] | str, message: str
) -> None:
    folder = export_folder(run.path, tmp_path / "model").path
    file = folder / "decisions.json"
    file.write_text(change if isinstance(change, str) else json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(EvenhandError) as refused:
        evenhand.load(folder)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_folders_of_earlier_versions_are_loaded(run: Run, images: list[np.ndarray], tmp_path: Path) -> None:
    folder = export_folder(run.path, tmp_path / "model").path
    (folder / "decisions.json").unlink()
    expected = evenhand.load(run.path).predict(images).probabilities
    np.testing.assert_array_equal(evenhand.load(folder).predict(images).probabilities, expected)
    for ask in (lambda: load_unsure(folder, coverage=0.9), lambda: evenhand.load(folder, prior="train")):
        with pytest.raises(EvenhandError, match=r"has no decisions.json, which .* need; export it again\."):
            ask()


def test_a_model_folder_is_named_where_a_run_is_needed(run: Run, costs: Path, tmp_path: Path) -> None:
    folder = export_folder(run.path, tmp_path / "model").path
    for args in (
        ["evaluate", folder],
        ["evaluate", folder, "--costs", costs],
        ["evaluate", folder, "--coverage", "0.9"],
        ["export", folder, "--folder", tmp_path / "again"],
    ):
        done = CliRunner().invoke(app, list(map(str, args)))
        assert isinstance(done.exception, EvenhandError)
        assert "model is no run: it is a model folder, for predict and load; give the run" in str(done.exception)
    assert not (tmp_path / "again").exists()


def test_the_command_line_answers_as_exported(run: Run, costs: Path, tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 90, np.uint8)).save(tmp_path / "a.png")
    call = CliRunner()

    def row(model: Path, *options: str) -> dict[str, str]:
        done = call.invoke(app, ["predict", str(model), str(tmp_path / "a.png"), *options])
        assert done.exit_code == 0, done.output
        return next(
            iter(csv.DictReader([each for each in done.stdout.splitlines() if not each.startswith("evenhand:")]))
        )

    def export(name: str, *options: str) -> Path:
        done = call.invoke(app, ["export", str(run.path), "--folder", str(tmp_path / name), *options])
        assert done.exit_code == 0, done.output
        return tmp_path / name

    sets, priced, plain = (
        export("sets", "--coverage", "0.8", "--min-precision", "0.2"),
        export("priced", "--costs", str(costs)),
        export("plain"),
    )
    asked = ["--coverage", "0.8", "--min-precision", "0.2"]
    assert row(sets) == row(run.path, *asked) == row(plain, *asked)
    assert row(sets, "--coverage", "0.7") == row(run.path, "--coverage", "0.7")
    assert row(priced) == row(run.path, "--costs", str(costs)) == row(plain, "--costs", str(costs))
    assert row(sets, "--costs", str(costs)) == row(priced)
    assert row(plain) == row(run.path)
