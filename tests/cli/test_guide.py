"""The guide in the terminal, and help that is grouped by panel."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from evenhand.cli import app, main
from evenhand.cli.guide import guide_folder

PAGES = Path(__file__).parents[2] / "docs" / "guide"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["evenhand", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_every_page_is_listed_with_its_title(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "guide") == 0
    listed = capsys.readouterr().out.splitlines()
    for page in PAGES.glob("*.md"):
        heading = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        assert any(line.split()[0] == page.stem and line.endswith(heading) for line in listed if line)


def test_a_page_is_printed_as_it_is_in_a_pipe(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "guide", "objectives") == 0
    shown, page = capsys.readouterr().out, (PAGES / "objectives.md").read_text(encoding="utf-8")
    kept = [(line, re.sub("<!--.*?-->", "", line)) for line in page.splitlines()]
    assert [text for line, text in kept if text or not line] == shown.splitlines()


def test_an_unknown_topic_names_the_known_ones(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "guide", "losses?") == 2
    said = capsys.readouterr().err
    assert "'losses?'" in said
    assert "objectives" in said


def test_an_installed_package_has_its_own_pages(monkeypatch, tmp_path) -> None:
    package = tmp_path / "site-packages" / "evenhand"
    (package / "guide").mkdir(parents=True)
    monkeypatch.setitem(guide_folder.__globals__, "__file__", str(package / "cli" / "guide.py"))
    assert guide_folder() == package / "guide"


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_long_help_is_grouped(verb: str, capsys) -> None:
    with pytest.raises(SystemExit):
        app([verb, "--help"])
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert heads[:5] == ["Arguments:", "Options:", "Training:", "Data:", "Network:"]
    assert max(block.count("\n") + 1 for block in "\n".join(lines).split("\n\n")) <= 28  # of a panel: it fits a screen
    where = {line.split()[0]: heads.index(head) for head, block in _blocks(lines) for line in block}
    assert where["--imbalance"] == heads.index("Data:")
    assert where["--model"] == heads.index("Network:")


@pytest.mark.parametrize("words", [*sorted(get_command(app).commands), "config copy", "cache clear"])
def test_help_is_plain_at_80_columns(words: str, capsys, monkeypatch) -> None:
    """Arguments in capitals and brackets, as most programs have them; no type names of the parser, no long lines."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        app([*words.split(), "--help"])
    help_text = capsys.readouterr().out
    assert max(map(len, help_text.splitlines())) <= 80
    usage = help_text.partition("\n")[0].partition(f" {words} ")[2]
    assert usage
    assert usage == usage.upper(), usage
    assert not re.search(r"[{}]|range>|\[required|x[<>]=", help_text)


def _blocks(lines: list[str]) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.endswith(":") and not line.startswith(" "):
            found.append((line, []))
        elif found and line.strip().startswith("--"):
            found[-1][1].append(line)
    return found
