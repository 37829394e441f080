"""A real Chromium for tests of pages, and a callback on what it asks for."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",  # a moving picture in the place of a camera
    "--use-fake-ui-for-media-stream",
)
# A browser that is slow to answer on a loaded machine should not look like a fault of the page.
PATIENCE = 20_000


@contextmanager
def open_browser() -> Iterator["Browser"]:
    """Start a Chromium found on PATH; skip the test, with the reason, where there is none or no Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"needs a Chromium on PATH; looked for {', '.join(NAMES)}")
    # Chromium's own sandbox does not start for root, which is who runs tests in most containers.
    sandbox = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
    with playwright.sync_playwright() as play, tempfile.TemporaryDirectory() as home:
        # A home of its own keeps settings and caches of the person who runs the tests out.
        env = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home}
        browser = play.chromium.launch(executable_path=path, headless=True, args=[*QUIET, *sandbox], env=env)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def new_page(browser: "Browser", **options: Any) -> Iterator["Page"]:
    """Open an empty page, and fail at its end if it asked for anything beyond this machine or a script failed.

    Args:
        browser: see :func:`open_browser`.
        options: of Playwright's `browser.new_context`, such as `java_script_enabled`, `color_scheme` or `viewport`.
    """
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    try:
        yield page
    finally:
        context.close()
    assert leaving(asked) == []
    assert failed == []


def leaving(addresses: list[str]) -> list[str]:
    """Return those addresses that are not on this machine.

    Example:
        >>> from tests.report.browser import leaving
        >>> leaving(["file:///tmp/a.html", "data:,a", "http://127.0.0.1:8000/b", "https://example.org/c"])
        ['https://example.org/c']
    """
    return [
        address
        for address in addresses
        if (parts := urlsplit(address)).scheme not in ("file", "data", "blob", "about")
        and parts.hostname not in ("127.0.0.1", "localhost")
    ]
