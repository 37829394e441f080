"""A run that an earlier version made is read by this one."""

import json
import shutil
from pathlib import Path

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.metrics.registry import METRICS
from evenhand.runs.run import Run
from evenhand.runs.summary import summarise
from evenhand.training.checkpoint import load_classifier, load_state

OLD = Path(__file__).parent / "old" / "digits_exp-20_resnet8_cce_seed0-7d6b1b006d"


def test_every_file_of_the_first_version_is_read() -> None:
    run = Run(OLD)
    assert (run.status, run.config.objective, run.config.epochs) == ("finished", "cce", 2)
    assert run.command.startswith("evenhand compare digits ")
    assert run.environment.code == "353bf005643c86b1"
    assert [len(run.splits.train), len(run.splits.val), len(run.splits.test)] == [430, 48, 359]
    assert [row["epoch"] for row in run.history] == [1, 2]
    assert run.validation_predictions is None  # it kept none
    assert run.predictions.ids.tolist() == list(run.splits.test)
    assert run.summary.balanced_accuracy == summarise(run.predictions)["balanced_accuracy"]
    assert len(run.features.features) == 359
    assert len(run.thumbnails.images) == len(run.thumbnails.index) > 200
    _, card = load_classifier(run.weights)
    assert card.class_names == run.predictions.class_names
    assert load_state(run.state, run.config)["epoch"] == 2


def test_it_can_be_evaluated_again(tmp_path: Path) -> None:
    from evenhand.training.evaluate import evaluate_run, keep_missing

    folder = Path(shutil.copytree(OLD, tmp_path / "run"))
    (folder / "summary.json").unlink()
    keep_missing(folder, evaluate_run(folder))
    for row, before in zip(Run(folder).summary.per_class, Run(OLD).summary.per_class, strict=True):
        assert row.model_dump(exclude={"recall_interval"}) == before.model_dump(exclude={"recall_interval"})
        assert row.recall_interval == pytest.approx(before.recall_interval, abs=1e-12)


def test_metrics_that_were_not_stored_are_computed_from_the_confusion_matrix(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD, tmp_path / "run"))
    summary = json.loads((folder / "summary.json").read_text())
    stored = {name: summary[name] for name in ("macro_f1", "geometric_mean", "nll", "ece", "mean_confidence")}
    for name in stored:
        del summary[name]
    (folder / "summary.json").write_text(json.dumps(summary))
    metrics = Run(folder).summary.metrics
    assert set(metrics) == set(METRICS)
    assert {name: metrics[name] for name in ("macro_f1", "geometric_mean")} == pytest.approx(
        {name: stored[name] for name in ("macro_f1", "geometric_mean")}
    )
    assert [metrics[name] for name in ("nll", "ece", "mean_confidence")] == [None] * 3  # these need the logits


def test_what_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match=r"is no run: it has no config.yaml"):
        _ = Run(tmp_path).config
