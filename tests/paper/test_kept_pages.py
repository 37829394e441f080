"""The pages that are kept in docs/results, and the README: every finding of one against the others."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
STATES = ("holds at this scale", "no sign of it at this scale", "does not hold", "not decided", "holds")
TABLES = ("table-fashion-small.md", "table-gamma-small.md", "table-road-small.md")
FINDING = re.compile(r"^- ours: (?P<state>.+?) at (?P<where>\S+ .+?epochs.*?): (?P<says>.*)$", re.MULTILINE)
PART = re.compile(r"(?P<size>[+-][\d.]+) \[.*?\] points, n=3 over (?P<other>\S+) \((?P<noise>.*?)\)")


class Column:
    """One column of a kept table: means by method, and what is said of its order."""

    def __init__(self, text: str) -> None:
        rows = re.findall(r"^\| (\S+) \| 3/3 \| [\d.]* \| ([\d.]+) ±", text, re.MULTILINE)
        self.means = {method: float(mean) for method, mean in rows}
        said = re.search(r"^(?:By balanced accuracy: )?The published order .*$", text, re.MULTILINE)
        self.said = said[0] if said else ""


def columns() -> dict[tuple[str, str, str, str], Column]:
    """By source, imbalance, network and epochs."""
    found = {}
    for name in TABLES:
        epochs = {"table-fashion-small.md": "10", "table-gamma-small.md": "3"}.get(name, "")
        for block in re.split(r"(?m)^(?=##+ )", (RESULTS / name).read_text("utf-8")):
            epochs = (re.match(r"## .*?(\d+) epochs", block) or (None, epochs))[1]
            title = re.match(r"##+ (\S+), (.+?), (\w+)", block)
            if title:
                found[title[1], title[2], title[3].lower(), str(epochs)] = Column(block)
    return found


COLUMNS = columns()


def sections() -> dict[str, str]:
    text = (RESULTS / "claims.md").read_text("utf-8")
    return {block.partition("\n")[0]: block for block in re.split(r"(?m)^## ", text)[1:]}


def findings(section: str) -> list[re.Match[str]]:
    return list(FINDING.finditer(next(text for title, text in sections().items() if title.startswith(section))))


def column_of(where: str) -> Column:
    source, words, network, epochs = re.match(r"(\S+) (.+?), (\w+), (\d+) epochs", where).groups()
    return COLUMNS[source, words, network, epochs]


PAIRS = {"CCE is the best": "CCE", "Replacing ERM by COT": "COT", "Gamma = -1 is best": "gamma=-1"}


@pytest.mark.parametrize("section", PAIRS)
def test_every_finding_of_the_claims_is_that_of_its_table(section: str) -> None:
    found = findings(section)
    assert len(found) >= 5
    for each in found:
        column = column_of(each["where"])
        parts = list(PART.finditer(each["says"]))
        assert parts, each[0]
        for part in parts:
            ours, theirs = PAIRS[section], part["other"]
            assert float(part["size"]) == pytest.approx(column.means[ours] - column.means[theirs], abs=0.011)
            reversed_ = re.search(rf"{re.escape(theirs)} ([\d.]+) over {re.escape(ours)} \((.*?)\)", column.said)
            if float(part["size"]) < 0 and reversed_:
                assert (float(reversed_[1]), reversed_[2]) == (pytest.approx(-float(part["size"])), part["noise"])
        if each["state"] != "not decided":
            assert f": {each['state']};" in column.said
        assert "beyond noise" not in column.said.partition("the other way round")[2]


def test_states_are_the_known_ones_and_join_as_they_should() -> None:
    for title, text in sections().items():
        [joined] = re.findall(r"Ours, on the data named below: \*\*(.*?)\*\*", text)
        states = re.findall(r"^- ours: (.+?) at ", text, re.MULTILINE)
        assert {joined, *states} <= set(STATES)
        if set(states) == {"not decided"}:
            assert joined == "not decided", title


def test_a_table_counts_its_own_sentences() -> None:
    for name in ("table-fashion-small.md", "table-gamma-small.md"):
        text = (RESULTS / name).read_text("utf-8")
        orders = re.findall(r"^The published order .*?: (.+?); (\d+) of (\d+) pairs agree", text, re.MULTILINE)
        [[count, said, agree, pairs]] = re.findall(
            r"the published order of methods, (\d+) columns: (.+?) in \d+; (\d+) of (\d+) pairs agree", text
        )
        assert len(orders) == int(count)
        assert {state for state, *_ in orders} == {said}
        assert sum(int(own) for _, own, _ in orders) == int(agree)
        assert sum(int(own) for *_, own in orders) == int(pairs)


def test_the_overview_says_no_more_than_the_pages() -> None:
    readme = (ROOT / "docs" / "results" / "index.md").read_text("utf-8")
    rows = re.findall(r"^\| \[.*?\]\((.*?)\) \| (.*) \|$", readme, re.MULTILINE)
    assert {name for name, _ in rows} >= {*TABLES, "claims.md", "speed.md"}
    for name, says in rows:
        page = (RESULTS / name).read_text("utf-8")
        rounded = {f"{float(number):.1f}" for number in re.findall(r"\d+\.\d+", page)}
        assert set(re.findall(r"\d+\.\d", says)) <= rounded, name
        assert "does not hold" not in says
        if "not decided" not in page:
            assert "decide" not in says
    assert "to the letter" not in readme


def test_every_table_lists_open_choices_and_its_scale() -> None:
    for name in TABLES:
        text = (RESULTS / name).read_text("utf-8")
        assert "What the paper leaves open" in text
        assert "Toy scale" in text
    assert "toy scale" in (RESULTS / "claims.md").read_text("utf-8")
