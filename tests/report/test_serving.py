"""The routes of `evenhand serve`: what they answer, and above all what they refuse."""

import http.client
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenhand.runs.run import Run
from tests.report.served_runs import served, write_comparison, write_run, write_summary

pytest.importorskip("starlette", reason="needs the extra: pip install 'evenhand[serve]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'evenhand[serve]'")

from evenhand.core.errors import EvenhandError
from evenhand.report import serving
from evenhand.report._listing import Listing
from evenhand.report._serve_rows import RUN_COLUMNS, run_row

HOSTILE = "<img src=x onerror=alert(1)>"
SECRET = "do not show"


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.body = response.status, response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """Asks for exactly the path it is given, unlike clients that tidy it up first."""

    def __init__(self, root: Path, port: int) -> None:
        self.root, self.port = root, port

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection._validate_path = lambda _: None  # type: ignore[attr-defined]
        try:
            connection.putrequest(method, path, skip_host="host" in headers)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def ids(self) -> dict[str, str]:
        content = self.ask("/runs.json").json()
        return {row["cells"][0]["text"]: row["id"] for row in [*content["runs"], *content["comparisons"]]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    top = tmp_path_factory.mktemp("top")
    root = top / "runs"
    (top / "secret.txt").write_text(SECRET)
    outside = write_run(top / "outside")
    (outside / "report.html").write_text(SECRET)
    run = write_run(root / "a")
    (run / "report.html").write_text("<p>report of a</p>")
    (run / "weights").mkdir()
    (run / "weights" / "best.safetensors").write_text(SECRET)
    write_run(root / "linked")
    (root / "linked" / "report.html").symlink_to(top / "secret.txt")
    (root / "away").symlink_to(outside)
    write_comparison(root / "c")
    (root / "c" / "report.html").write_text("<p>report of c</p>")
    write_run(root / HOSTILE, objective="ce")
    write_summary(root / HOSTILE, {HOSTILE: (9, 0.5), "other": (5, 0.5)}, source="<script>alert(2)</script>")
    write_run(root / "going", done=2, finished=False)
    write_run(root / "damaged")
    for name in ("config.yaml", "history.csv", "summary.json"):
        (root / "damaged" / name).write_bytes(b"\xff{[")
    with served(root) as port:
        yield Server(root, port)


def test_the_list_is_on_the_page_without_a_script(server: Server) -> None:
    page = server.ask("/")
    text = page.body.decode()
    assert page.status == 200
    assert text.count("<tr ") == 2 + 5 + 1  # two heads, five runs, a comparison
    assert "Use cce." in text
    low, high = Run(server.root / "a").summary.balanced_accuracy_interval or (0, 0)
    assert re.search(rf"61\.7%\s*<small>{low:.1%} to {high:.1%}</small>", text)
    assert "2 / 4 <small>validation 20.0%</small>" in text


def test_names_from_strangers_stay_text(server: Server) -> None:
    text = server.ask("/").body.decode()
    assert HOSTILE not in text
    assert "<script>alert" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    details = server.ask(f"/runs/{server.ids()[HOSTILE]}.json")
    assert details.headers["content-type"].startswith("application/json")
    assert details.json()["classes"][0]["name"] == HOSTILE


def test_details_hold_curves_metrics_and_classes(server: Server) -> None:
    content = server.ask(f"/runs/{server.ids()['a']}.json").json()
    assert content["curves"]["train_loss"] == [2.0, 1.0, 2 / 3, 0.5]
    assert content["curves"]["val_complement_entropy_wrong"] == [None] * 4  # NaN is no JSON
    assert [row["name"] for row in content["classes"]] == ["cat", "dog", "owl"]
    metrics = {row["title"]: row["value"] for row in content["metrics"]}
    assert metrics["balanced accuracy"] == pytest.approx(0.6167, abs=1e-4)
    assert metrics["few-shot recall"] == 0.25
    assert (content["objective"], content["epochs_done"], content["state"]) == ("cce", 4, "finished")


def test_a_run_that_trains_has_curves_and_no_figures_yet(server: Server) -> None:
    content = server.ask(f"/runs/{server.ids()['going']}.json").json()
    assert (content["state"], content["epochs_done"], content["epochs"]) == ("training", 2, 4)
    assert len(content["curves"]["epoch"]) == 2
    assert content["metrics"] == content["classes"] == content["problems"] == []


def test_a_damaged_run_is_a_row_and_never_an_error_of_the_server(server: Server) -> None:
    content = server.ask(f"/runs/{server.ids()['damaged']}.json")
    assert content.status == 200
    assert len(content.json()["problems"]) == 3
    assert content.json()["curves"] == {}


@pytest.mark.parametrize(
    ("age", "words"),
    [(70, "1 minute"), (150, "2 minutes"), (7100, "118 minutes"), (7300, "2 hours"), (10 * 86_400 + 60, "10 days")],
)
def test_how_long_there_was_no_news(tmp_path: Path, age: float, words: str) -> None:
    write_run(tmp_path / "a", done=1, finished=False, age=age)
    (run,) = Listing(tmp_path).runs()
    assert run_row(run)["cells"][RUN_COLUMNS.index("state")]["note"] == f"no change for {words}"


def test_epochs_are_unknown_only_where_the_history_cannot_be_read(tmp_path: Path) -> None:
    write_run(tmp_path / "a", done=0, finished=False)
    column = RUN_COLUMNS.index("epochs")
    assert run_row(Listing(tmp_path).runs()[0])["cells"][column]["text"] == "0 / 4"
    (tmp_path / "a" / "history.csv").write_text("epoch\nfirst\n")
    assert run_row(Listing(tmp_path).runs()[0])["cells"][column]["text"] == "? / 4"


def test_a_run_after_its_last_epoch_is_being_judged(tmp_path: Path) -> None:
    write_run(tmp_path / "a", done=4, finished=False)
    state = run_row(Listing(tmp_path).runs()[0])["cells"][RUN_COLUMNS.index("state")]
    assert (state["text"], state["note"]) == ("training", "evaluating")


def test_no_class_is_the_worst_where_all_are_recognised(tmp_path: Path) -> None:
    write_summary(write_run(tmp_path / "a"), {"cat": (120, 1.0), "owl": (6, 1.0)})
    worst = run_row(Listing(tmp_path).runs()[0])["cells"][RUN_COLUMNS.index("worst class")]
    assert (worst["text"], worst["note"]) == ("-", "")


def test_reports_are_served_in_a_sandbox_where_their_script_still_runs(server: Server) -> None:
    ids = server.ids()
    for name in ("a", "c"):
        report = server.ask(f"/reports/{ids[name]}")
        assert (report.status, report.body.decode()) == (200, f"<p>report of {name}</p>")
        policy = report.headers["content-security-policy"]
        assert policy.startswith("sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline';")
        assert "allow-same-origin" not in policy
    assert server.ask(f"/reports/{ids['going']}").status == 404


def test_every_answer_has_the_headers(server: Server) -> None:
    answers = [server.ask(path) for path in ("/", "/runs.json", "/static/serve.js", "/static/serve.css", "/none")]
    for answer in [*answers, server.ask("/", "POST"), server.ask("/", host="evil.example")]:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'" in policy


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading_is_allowed(server: Server, method: str) -> None:
    for path in ("/", "/runs.json", f"/runs/{server.ids()['a']}.json", f"/reports/{server.ids()['a']}"):
        assert server.ask(path, method).status == 405
    assert server.ask("/", "HEAD").body == b""


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e%2fsecret.txt",
        "%2e%2e/secret.txt",
        "%252e%252e%252fsecret.txt",
        "..%5csecret.txt",
        "....//secret.txt",
        "TOP/secret.txt",
        "TOP%2fsecret.txt",
        "%00",
        "a%00.json",
        "a",
        "a/report.html",
        "a/config.yaml",
        "a/weights/best.safetensors",
        "ID%00",
        "ID/../../secret.txt",
        "ID%2f..%2f..%2fsecret.txt",
        "ID/weights/best.safetensors",
        "serve.html.j2",
        "..%2fserving.py",
        "report.html.j2",
        "away/report.html",
        "linked/report.html",
        "%ff%fe",
        "a" * 5000,
    ],
)
def test_no_other_file_can_be_fetched(server: Server, path: str) -> None:
    path = path.replace("TOP", str(server.root.parent)).replace("ID", server.ids()["a"])
    for prefix in ("/runs/", "/reports/", "/static/", "/", "//"):
        for ending in ("", ".json"):
            answer = server.ask(prefix + path + ending)
            assert answer.status in (400, 404), (prefix, ending, answer.body)
            assert SECRET.encode() not in answer.body


def test_a_report_that_is_a_link_is_not_served_and_a_linked_run_is_not_listed(server: Server) -> None:
    ids = server.ids()
    assert "away" not in ids
    assert server.ask(f"/reports/{ids['linked']}").status == 404


def test_a_report_that_becomes_a_link_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    run = write_run(tmp_path / "runs" / "a")
    (run / "report.html").write_text("fine")
    with served(tmp_path / "runs") as port:
        server = Server(tmp_path / "runs", port)
        address = f"/reports/{server.ids()['a']}"
        assert server.ask(address).status == 200
        (run / "report.html").unlink()
        (run / "report.html").symlink_to(tmp_path / "secret")
        assert server.ask(address).status == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "[", "10.0.0.1"])
def test_a_foreign_name_for_this_machine_is_refused(server: Server, host: str) -> None:
    assert server.ask("/runs.json", host=host).status == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1:5", "[::1]", "[::1]:8765"])
def test_the_names_of_this_machine_are_allowed(server: Server, host: str) -> None:
    assert server.ask("/runs.json", host=host).status == 200


def test_open_to_all_any_address_is_allowed_but_no_foreign_name() -> None:
    guard = serving._Guard(lambda *_: None, host="0.0.0.0")  # type: ignore[arg-type, return-value]
    assert guard._is_known("192.168.1.7:8765")
    assert guard._is_known("[fe80::1]:8765")
    assert not guard._is_known("evil.example")


def test_news_is_sent_only_if_there_is_some(server: Server) -> None:
    first = server.ask("/runs.json")
    assert server.ask("/runs.json", if_none_match=first.headers["etag"]).status == 304
    assert server.ask("/runs.json", if_none_match='"other"').status == 200


def test_names_that_are_no_unicode_are_shown_all_the_same(tmp_path: Path) -> None:
    try:
        folder = write_run(Path(os.fsdecode(os.fsencode(tmp_path / "caf") + b"\xe9")))
    except (OSError, EvenhandError):
        pytest.skip("this file system takes only Unicode names")
    path = folder / "summary.json"
    path.write_text(path.read_text("utf-8").replace('"digits"', '"\\ud800"'))
    with served(tmp_path) as port:
        server = Server(tmp_path, port)
        assert [server.ask(path).status for path in ("/", "/runs.json")] == [200, 200]
        assert server.ask(f"/runs/{server.ask('/runs.json').json()['runs'][0]['id']}.json").status == 200


def test_the_list_is_made_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "a")
    searched: list[float] = []
    genuine = Listing.runs
    monkeypatch.setattr(Listing, "runs", lambda self: searched.append(time.monotonic()) or genuine(self))
    with served(tmp_path) as port:
        server = Server(tmp_path, port)
        began = time.monotonic()
        while time.monotonic() - began < 2.5:
            assert server.ask("/").status == server.ask("/runs.json").status == 200
        assert len(searched) <= 4
        write_run(tmp_path / "b")
        time.sleep(1.1)
        assert set(server.ids()) == {"a", "b"}


def test_an_empty_folder_says_what_makes_runs(tmp_path: Path) -> None:
    with served(tmp_path) as port:
        assert b"No runs yet" in Server(tmp_path, port).ask("/").body


def test_the_next_free_port_is_taken_but_a_port_that_was_asked_for_is_not_changed() -> None:
    with serving.listen("127.0.0.1") as first, serving.listen("127.0.0.1") as second:
        taken = first.getsockname()[1]
        assert second.getsockname()[1] > taken >= serving.PORT
        with pytest.raises(EvenhandError, match=rf"Cannot listen on 127\.0\.0\.1:{taken}: .* choose another"):
            serving.listen("127.0.0.1", taken)
    with pytest.raises(EvenhandError, match="Cannot listen on 203"):
        serving.listen("203.0.113.7")
