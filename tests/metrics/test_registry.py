"""The registry: what is declared there reaches every place that shows metrics."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from evenhand.cli.evaluate import show
from evenhand.metrics.registry import BOUNDS, METRICS, Metric
from evenhand.report._report_data import read_report_data
from evenhand.report._serve_summary import metric_rows
from evenhand.report._tables import objective_table
from evenhand.runs.run import Run
from evenhand.runs.summary import summarise
from tests.fabricated import write_pictured_run

from .cases import Case, cases


@given(case=cases())
@settings(deadline=None, derandomize=True, max_examples=30)
def test_every_metric_is_a_float_in_its_bounds(case: Case) -> None:
    summary = summarise(case.predictions)
    for name, metric in METRICS.items():
        value = metric.function(case.predictions)
        assert type(value) is float
        assert metric.name == name
        assert metric.check(value) == value == summary[name]
        if metric.from_confusion is not None:
            assert metric.from_confusion(case.predictions.confusion) == value


def test_titles_differ() -> None:
    assert len({metric.title for metric in METRICS.values()}) == len(METRICS)


@pytest.mark.parametrize(
    ("kind", "text", "unit"), [("share", "25.0", "%"), ("coefficient", "0.250", ""), ("number", "0.250", "")]
)
def test_a_value_is_shown_by_its_kind(kind: str, text: str, unit: str) -> None:
    metric = Metric("mine", "mine", lambda _: 0.25, kind=kind)
    assert (metric.format(0.25), metric.unit, metric.format(None)) == (text, unit, "")
    low, high = BOUNDS[kind]
    assert metric.check(low) == low
    for value in (low - 0.1, high + 0.1, np.nan, np.inf, 10**400, "0.5", None, True):
        with pytest.raises(ValueError, match=r"^mine must be "):
            metric.check(value)


def test_a_metric_that_is_added_is_shown_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a newcomer adds it: one entry of the registry, and nothing else."""
    monkeypatch.setitem(METRICS, "mine", Metric("mine", "my metric", lambda _: -0.123, kind="coefficient"))
    folder = write_pictured_run(tmp_path / "run", names=("cat", "dog", "owl"))
    assert json.loads((folder / "summary.json").read_text())["mine"] == -0.123
    summary = Run(folder).summary
    assert summary.metrics["mine"] == -0.123
    assert {"title": "my metric", "value": -0.123, "kind": "coefficient", "text": "-0.123", "note": ""} in metric_rows(
        summary
    )
    show(summary.model_dump(mode="json"))
    assert ["my", "metric", "-0.123"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    table = objective_table(read_report_data([folder]))
    place = [column.name for column in table.columns].index("my metric")
    assert table.rows[0][place].text == "-0.123"
