"""Numbers of the README and the docs are those of the kept files."""

from pathlib import Path

import pytest
import update_docs

ROOT = Path(__file__).parents[1]
WITH_INTERVALS = ("README.md", "docs/guide/objectives.md", "docs/results/long-tailed.md")


@pytest.mark.parametrize("page", update_docs.PAGES)
def test_generated_parts_are_those_of_the_kept_files(page: str) -> None:
    assert (ROOT / page).read_text("utf-8") == update_docs.updated(page), "run python tools/update_docs.py"


@pytest.mark.parametrize("page", WITH_INTERVALS)
def test_every_interval_is_in_a_kept_file(page: str) -> None:
    found = [
        tuple(map(float, each.groups())) for each in update_docs.INTERVAL.finditer((ROOT / page).read_text("utf-8"))
    ]
    assert found
    assert set(found) <= update_docs.kept_intervals()


def test_the_simulations_of_the_verdicts_keep_their_promises() -> None:
    """Of the kept file; the simulations themselves are in the slow tests."""
    simulated, analyses = update_docs._simulated(), (3, 5, 8, 12)

    def allowed(percent: float, trials: int) -> float:
        return percent + 3 * (percent * (100 - percent) / trials) ** 0.5

    for row in simulated["values"]:
        if row["truth"] == "no difference" and row["when"] == "now" and "collapse" not in row["noise"]:
            most = allowed(6 if "exponential" in row["noise"] else 5, simulated["trials"])
            assert max(row["interim 12"], *(row[str(n)] for n in analyses)) <= most, row
    for row in simulated["rotation"]:
        if row["when"] == "now":
            assert max(row["interim"], *(row[f"false {n}"] for n in analyses)) <= allowed(5, row["trials"]), row
