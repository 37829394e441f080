"""The pages of tables in docs/results are those of the kept records."""

import re
from functools import cache

import numpy as np
import pytest
import result_pages
import study_tables

from evenhand.paper.studies import STUDIES
from evenhand.runs.record import RunRecord

DATE = re.compile(r"page of \d{4}-\d{2}-\d{2}")
ROW = re.compile(r"^\| (\S+) \| (\d)/\d \| [\d.]* \| ([\d.]+)", re.MULTILINE)
OBJECTIVES = {"ERM": "ce", "FL": "focal:alpha=0.25", "COT": "cot", "CCE": "cce"}


@cache
def records() -> tuple[RunRecord, ...]:
    return tuple(result_pages.kept_records())


@pytest.mark.parametrize("page", result_pages.PAGES, ids=lambda page: page.name)
def test_a_page_is_what_its_command_writes_from_the_records(page: result_pages.Page) -> None:
    written = (result_pages.RESULTS / f"{page.name}.md").read_text("utf-8")
    expected = result_pages.content(page, records())
    assert DATE.sub("", written) == DATE.sub("", expected), "run python tools/result_pages.py"


def test_the_page_of_figures_shows_each_drawn_figure_and_the_runs_of_it() -> None:
    written = (result_pages.RESULTS / "figures.md").read_text("utf-8")
    assert DATE.sub("", written) == DATE.sub("", result_pages.figures_page(records())), (
        "run python tools/result_pages.py"
    )
    drawn = {path.name for path in (result_pages.RESULTS / "figures").glob("*.png")}
    assert set(re.findall(r"\(figures/([^)]+)\)", written)) == drawn
    studies = {name for name in STUDIES if name.startswith("figure-")}
    assert set(result_pages.FIGURES) == studies


@pytest.mark.parametrize(("page", "source"), [("table-cifar100", "cifar100"), ("table-fashion", "fashion-mnist")])
def test_means_of_a_page_are_those_of_the_confusion_matrices(page: str, source: str) -> None:
    text = (result_pages.RESULTS / f"{page}.md").read_text("utf-8")
    section = text.partition(f"## {source}, LT 100")[2].partition("\n## ")[0]
    rows = ROW.findall(section)
    assert len(rows) == len(OBJECTIVES)
    for method, n, mean in rows:
        found = []
        for each in records():
            data, planned = each.config.data, (each.config.model.name, each.config.epochs)
            if (data.source, data.imbalance, *planned) != (source, "exp:100", "resnet8", 30):
                continue
            if each.summary.objective == OBJECTIVES[method]:
                confusion = np.array(each.summary.confusion_matrix)
                found.append((confusion.diagonal() / confusion.sum(axis=1)).mean())
        assert len(found) == int(n)
        assert float(mean) == pytest.approx(100 * np.mean(found), abs=0.005)


def test_differences_are_paired_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(objective: str, seed: int, accuracy: float) -> dict[str, object]:
        per_class = {"train_count": [90, 9, 5], "recall": [1.0, 0.8, accuracy]}
        keys = {"source": "some", "imbalance": "exp:18", "objective": objective, "seed": seed}
        return {"summary": {**keys, "balanced_accuracy": accuracy, "per_class": per_class}}

    # Seed 9 has no partner, so it does not count.
    ours = [record("cce", seed, value) for seed, value in ((0, 0.52), (1, 0.55), (2, 0.52), (9, 0.9))]
    theirs = [record("ce", seed, 0.5) for seed in (0, 1, 2)]
    monkeypatch.setattr(study_tables, "records", lambda _: [*ours, *theirs])
    [*_, row] = study_tables.differences("ce", "block").splitlines()
    # 2, 5 and 2: mean 3, standard error 1, t of two degrees of freedom 4.303.
    assert row == "| some exp:18 | `cce` | +3.0 [-1.3, 7.3] | +3.0 [-1.3, 7.3] | 3 of 3 | 0 to 2 |"
