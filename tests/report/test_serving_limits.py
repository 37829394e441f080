"""`evenhand serve` beside clients that are slow, many or garbled."""

import contextlib
import http.client
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.report.served_runs import served, write_run

pytest.importorskip("uvicorn", reason="needs the extra: pip install 'evenhand[serve]'")

from evenhand.report import _limits as limits

SLOW = {
    "say nothing": b"",
    "half a request line": b"GET /ru",
    "no end of headers": b"GET /runs.json HTTP/1.1\r\nHost: 127.0.0.1\r\nA: b\r\n",
    "a body that never comes": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n",
    "never read the answer": b"GET /reports/{id} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 3,
    "one request, then half of the next": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /x HT",
    "garbage": b"\x00\xff\x16\x03 no HTTP\r\n\r\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    (write_run(root / "large") / "report.html").write_bytes(b"x" * 2**24)
    return root


def ask(port: int) -> tuple[int, float]:
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/runs.json")
    status = connection.getresponse().status
    connection.close()
    return status, time.perf_counter() - begun


@contextlib.contextmanager
def clients(port: int, number: int, content: bytes) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(number):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            with contextlib.suppress(ConnectionError):  # dropped by then
                client.sendall(content)
            opened.append(client)
        yield opened


def is_dropped(client: socket.socket) -> bool:
    try:
        while client.recv(2**16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("kind", SLOW)
def test_300_slow_clients_stop_nobody(folder: Path, kind: str) -> None:
    with served(folder) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/runs.json")
        content = SLOW[kind].replace(b"{id}", _first_id(connection.getresponse().read()))
        connection.close()
        with clients(port, 300, content):
            began = time.perf_counter()
            while (status := ask(port)[0]) == 503:  # until the others have had their time
                assert time.perf_counter() - began < 10
                time.sleep(0.2)
    assert status == 200


def _first_id(body: bytes) -> bytes:
    return str(json.loads(body)["runs"][0]["id"]).encode()


def test_the_newest_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 3)
    with served(folder) as port, clients(port, 3, b"GET /") as opened:
        time.sleep(0.3)
        assert ask(port)[0] == 503
        for client in opened:
            client.sendall(b"runs.json HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        for client in opened:
            assert client.recv(2**16).startswith(b"HTTP/1.1 200")
            assert is_dropped(client)
        assert ask(port)[0] == 200


def test_a_client_that_keeps_the_server_waiting_gives_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(limits, "PATIENCE", 0.2)
    with served(folder) as port, clients(port, 3, b"GET /") as opened:
        time.sleep(0.5)
        assert ask(port)[0] == 200
        for client in opened:
            client.settimeout(0.3)
        assert [is_dropped(client) for client in opened] == [True, False, False]


@pytest.mark.parametrize(("most", "codes"), [(4, {200, 503}), (100, {200})])
def test_no_request_of_many_is_dropped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, codes: set[int]
) -> None:
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", most)
    with served(folder) as port, ThreadPoolExecutor(40) as pool:
        assert {status for status, _ in pool.map(ask, [port] * 400)} <= codes


@pytest.mark.parametrize("kind", ["say nothing", "half a request line", "no end of headers"])
def test_headers_have_little_time(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.5)
    with served(folder) as port, clients(port, 1, SLOW[kind]) as [client]:
        begun = time.perf_counter()
        assert is_dropped(client)
        assert 0.3 < time.perf_counter() - begun < 5


def test_bytes_that_trickle_do_not_buy_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.6)
    dropped = False
    with served(folder) as port, clients(port, 1, b"GET / HTTP/1.1\r\n") as [client]:
        begun = time.perf_counter()
        while not dropped and time.perf_counter() - begun < 10:
            time.sleep(0.1)
            try:
                client.sendall(b"A: b\r\n")
            except ConnectionError:
                dropped = True
    assert dropped


def test_a_quick_client_may_ask_again_and_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.5)
    with served(folder) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        for _ in range(8):
            connection.request("GET", "/runs.json")
            response = connection.getresponse()
            assert response.status == 200
            response.read()
            time.sleep(0.2)


def test_an_answer_nobody_takes_is_dropped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_SECONDS", 0.5)
    with served(folder) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/runs.json")
        content = SLOW["never read the answer"].replace(b"{id}", _first_id(connection.getresponse().read()))
        connection.close()
        with clients(port, 1, content) as [client]:
            time.sleep(1.5)
            got = 0
            with contextlib.suppress(ConnectionError):
                while part := client.recv(2**20):
                    got += len(part)
    assert got < 3 * 2**24


def _lines(number: int, keep: Callable[[logging.LogRecord], bool]) -> list[str]:
    made = [logging.LogRecord("x", logging.WARNING, "", 0, "line %d", (k,), None) for k in range(number)]
    return [record.getMessage() for record in made if keep(record)]


def test_the_log_stays_short(monkeypatch: pytest.MonkeyPatch) -> None:
    few = limits.FewLines()
    assert len(_lines(200_000, few.filter)) == limits.MOST_LINES
    monkeypatch.setattr(limits, "LINE_SECONDS", 0.0)
    left_out = 200_000 - limits.MOST_LINES
    assert _lines(2, few.filter) == [f"line 0 ({left_out} lines left out before this)", "line 1"]


def test_garbage_fills_no_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(folder) as port:
        for _ in range(60):
            with clients(port, 1, SLOW["garbage"]) as [client]:
                assert is_dropped(client)
    assert len(caplog.records) <= limits.MOST_LINES
