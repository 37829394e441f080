"""The site as `make docs` builds it: it opens from disk, can be searched, and asks the network for nothing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.report.browser import new_page, open_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parent.parent
PAGES = ("index", "guide/start", "guide/objectives", "results/photos", "reference/python", "reference/cli")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="needs the extra dev")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with open_browser() as opened:
        yield opened


@pytest.mark.parametrize("width", [1440, 390])
def test_pages_fit_and_ask_the_network_for_nothing(browser: "Browser", site: Path, width: int) -> None:
    with new_page(browser, viewport={"width": width, "height": 900}) as page:
        for name in PAGES:
            page.goto((site / f"{name}.html").as_uri())
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert ":func:" not in page.inner_text("article"), name


def test_the_search_works_from_disk(browser: "Browser", site: Path) -> None:
    with new_page(browser, viewport={"width": 1440, "height": 900}) as page:
        page.goto((site / "guide" / "start.html").as_uri())
        page.focus("input[name=query]")
        page.keyboard.type("balanced softmax", delay=20)
        page.wait_for_selector(".md-search-result__item")
        found = page.eval_on_selector_all(".md-search-result__link", "links => links.map(each => each.href)")
        assert any("guide/objectives.html" in each for each in found)
