"""What the documentation shows can be typed: every command is one that the command line takes."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from evenhand.cli import app
from tests import trained

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(page: Path) -> list[str]:
    """Return the lines of a page's code blocks that call evenhand, continued lines joined, comments removed."""
    found = []
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        lines = block.replace("\\\n", " ").splitlines()
        found += [line for line in lines if line.startswith("evenhand ")]
    return found


EVERY = [
    pytest.param(line, id=f"{page.relative_to(ROOT).as_posix()}: {line}") for page in PAGES for line in commands(page)
]


def test_there_are_commands() -> None:
    assert len(EVERY) > 40


def check(line: str) -> None:
    """Parse a command line as the program would; an unknown command, option or kind of value raises."""
    _, verb, *arguments = shlex.split(line, comments=True)
    group = get_command(app)
    context = group.make_context("evenhand", [verb, *arguments])
    name, command, rest = group.resolve_command(context, [verb, *arguments])  # type: ignore[attr-defined]
    while hasattr(command, "resolve_command") and rest and not rest[0].startswith("-"):
        name, command, rest = command.resolve_command(context, rest)
    command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("line", EVERY)
def test_a_command_is_one_that_exists(line: str) -> None:
    check(line)


@pytest.mark.parametrize("line", ["evenhand trian photos/", "evenhand train photos/ --imbalanced exp:5"])
def test_the_check_finds_mistakes(line: str) -> None:
    with pytest.raises((typer.Exit, Exception), match=r"(?i)no such"):
        check(line)


def test_python_without_prompts_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks with prompts are doctests; the others run here, on a folder that has what they name."""
    monkeypatch.chdir(tmp_path)
    photos = trained.draw(Path("photos"), {"cat": 12, "dog": 8})
    Path("new").mkdir()
    for number, image in enumerate(("cat/0.png", "dog/0.png"), 1):
        shutil.copyfile(photos / image, f"new/{number}.jpg")
    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        if ">>>" not in block
    ]
    assert len(blocks) >= 2
    for block in blocks:
        exec(block.replace("runs/first", "runs/mine"), {})
    assert "new/1.jpg" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    """`make docs` checks the anchors too, but takes longer."""
    links = re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", page.read_text(encoding="utf-8"))
    missing = [each for each in links if not re.match(r"https?:", each) and not (page.parent / each).exists()]
    assert not missing


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8")) <= 8000


def test_versions_agree() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    built = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert cited
    assert built
    assert cited[1] == built[1]
