"""The overview and the claims in docs/results."""

import re
from pathlib import Path
from typing import get_args

from evenhand.paper._claims import CLAIMS
from evenhand.paper._ordering import State

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def sections() -> dict[str, str]:
    text = (RESULTS / "claims.md").read_text("utf-8")
    return {block.partition("\n")[0]: block for block in re.split(r"(?m)^## ", text)[1:]}


def test_every_claim_has_a_section_with_known_states_that_join_as_they_should() -> None:
    found = sections()
    assert [title.lower() for title in found] == [claim.text.lower() for claim in CLAIMS]
    for title, text in found.items():
        [joined] = re.findall(r"Ours, on the data named below: \*\*(.*?)\*\*", text)
        states = re.findall(r"^- ours, .+?: (.+?); ", text, re.MULTILINE)
        assert {joined, *states} <= {*get_args(State), "not run yet"}
        assert bool(states) == (joined != "not run yet"), title
        if set(states) == {"not decided"}:
            assert joined == "not decided", title


def test_the_claims_that_a_kept_study_decides_are_decided() -> None:
    found = {title: re.findall(r"named below: \*\*(.*?)\*\*", text) for title, text in sections().items()}
    assert found["CCE is the best method in every experiment"] == ["does not hold at this scale"]
    assert found["Rare classes gain most"] == ["does not hold at this scale"]


def test_the_overview_names_pages_that_exist() -> None:
    text = (RESULTS / "index.md").read_text("utf-8")
    rows = re.findall(r"^\| \[.*?\]\((.*?)\) \| (.*) \|$", text, re.MULTILINE)
    assert {"claims.md", "speed.md", "long-tailed.md", "verdicts.md", "reproduced.md"} <= {name for name, _ in rows}
    for name, says in rows:
        assert (RESULTS / name).is_file()
        assert not re.search(r"\d\.\d", says), "numbers are on the pages"
