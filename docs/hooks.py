"""Pages of the site that are made from the code and from the README."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url
from typer.main import get_command
from typer.testing import CliRunner

from evenhand.cli import app


def cli_page() -> str:
    """Return the help of every command as Markdown."""
    runner, lines = CliRunner(), ["# Command line", "", "What `evenhand COMMAND --help` prints.", ""]
    names = [[]] + [[name] for name in sorted(get_command(app).commands)]  # type: ignore[attr-defined]
    for words in names:
        title = " ".join(["evenhand", *words])
        text = runner.invoke(app, [*words, "--help"], prog_name="evenhand", env={"COLUMNS": "100"}).output
        lines += [f"## {title}", "", "```text", text.rstrip(), "```", ""]
    return "\n".join(lines)


def root_page(path: Path) -> str:
    """Return a page of the root with links relative to docs/; links to files that the site lacks become plain text."""
    text = path.read_text(encoding="utf-8")

    def local(match: re.Match[str]) -> str:
        label, address = match.groups()
        if re.match(r"https?:|#", address):
            return match.group()
        inside = address.removeprefix("docs/")
        return f"[{label}]({inside})" if inside != address and not inside.endswith("/") else label

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", local, text)


def on_page_content(html: str, **_: Any) -> str:
    """Remove the roles of docstrings: they are for Sphinx."""
    return re.sub(r":(?:func|class|meth|mod|data|attr|math):<code>~?", "<code>", html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Take the script that searches without a server from the site, not from the network."""
    return output.replace("https://unpkg.com/iframe-worker/shim", get_relative_url("site.js", page.url))


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for the page of what is not found, which is at no fixed address."""
    return output_content.replace('<script src="https://unpkg.com/iframe-worker/shim"></script>', "")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that no file holds."""
    root = Path(config.docs_dir).parent
    for source, page in {
        "README.md": "index.md",
        "CONTRIBUTING.md": "contributing.md",
        "CHANGELOG.md": "changes.md",
    }.items():
        files.append(File.generated(config, page, content=root_page(root / source)))
    files.append(File.generated(config, "reference/cli.md", content=cli_page()))
    return files
