"""The page of `evenhand serve` in a real browser."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenhand.runs.config import make_config
from evenhand.runs.run import Run
from evenhand.training.run import train_run
from tests.processes import begin, end_of
from tests.report.browser import new_page, open_browser
from tests.report.served_runs import history_row, served, write_comparison, write_run, write_summary

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

# Waits for what it asserts, without code in the page that its policy would forbid.
expect = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)").expect
pytest.importorskip("starlette", reason="needs the extra: pip install 'evenhand[serve]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'evenhand[serve]'")

HOSTILE = "<img src=x onerror=document.title='changed'>"
REPORT = """<!doctype html><title>report</title><meta http-equiv="Content-Security-Policy" content="script-src
'unsafe-inline'"><p id="p">not run</p><script>
document.getElementById("p").textContent = "run";
fetch("/runs.json").then(() => { document.title = "read the server"; }).catch(() => { document.title = "kept in"; });
</script>"""


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("runs")
    for place, (name, objective, recalls) in enumerate(
        [("ten", "ce", (0.9, 0.2)), ("nine", "cce", (0.8, 0.5)), (HOSTILE, "focal", (0.7, 0.1))]
    ):
        run = write_run(root / name, objective=objective, seed=10 * place, age=1000 * place)
        classes = {"cat": (50, recalls[0]), HOSTILE: (5, recalls[1])}
        write_summary(run, classes, objective=objective)
    (root / "nine" / "report.html").write_text(REPORT)
    write_run(root / "going", done=2, finished=False, age=7200, seed=3)
    write_comparison(root / "compared", verdicts=[f"Use {HOSTILE}."])
    with served(root) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def page(browser: "Browser", address: str) -> Iterator["Page"]:
    with new_page(browser, viewport={"width": 1280, "height": 800}) as opened:
        opened.goto(address)
        opened.wait_for_selector("#runs .tick input")
        yield opened
        assert opened.title() == "evenhand: runs", "a name from outside was run"


def names(page: "Page") -> list[str]:
    found: list[str] = page.eval_on_selector_all("#runs tbody th", "all => all.map((each) => each.firstChild.data)")
    return found


def row(page: "Page", name: str) -> "Locator":
    return page.locator("#runs tbody tr").filter(has=page.get_by_role("rowheader", name=name, exact=False))


def tick(page: "Page", name: str) -> None:
    row(page, name).get_by_role("checkbox").check()


def test_columns_are_sorted_both_ways_and_say_so(page: "Page") -> None:
    def by(column: str) -> list[str]:
        page.locator(f"#runs thead th.{column} button").click()
        return names(page)

    assert by("seed") == ["ten", "going", "nine", HOSTILE]
    head = page.locator("#runs thead th.seed")
    assert head.get_attribute("aria-sort") == "ascending"
    assert by("seed") == [HOSTILE, "nine", "going", "ten"]
    assert head.get_attribute("aria-sort") == "descending"
    assert by("balanced-accuracy") == [HOSTILE, "ten", "nine", "going"]
    assert by("balanced-accuracy") == ["nine", "ten", HOSTILE, "going"]  # what is not known stays last
    assert page.locator("#runs thead [aria-sort]").count() == 1
    assert by("objective") == ["nine", "going", "ten", HOSTILE]


@pytest.mark.parametrize("width", [1280, 1000, 390])
def test_links_are_inside_the_window_and_many_runs_are_folded(browser: "Browser", tmp_path: Path, width: int) -> None:
    from evenhand.report.serving import MOST_UNFOLDED

    compared = tmp_path / "second_run_of_photos"
    verdict = "Undecided with 12 seeds: balanced-softmax+mixup has the highest mean so far (+9.5 [-10.4, 25.6]); " * 3
    ranked = [
        {
            "objective": f"balanced-softmax+{name}",
            "seconds_per_epoch": 1.0,
            "scores": {"balanced_accuracy": 0.9, "few": 0.8},
        }
        for name in ("mixup", "cutmix", "sampling:by=class")
    ]
    write_comparison(compared, verdicts=[verdict], model="lite0+lite1+lite2", source="photos_of_animals", table=ranked)
    (compared / "report.html").write_text(REPORT)
    for seed in range(MOST_UNFOLDED + 1):
        write_run(compared / f"photos_lite0+lite1+lite2_balanced-softmax+mixup_seed{seed}-d70fac3543", seed=seed)
    with served(tmp_path) as port, new_page(browser, viewport={"width": width, "height": 800}) as page:
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("#runs .tick input", state="attached")
        for link in ("report", "try it"):
            box = page.locator("#comparisons").get_by_text(link).first.bounding_box()
            assert box is not None
            assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert not page.locator("#runs").is_visible()
        page.locator("#runs-count").click()
        assert page.locator("#runs").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_sorting_works_by_keyboard(page: "Page") -> None:
    page.locator("#runs thead th.seed button").focus()
    page.keyboard.press("Enter")
    assert names(page)[0] == "ten"
    page.keyboard.press("Space")
    assert names(page)[0] == HOSTILE


def test_all_words_of_the_filter_must_match_in_either_table(page: "Page") -> None:
    page.get_by_role("searchbox").fill("cce FINISHED")
    assert names(page) == ["nine"]
    assert page.locator("#shown").text_content() == "1 of 4 runs"
    page.get_by_role("searchbox").fill("nothing of the kind")
    assert page.get_by_text("No run matches.").is_visible()
    assert page.get_by_text("No comparison matches.").is_visible()
    page.get_by_role("searchbox").fill("")
    assert len(names(page)) == 4
    assert page.locator("#comparisons tbody tr").count() == 1


def test_two_ticked_runs_stand_side_by_side_and_a_third_takes_the_place_of_the_first(page: "Page") -> None:
    tick(page, "ten")
    page.wait_for_selector("#curves figure")
    assert page.locator("#curves polyline").count() == 2
    tick(page, "nine")
    expect(page.locator("#curves polyline")).to_have_count(4)
    assert page.locator("#side-title").text_content() == "ten and nine"
    measures = page.locator("#metrics tr").filter(
        has=page.get_by_role("rowheader", name="balanced accuracy", exact=True)
    )
    assert measures.locator("td").all_text_contents()[2] == "+10.0"
    assert page.locator("#classes .bar").all_text_contents() == ["\N{MINUS SIGN}10.0", "+30.0"]
    assert page.locator("#curves figcaption").all_text_contents() == [
        "training loss, each of its own objective and so not on one scale",
        "validation balanced accuracy",
    ]
    assert page.locator("#curves svg[role=img]").last.get_attribute("aria-label") == (
        "validation balanced accuracy by epoch:  ce, seed 0: 40.0% (epoch 4)  cce, seed 10: 40.0% (epoch 4) "
    )
    page.get_by_role("link", name="ten and nine").click()
    expect(page.locator("#side")).to_be_focused()
    tick(page, "going")
    expect(page.locator("#side-title")).to_have_text("nine and going")
    assert not row(page, "ten").get_by_role("checkbox").is_checked()
    page.reload()
    expect(page.locator("#side-title")).to_have_text("nine and going")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#side")).to_be_hidden()


def test_names_from_strangers_stay_text_everywhere(page: "Page") -> None:
    tick(page, HOSTILE)
    tick(page, "ten")
    expect(page.locator("#curves polyline")).to_have_count(4)
    assert page.locator("#classes tbody th").all_text_contents() == ["cat", HOSTILE]
    assert page.locator("#comparisons .verdict").nth(1).text_content() == f"Use {HOSTILE}."
    assert page.locator("img").count() == 0


def test_the_pointer_reads_a_curve(page: "Page") -> None:
    tick(page, "ten")
    page.wait_for_selector("#curves figure")
    page.locator("#curves svg[role=img]").first.hover(position={"x": 60, "y": 50})
    assert "2.00 (epoch 1)" in (page.locator("#curves .legend").first.text_content() or "")


def test_a_report_runs_its_script_but_cannot_read_the_server(page: "Page", address: str) -> None:
    page.get_by_role("link", name="report of nine").click()
    expect(page).to_have_title("kept in")
    assert page.locator("#p").text_content() == "run"
    page.goto(address)


def test_a_run_of_long_ago_says_how_long_there_was_no_news(page: "Page") -> None:
    assert row(page, "going").locator(".state").text_content() == "stopped no change for 2 hours"


def test_without_a_script_the_list_is_there(browser: "Browser", address: str) -> None:
    with new_page(browser, java_script_enabled=False) as page:
        page.goto(address)
        assert page.locator("#runs tbody tr").count() == 4
        assert page.locator("noscript p").is_visible()
        assert not page.get_by_role("searchbox").is_visible()


def test_nothing_is_wider_than_the_screen(page: "Page") -> None:
    tick(page, "ten")
    tick(page, "nine")
    page.wait_for_selector("#classes table")
    for width in (1280, 800, 390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_focus_stays_where_it_was_when_news_comes(browser: "Browser", tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", done=1, finished=False)
    with served(tmp_path) as port, new_page(browser) as page:
        page.goto(f"http://127.0.0.1:{port}/")
        page.get_by_role("checkbox").focus()
        Run(run).write_history([history_row(epoch) for epoch in (1, 2, 3)])
        expect(page.locator("#runs tbody .epochs")).to_contain_text("3 / 4")
        assert page.evaluate("document.activeElement.type") == "checkbox"
        write_run(tmp_path / "b")
        expect(page.locator("#runs tbody tr")).to_have_count(2)
        assert page.evaluate("document.activeElement.closest('tr').textContent.includes('3 / 4')")


def test_the_page_follows_a_real_run_while_it_trains(browser: "Browser", tmp_path: Path) -> None:
    config = make_config(data__imbalance="exp:20", epochs=400)
    epochs: set[str] = set()
    lengths: set[int] = set()
    with served(tmp_path) as port, new_page(browser) as page:
        page.goto(f"http://127.0.0.1:{port}/")
        assert page.get_by_text("No runs yet").is_visible()
        run = begin(train_run, config, tmp_path / "live", log=tmp_path / "log.txt")
        try:
            page.wait_for_selector("#runs tr[data-state=training]", timeout=60_000)
            tick(page, "live")
            curve = page.locator("#curves polyline").first
            until = time.monotonic() + 40
            while (len(epochs) < 3 or len(lengths) < 3) and time.monotonic() < until:
                lengths.add(len((curve.get_attribute("points") or "").split()))
                epochs.add((page.locator("#runs tbody .epochs").text_content() or "").split(" / ")[0])
                page.wait_for_timeout(100)
        finally:
            run.kill()
            end_of(run)
        assert len(epochs) >= 3, "the number of epochs did not grow"
        assert len(lengths) >= 3, "the curve did not grow"
        assert page.evaluate("performance.getEntriesByType('navigation').length") == 1, "it was loaded again"


def test_a_server_that_is_gone_is_told(browser: "Browser", tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    with new_page(browser) as page:
        with served(tmp_path) as port:
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_selector("#runs .tick input")
        page.wait_for_selector("text=The server does not answer")
        assert page.locator("#runs tbody tr").count() == 1
