"""What is done to logits after training: kept beside the unadjusted result, from raw logits, never twice."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import load_file
from sklearn.metrics import balanced_accuracy_score

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.data.table import ArrayPixels
from evenhand.metrics.predictions import Predictions, load_predictions
from evenhand.metrics.priors import TAUS, best_tau
from evenhand.objectives import posthoc as objectives_posthoc
from evenhand.runs.run import Run
from evenhand.runs.summary import summarise
from evenhand.training import posthoc
from evenhand.training.derived_run import derive_run, shares_training
from evenhand.training.evaluate import evaluate_on, evaluate_run, keep_missing
from evenhand.training.export import export_onnx
from evenhand.training.posthoc import AdjustmentRequest, evaluate_adjusted
from evenhand.training.predict import load
from evenhand.training.prior import read_shares
from evenhand.training.run import train_run
from tests.training.runs import tiny


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run, Run]:
    """The same training, judged as it is, with a given tau and with the best one."""
    root = tmp_path_factory.mktemp("adjusted")
    specs = {"plain": "ce", "given": "ce+post-hoc:tau=1", "auto": "post-hoc"}
    one, two, three = (train_run(tiny(objective=spec), root / name) for name, spec in specs.items())
    return one, two, three


def test_logits_stay_raw_and_the_result_is_adjusted(runs: tuple[Run, Run, Run]) -> None:
    plain, given_tau, _ = runs
    raw, adjusted = plain.predictions, given_tau.predictions
    assert (raw.logits == adjusted.logits).all()
    counts = adjusted.fitted_counts
    assert counts is not None
    assert counts.sum() == len(plain.splits.train)
    shifted = raw.logits.astype(np.float64) - np.log(counts / counts.sum())
    assert (adjusted.predicted() == shifted.argmax(1)).all()
    probabilities = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(adjusted.log_probabilities()), probabilities, rtol=1e-9)
    summary = given_tau.summary.model_dump(mode="json")
    assert summary["balanced_accuracy"] == summarise(adjusted)["balanced_accuracy"]
    assert summary["unadjusted"]["balanced_accuracy"] == plain.summary.balanced_accuracy != summary["balanced_accuracy"]
    assert (summary["adjustment"]["tau"], summary["adjustment"]["chosen"]) == (1.0, "given")
    np.testing.assert_array_equal(given_tau.best_weights.read_bytes(), plain.best_weights.read_bytes())


def test_auto_is_the_best_on_validation(runs: tuple[Run, Run, Run]) -> None:
    plain, _, auto = runs
    validation = auto.validation_predictions
    assert validation is not None
    assert validation.adjustment is None
    assert validation.fitted_counts is not None
    shift = np.log(validation.fitted_counts / validation.fitted_counts.sum())
    reached = [balanced_accuracy_score(validation.targets, (validation.logits - tau * shift).argmax(1)) for tau in TAUS]
    tau = auto.summary.model_dump()["adjustment"]["tau"]
    assert reached[round(tau * 10)] == pytest.approx(max(reached))
    assert auto.summary.model_dump()["adjustment"]["chosen"] == "validation"
    assert plain.predictions.adjustment is None


def test_an_adjustment_is_kept_with_the_predictions(runs: tuple[Run, Run, Run], tmp_path: Path) -> None:
    predictions = runs[1].predictions
    predictions.save(tmp_path / "copy.npz")
    again = load_predictions(tmp_path / "copy.npz")
    assert again.adjustment is not None
    np.testing.assert_array_equal(again.adjustment, predictions.adjustment)
    for wrong in (np.zeros(3), np.full(10, np.inf)):
        with pytest.raises(EvenhandError, match="adjustment must be"):
            replace(predictions, adjustment=wrong)


def test_without_validation_auto_is_refused_before_data_are_read(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match="chooses tau on validation images"):
        train_run(tiny(objective="ce+post-hoc", select="last", data__source="nowhere"), tmp_path / "run")


# After a run is finished


@pytest.fixture
def plain(runs: tuple[Run, Run, Run], tmp_path: Path) -> Run:
    """A copy of a plain run, to be adjusted."""
    return Run(Path(shutil.copytree(runs[0].path, tmp_path / "copy")))


def test_evaluate_keeps_an_adjustment_beside_the_unadjusted_result(runs: tuple[Run, Run, Run], plain: Run) -> None:
    before = {path.name: path.read_bytes() for path in plain.path.rglob("*") if path.is_file()}
    once, twice = (evaluate_adjusted(plain.path, AdjustmentRequest(adjust="1")) for _ in range(2))
    assert once.summary == twice.summary  # from the raw logits each time
    assert once.summary["balanced_accuracy"] == runs[1].summary.balanced_accuracy
    assert once.summary["unadjusted"]["balanced_accuracy"] == plain.summary.balanced_accuracy
    after = {path.name: path.read_bytes() for path in plain.path.rglob("*") if path.is_file()}
    assert {name for name in after if after[name] != before.get(name)} == {"adjustment.json"}
    again = evaluate_run(plain.path)
    assert again.summary["balanced_accuracy"] == plain.summary.balanced_accuracy
    assert "without the run's adjustment (post-hoc, tau 1), which predict" in again.remarks[0]
    assert "tau 1" in evaluate_on(plain.path, "digits").remarks[-1]
    own = evaluate_run(runs[1].path)
    assert not own.remarks, "what the objective itself does is in its predictions"
    kept = (plain.path / "adjustment.json").read_bytes()
    (plain.path / "adjustment.json").write_text("{")
    damaged = evaluate_run(plain.path)
    assert damaged.summary["balanced_accuracy"] == plain.summary.balanced_accuracy
    assert "adjustment.json" in damaged.remarks[0]
    (plain.path / "adjustment.json").write_bytes(kept)
    auto = evaluate_adjusted(plain.path, AdjustmentRequest(adjust="auto")).summary
    assert auto["adjustment"] == runs[2].summary.model_dump(mode="json")["adjustment"]


@pytest.mark.parametrize(
    "wish",
    [AdjustmentRequest(adjust="1.5"), AdjustmentRequest(prior="balanced"), AdjustmentRequest(normalise="1")],
    ids=str,
)
def test_those_who_use_the_model_get_the_adjustment(plain: Run, wish: AdjustmentRequest) -> None:
    judged = evaluate_adjusted(plain.path, wish).predictions
    table = load_source("digits")
    place = {name: row for row, name in enumerate(table.ids.tolist())}
    assert isinstance(table.pixels, ArrayPixels)
    images = table.pixels.images[[place[name] for name in judged.ids]]
    np.testing.assert_allclose(load(plain.path).predict(images), np.exp(judged.log_probabilities()), atol=1e-5)
    raw = load(plain.best_weights).predict(images)
    np.testing.assert_allclose(raw, np.exp(plain.predictions.log_probabilities()), atol=1e-5)
    assert np.abs(raw - np.exp(judged.log_probabilities())).max() > 0.01


def test_export_has_the_adjustment_in_its_graph(plain: Run, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    evaluate_adjusted(plain.path, AdjustmentRequest(adjust="1"))
    export_onnx(plain.path, tmp_path / "model.onnx")
    model = load(plain.path)
    images = np.random.default_rng(0).standard_normal((3, 1, 8, 8)).astype(np.float32)
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"images": images})
    told = json.loads(session.get_modelmeta().custom_metadata_map["adjustment"])
    assert (told["kind"], told["tau"], told["chosen"]) == ("post-hoc", 1, "given")
    assert model.adjustment is not None
    np.testing.assert_allclose(told["added_to_logits"], model.adjustment.numpy(), rtol=1e-6)
    with torch.no_grad():
        expected = model.probabilities(model.network(torch.from_numpy(images)))
    np.testing.assert_allclose(torch.from_numpy(logits).softmax(1).numpy(), expected, atol=1e-4)


def test_a_prior_makes_probabilities_right_for_other_shares(plain: Run, tmp_path: Path) -> None:
    """By Bayes' rule, from the probabilities that hold for the shares of the images trained on."""
    names = plain.predictions.class_names
    new = np.arange(1.0, 11.0)
    (tmp_path / "shares.json").write_text(json.dumps(dict(zip(names, new.tolist(), strict=True))))
    judged = evaluate_adjusted(plain.path, AdjustmentRequest(prior=str(tmp_path / "shares.json"))).predictions
    counts = judged.fitted_counts
    assert counts is not None
    expected = np.exp(plain.predictions.log_probabilities()) * new / counts
    np.testing.assert_allclose(
        np.exp(judged.log_probabilities()), expected / expected.sum(1, keepdims=True), rtol=1e-6, atol=1e-12
    )
    total = plain.predictions.train_counts
    given = dict(zip(names, (total * 3).tolist(), strict=True))  # in any unit
    (tmp_path / "shares.json").write_text(json.dumps(given))
    same = [
        evaluate_adjusted(plain.path, AdjustmentRequest(prior=prior)).predictions.log_probabilities()
        for prior in ("train", str(tmp_path / "shares.json"))
    ]
    np.testing.assert_allclose(*same, atol=1e-9)


def test_tau_normalised_weights(plain: Run) -> None:
    judged = evaluate_adjusted(plain.path, AdjustmentRequest(normalise="0.5"))
    features = plain.features
    rows = [int(np.flatnonzero(judged.predictions.ids == name)[0]) for name in features.ids]
    weights = load_file(plain.best_weights)["network.head.weight"].astype(np.float64)
    evened = weights / np.linalg.norm(weights, axis=1, keepdims=True) ** 0.5
    expected = features.features.astype(np.float64) @ evened.T
    np.testing.assert_allclose(judged.predictions.logits[rows], expected, atol=0.05)  # features are kept in float16


def test_tau_of_normalised_weights_is_the_best_on_validation_or_none(
    plain: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several that are best the one nearest to 1; where all are worse than the network as it is, none is kept."""
    as_it_is = plain.summary.selected.val_balanced_accuracy
    assert as_it_is is not None
    tried: list[float] = []

    def reached(better: float) -> Any:
        def predict(folder: Run, tau: float, split: str, **reading: Any) -> Predictions:
            if split == "test":
                return real(folder, tau, split, **reading)
            tried.append(tau)
            return plain.predictions  # not looked at

        monkeypatch.setattr(posthoc, "_predict_normalised", predict)
        monkeypatch.setattr(
            posthoc, "balanced_accuracy", lambda _: as_it_is + (better if 0.3 < tried[-1] < 0.8 else -0.1)
        )

    real: Any = posthoc._predict_normalised
    reached(0.01)
    auto = evaluate_adjusted(plain.path, AdjustmentRequest(normalise="auto")).summary["adjustment"]
    assert (auto["chosen"], auto["tau"]) == ("validation", pytest.approx(0.7))
    before = (plain.path / "adjustment.json").read_bytes()
    reached(-0.01)
    with pytest.raises(EvenhandError, match=r"No tau of normalised weights improves .*: the best reaches"):
        evaluate_adjusted(plain.path, AdjustmentRequest(normalise="auto"))
    assert (plain.path / "adjustment.json").read_bytes() == before


def test_what_cannot_be_adjusted_is_one_sentence(plain: Run, tmp_path: Path) -> None:
    balanced = train_run(tiny(objective="balanced-softmax", epochs=1), tmp_path / "balanced")
    smoothed = train_run(tiny(objective="label-smoothing", epochs=1, select="last"), tmp_path / "smoothed")
    both = train_run(tiny(objective="balanced-softmax+cce", epochs=1), tmp_path / "both")
    (tmp_path / "some.csv").write_text("0,1\n1,2\n")
    (tmp_path / "twice.csv").write_text("class,prior\n0,1\n1,2\n0,3\n")
    (tmp_path / "list.json").write_text("[1, 2]")
    cases = {
        "corrects for the class counts already": (balanced, {"adjust": "1"}),
        "an adjustment would do so twice": (balanced, {"normalise": "1"}),
        "hold for no known class shares": (smoothed, {"prior": "balanced"}),
        "There are no validation images to choose tau by": (smoothed, {"adjust": "auto"}),
        "--adjust takes auto or a number from 0 to 10, got 'much'.": (plain, {"adjust": "much"}),
        "--adjust and --prior both change the logits": (plain, {"adjust": "1", "prior": "train"}),
        "some.csv: its rows lack '2', '3', '4', '5', '6' and 3 more; give a share": (
            plain,
            {"prior": str(tmp_path / "some.csv")},
        ),
        "twice.csv: '0' is given twice in its rows.": (plain, {"prior": str(tmp_path / "twice.csv")}),
        "list.json: it must hold one object, of classes and": (plain, {"prior": str(tmp_path / "list.json")}),
        "so they cannot be changed to others.": (both, {"prior": "balanced"}),
        "so they cannot be changed to others; use --adjust.": (smoothed, {"prior": "train"}),
        "--adjust takes auto or a number from 0 to 10, got ''.": (plain, {"adjust": ""}),
        "--normalise takes auto or a number from 0 to 10, got ''.": (plain, {"normalise": ""}),
        "--prior takes train, uniform or a file of class shares, got ''.": (plain, {"prior": ""}),
        "There is no run or file of weights": (Run(tmp_path / "nothing"), {"prior": "balanced"}),
        "Cannot read class shares from nowhere.csv: No such file or directory.": (plain, {"prior": "nowhere.csv"}),
    }
    for told, (run, wish) in cases.items():
        with pytest.raises(EvenhandError) as caught:
            evaluate_adjusted(run.path, AdjustmentRequest(**wish))
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)
    untouched = evaluate_adjusted(balanced.path, AdjustmentRequest(adjust="auto"))  # the README's command
    assert untouched.summary["balanced_accuracy"] == balanced.summary.balanced_accuracy
    assert (
        "balanced-softmax, which corrects for the class counts already, so --adjust auto changes"
        in untouched.remarks[0]
    )
    assert balanced.adjustment is None
    evaluate_adjusted(balanced.path, AdjustmentRequest(prior="train"))
    with pytest.raises(EvenhandError, match=r"best\.safetensors is no run: it is a file; give the folder of a run\.\Z"):
        evaluate_adjusted(plain.best_weights, AdjustmentRequest(adjust="1"))


@pytest.mark.parametrize(
    "text", ["\ufeffcat,30\ndog,10\n", "cat;30\ndog;10\n", "\ufeffclass\tshare\ncat\t30\ndog\t10\n"]
)
def test_shares_as_spreadsheets_write_them(tmp_path: Path, text: str) -> None:
    path = tmp_path / "shares.csv"
    path.write_text(text, encoding="utf-8")
    assert read_shares(path, ["dog", "cat"]).tolist() == [0.25, 0.75]
    path.write_text("cat;0,3\ndog;0,7\n")
    with pytest.raises(EvenhandError, match="'0,3'"):
        read_shares(path, ["dog", "cat"])


def test_a_tau_at_the_end_of_what_was_tried_is_told(plain: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for best, told in (
        (1.2, []),
        (3.0, ["The best tau on validation, 3, is the largest that was tried; a larger one"]),
    ):
        monkeypatch.setattr(objectives_posthoc, "best_tau", lambda *_, best=best: best)
        remarks = evaluate_adjusted(plain.path, AdjustmentRequest(adjust="auto")).remarks
        assert [line[: len(said)] for line, said in zip(remarks, told, strict=True)] == told
    derived = derive_run(plain.path, tiny(objective="ce+post-hoc"), plain.path.parent / "derived")
    trained = train_run(tiny(objective="ce+post-hoc", epochs=1), plain.path.parent / "trained")
    notes = [derived.summary.notes, trained.summary.notes]
    (trained.path / "summary.json").unlink()
    notes.append(evaluate_run(trained.path).summary["notes"])
    assert all("is the largest that was tried" in each[-1] for each in notes)
    assert evaluate_adjusted(plain.path, AdjustmentRequest(adjust="3")).remarks == ()


def test_without_tau_the_bias_is_left_out_all_the_same(plain: Run) -> None:
    """The logits differ by one number a class: the bias."""
    judged = evaluate_adjusted(plain.path, AdjustmentRequest(normalise="0"))
    bias = load_file(plain.best_weights)["network.head.bias"]
    away = plain.predictions.logits - judged.predictions.logits
    np.testing.assert_allclose(away, np.broadcast_to(bias, away.shape), atol=1e-5)
    assert np.abs(bias).max() > 1e-3
    assert plain.adjustment is not None
    assert plain.adjustment.describe() == "tau-normalised, tau 0, without the bias"


@settings(derandomize=True, deadline=None, max_examples=40)
@given(arrays(np.float64, (30, 3), elements=st.floats(-5, 5)), st.integers(2, 500))
def test_best_tau_against_scikit_learn(logits: np.ndarray, most: int) -> None:
    targets, counts = np.arange(30) % 3, np.array([most, 20, 1])
    shift = np.log(counts / counts.sum())
    reached = [balanced_accuracy_score(targets, (logits - tau * shift).argmax(1)) for tau in TAUS]
    tau = best_tau(logits, targets, counts)
    assert reached[round(tau * 10)] == pytest.approx(max(reached))
    assert all(
        value < max(reached) - 1e-9 for t, value in zip(TAUS, reached, strict=True) if abs(t - 1) < abs(tau - 1) - 1e-6
    )


def test_a_lost_summary_is_written_again_with_the_adjustment(runs: tuple[Run, Run, Run], tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(runs[2].path, tmp_path / "copy")))
    names = ("summary.json", "predictions.npz")
    before = [(run.path / name).read_bytes() for name in names]
    for name in names:
        (run.path / name).unlink()
    keep_missing(run.path, evaluate_run(run.path))
    assert [(run.path / name).read_bytes() for name in names] == before


def test_runs_share_their_training(runs: tuple[Run, Run, Run], tmp_path: Path) -> None:
    plain, _, auto = runs
    shared = shares_training(auto.config)
    assert shared is not None
    assert shared == plain.config
    derived = derive_run(plain.path, auto.config, tmp_path / "derived")
    assert derived.finished
    content = [run.summary.model_dump(mode="json") for run in (derived, auto)]
    for each in content:
        del each["seconds_per_epoch"]
    assert content[0] == content[1]
    for name in ("predictions.npz", "validation.npz", "weights/best.safetensors", "features.npz", "adjustment.json"):
        assert (derived.path / name).read_bytes() == (auto.path / name).read_bytes(), name
    with pytest.raises(EvenhandError, match="differs from that of"):
        derive_run(plain.path, tiny(objective="ce+post-hoc", seed=1), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_weights_of_an_epoch_before_drw_know_nothing_of_it(tmp_path: Path) -> None:
    """Of two epochs drw has the second; where the first was taken, they are those of plain cross entropy."""
    run = train_run(tiny(objective="ce+drw:start=0.5", epochs=2), tmp_path / "run")
    summary = json.loads((run.path / "summary.json").read_text("utf-8"))
    for epoch, refused in ((1, False), (2, True)):
        run.write_summary({**summary, "selected": {**summary["selected"], "epoch": epoch}})
        for wish in (AdjustmentRequest(adjust="1"), AdjustmentRequest(prior="balanced")):
            if refused:
                with pytest.raises(EvenhandError, match=r"drw"):
                    evaluate_adjusted(run.path, wish)
            else:
                found = evaluate_adjusted(run.path, wish).predictions
                assert found.fitted_counts is not None
                shifted = found.logits - np.log(found.fitted_counts / found.fitted_counts.sum())
                assert (found.predicted() == shifted.argmax(1)).all()


def test_a_run_keeps_the_adjustment_of_its_own_objective(runs: tuple[Run, Run, Run], tmp_path: Path) -> None:
    """The one given later takes its place; without that it is there again."""
    folder = shutil.copytree(runs[1].path, tmp_path / "copy")
    own = load(folder).adjustment
    evaluate_adjusted(folder, AdjustmentRequest(adjust="0.5"))
    given_later = load(folder).adjustment
    (folder / "adjustment.json").unlink()
    back = load(folder).adjustment
    assert own is not None
    assert given_later is not None
    assert back is not None
    torch.testing.assert_close(given_later, own / 2)
    torch.testing.assert_close(back, own)
