"""The page in a real browser: it can be used, read and left to strangers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenhand.report.page import write_report
from tests.fabricated import HOSTILE, write_comparison_folder, write_pictured_run
from tests.report.browser import new_page, open_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

NAMES = (*HOSTILE, "cat", "Dog", "owl 10", "owl 9")
# A page with nothing wider than itself does not move sideways.
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_comparison_folder(tmp_path_factory.mktemp("compared"), names=NAMES, source=HOSTILE[0])
    return write_report([folder]).as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def page(browser: "Browser", address: str) -> Iterator["Page"]:
    with new_page(browser) as opened:
        opened.goto(address)
        yield opened


def classes(page: "Page") -> list[str]:
    """Return the names in the table of classes, from top to bottom, those that are seen."""
    return [row.inner_text() for row in page.locator("#class-table tbody th").all() if row.is_visible()]


def column(page: "Page", place: int) -> list[float]:
    cells = page.locator(f"#class-table tbody tr > :nth-child({place})").all()
    return [float(cell.get_attribute("data-value") or "nan") for cell in cells]


def shown(panels: "Locator") -> list[str | None]:
    return [panel.get_attribute("data-name") for panel in panels.all() if panel.is_visible()]


def test_a_click_on_a_head_sorts_and_another_turns_it_about(page: "Page") -> None:
    assert classes(page)[0] == NAMES[0]  # most training images first
    head = page.locator("#class-table thead th[data-column='4']")
    head.get_by_role("button").click()
    rising = column(page, 5)
    assert rising == sorted(rising)
    assert head.get_attribute("aria-sort") == "ascending"
    head.get_by_role("button").click()
    assert column(page, 5) == sorted(rising, reverse=True)
    page.locator("#class-table thead th[data-column='0'] button").click()
    names = classes(page)
    assert names.index("cat") < names.index("Dog") < names.index("owl 9") < names.index("owl 10")
    assert head.get_attribute("aria-sort") is None


def test_the_table_is_filtered_by_name_whatever_the_case(page: "Page") -> None:
    filled = page.get_by_label("Filter classes by name")
    filled.fill("OWL")
    assert classes(page) == ["owl 10", "owl 9"]
    assert page.locator(".filters output").first.inner_text() == "2 of 10"
    filled.fill("onerror")
    assert classes(page) == [HOSTILE[0]]
    filled.fill("")
    assert len(classes(page)) == len(NAMES)


def test_one_objective_is_shown_and_a_button_shows_the_other(page: "Page") -> None:
    panels = page.locator("#confusion .panel")
    assert page.locator("h1").inner_text().startswith("cce: ")  # the recommended one
    for section in ("confusion", "calibration", "errors"):
        assert shown(page.locator(f"#{section} .panel")) == ["cce"]
    page.locator("#confusion").get_by_role("button", name="ce", exact=True).click()
    assert shown(panels) == ["ce"]
    assert page.locator("#confusion [aria-pressed=true]").inner_text() == "ce"
    assert shown(page.locator("#errors .panel")) == ["cce"]


def test_a_command_is_copied_by_its_button(browser: "Browser", address: str) -> None:
    with new_page(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(address)
        block = page.locator("#use .command").first
        block.get_by_role("button").click()
        block.get_by_text("Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == block.locator("code").inner_text()
        assert copied.startswith("evenhand predict ")


def test_on_a_phone_a_row_of_a_table_is_a_card_with_all_its_values(page: "Page") -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate(SIDEWAYS) == 0
    for table in ("#photograph", "#results", "#classes", "#calibration"):
        box = page.locator(f"{table} .scroll:has(table)").first
        assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    cell = page.locator("#results td").first
    assert cell.evaluate("cell => getComputedStyle(cell, '::before').content") == '"balanced accuracy"'
    assert page.locator("#weakest .pictures img").first.is_visible()


def test_cells_bars_and_points_tell_their_values(page: "Page") -> None:
    title = page.locator("#confusion td").first.get_attribute("title") or ""
    assert re.fullmatch(re.escape(NAMES[0]) + r" correct: \d+ of 24 predictions \([\d.]+%\)", title)
    assert page.locator("#data svg title").first.text_content() == f"{NAMES[0]}: 400 training images"
    assert page.locator("#recall svg use > title").count() == 2 * len(NAMES)


def test_pictures_are_filtered_by_what_they_are_and_what_they_were_taken_for(page: "Page") -> None:
    panel = page.locator("#errors .panel:not(.away)")
    items = panel.locator("li")
    actual = items.first.get_attribute("data-actual") or ""
    panel.get_by_role("combobox").nth(0).select_option(label=actual)
    seen = [item.get_attribute("data-actual") for item in items.all() if item.is_visible()]
    assert seen
    assert set(seen) == {actual}
    assert panel.locator("output").inner_text() == f"{len(seen)} of {items.count()} images"
    predicted = items.first.get_attribute("data-predicted") or ""
    panel.get_by_role("combobox").nth(1).select_option(label=predicted)
    assert {item.get_attribute("data-predicted") for item in items.all() if item.is_visible()} == {predicted}


def test_a_click_shows_a_picture_large_and_a_click_beside_it_closes_it(page: "Page") -> None:
    button = page.locator("#errors .panel:not(.away) .gallery button").first
    small = button.bounding_box()
    button.click()
    dialog = page.get_by_role("dialog")
    large = dialog.get_by_role("img").bounding_box()
    assert small is not None
    assert large is not None
    assert large["width"] > 2 * small["width"]
    assert re.search(r"\d training images?\)\n[\d.]+% ", dialog.inner_text())
    page.mouse.click(5, 5)
    assert not dialog.is_visible()
    button.click()
    dialog.get_by_role("button", name="Close").click()
    assert not dialog.is_visible()


def test_everything_is_reached_by_keyboard(page: "Page") -> None:
    reached: list[str] = []
    for _ in range(90):
        page.keyboard.press("Tab")
        what = str(
            page.evaluate("(e => e.closest('section,nav')?.id + ' ' + e.tagName.toLowerCase())(document.activeElement)")
        )
        reached.append(what)
        if what == "errors button" and page.evaluate("document.activeElement.closest('.gallery') !== null"):
            break
    assert {"use button", "classes input", "classes button", "confusion button", "classes div", "errors select"} <= set(
        reached
    )
    page.keyboard.press("Enter")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible()
    assert page.evaluate("document.activeElement.closest('.gallery') !== null")  # back where it was


def test_a_head_is_sorted_by_keyboard(page: "Page") -> None:
    page.locator("#class-table thead th[data-column='2'] button").focus()
    page.keyboard.press("Enter")
    assert column(page, 3) == sorted(column(page, 3))


def test_names_of_strangers_stay_text_and_run_nothing(page: "Page") -> None:
    for button in page.locator(".choices button, #class-table th button").all():
        if button.is_visible():
            button.click()
    page.locator("#errors .gallery button >> visible=true").first.click()
    page.wait_for_timeout(100)
    assert page.title() == f"ce, cce on {HOSTILE[0]}"
    assert (
        page.evaluate("[...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => /^on/.test(a.name)))")
        is False
    )
    assert set(HOSTILE) <= set(page.locator("#class-table tbody th").all_inner_texts())


def test_the_policy_of_the_page_forbids_other_scripts_and_the_network(page: "Page") -> None:
    ran = page.evaluate(
        """async () => {
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.body.append(script);
            const asked = await fetch("data:,a").then(() => true, () => false);
            return [window.ran === true, asked];
        }"""
    )
    assert ran == [False, False]


def test_without_scripts_everything_is_there_to_read(browser: "Browser", address: str) -> None:
    with new_page(browser, java_script_enabled=False) as page:
        page.goto(address)
        assert shown(page.locator("#confusion .panel")) == ["ce", "cce"]
        assert shown(page.locator("#errors .panel")) == ["ce", "cce"]
        assert len(classes(page)) == len(NAMES)
        assert not page.get_by_label("Filter classes by name").is_visible()
        assert page.locator("section").count() == 13
        assert all(section.is_visible() for section in page.locator("section").all())


def test_only_boxes_scroll_sideways_never_the_page(page: "Page") -> None:
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(SIDEWAYS) == 0
            light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 250)"
            assert light == (scheme == "light")


def test_paper_shows_what_scripts_had_put_away(page: "Page") -> None:
    page.get_by_label("Filter classes by name").fill("owl")
    page.emulate_media(media="print")
    assert shown(page.locator("#confusion .panel")) == ["ce", "cce"]
    assert len(classes(page)) == len(NAMES)
    assert not page.locator("nav, .filters, .choices").locator("visible=true").count()


def test_a_page_about_an_unfinished_run_opens(browser: "Browser", tmp_path: Path) -> None:
    run = write_pictured_run(tmp_path / "run", names=("cat", "dog"), finished=False)
    with new_page(browser) as page:
        page.goto(write_report([run]).as_uri())
        assert page.locator("h1").inner_text() == "Not finished."
