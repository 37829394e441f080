"""`evenhand serve`: a local, read-only page of all runs and comparisons in a folder.

Routes: `/` the page, `/runs.json` the same list as JSON, `/runs/ID.json` curves, metrics and classes of one run,
`/reports/ID` the report of a run or comparison, `/try/ID` the page that classifies a picture, `/static/NAME` script
and styles. All are for GET and HEAD only, but a picture is sent by POST. An ID is looked up in the listing and never
used in a path, so no other file can be requested.
"""

import errno
import hashlib
import ipaddress
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenhand.core.errors import EvenhandError
from evenhand.core.opening import open_regular
from evenhand.core.text import json_line
from evenhand.report._escape import page_environment
from evenhand.report._limits import FewLines, LimitedProtocol
from evenhand.report._listing import Listing
from evenhand.report._serve_rows import COMPARISON_COLUMNS, RUN_COLUMNS, comparison_row, run_row, when
from evenhand.report._serve_summary import classes, curves, metric_rows
from evenhand.report._try_page import TryPages
from evenhand.runs.lenient import read_leniently
from evenhand.runs.run import Run

PORT, PORTS_TRIED = 8765, 50
LARGEST_REPORT = 2**28
LIST_SECONDS = 1.0
MOST_UNFOLDED = 24
"""Runs that the page shows unfolded under comparisons."""
"""A list is served for so long before the folder is searched again."""
STATIC = {
    "style.css": "text/css",
    "serve.css": "text/css",
    "serve.js": "text/javascript",
    "serve_curves.js": "text/javascript",
    "try.css": "text/css",
    "try.js": "text/javascript",
}
OWN_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report has inline script and images. The sandbox gives it its own origin, from which it cannot read the rest of this
# server; its own policy, in the page, applies too.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": OWN_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def make_app(root: Path, *, host: str = "127.0.0.1", poll_seconds: float = 3.0) -> Starlette:
    """Make the app that shows the runs and comparisons under a folder.

    Args:
        root: the folder; nothing outside it is read but the images and cached features of a run's own source, once a
            picture is classified with it.
        host: the address of the server, accepted as host name besides localhost.
        poll_seconds: how often the page polls.

    Raises:
        EvenhandError: there is no such folder.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.report.serving import make_app
        >>> [route.path for route in make_app(Path(tempfile.mkdtemp())).routes]
        ['/', '/runs.json', '/runs/{id}.json', '/reports/{id}', '/static/{name}', '/try/{id}', '/try/{id}']
    """
    pages = _Pages(Listing(root), poll_seconds)
    routes = [
        Route("/", pages.page),
        Route("/runs.json", pages.rows),
        Route("/runs/{id}.json", pages.details),
        Route("/reports/{id}", pages.report),
        Route("/static/{name}", pages.static),
    ]
    tried = TryPages(pages.listing, page_environment())
    app = Starlette(routes=routes + tried.routes(), middleware=[Middleware(_Guard, host=host)])
    app.state.predictor = tried.predictor
    return app


def serve(root: Path, *, host: str = "127.0.0.1", port: int | None = None, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C.

    Args:
        root: the folder of runs.
        host: the address to listen on; anything but 127.0.0.1 opens the page to others.
        port: None: 8765, or the next one that is free.
        ready: called with the URL of the page once it can be opened.

    Raises:
        EvenhandError: there is no such folder, or nothing can listen there.
    """
    app = make_app(root, host=host)
    with listen(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{listening.getsockname()[1]}/")
        try:
            make_server(app).run(sockets=[listening])
        finally:
            app.state.predictor.close()


def make_server(app: Starlette) -> uvicorn.Server:
    """Make the server of an app, with limits per client."""
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        log_level="warning",
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    few = FewLines()
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.filters = [each for each in logger.filters if not isinstance(each, FewLines)]
        logger.addFilter(few)
    return uvicorn.Server(config)


def listen(host: str, port: int | None = None) -> socket.socket:
    """Listen on this port, or on the first free one from 8765 on.

    Raises:
        EvenhandError: the port is taken, or the address is not one of this machine.

    Example:
        >>> from evenhand.report.serving import listen
        >>> with listen("127.0.0.1") as first, listen("127.0.0.1") as second:
        ...     8765 <= first.getsockname()[1] < second.getsockname()[1]
        True
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reason = ""
    for number in range(PORT, PORT + PORTS_TRIED) if port is None else [port]:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":  # on Windows this would share the port with another server
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, number))
            listening.listen()
            return listening
        except OSError as error:
            listening.close()
            reason = error.strerror or str(error)
            if error.errno != errno.EADDRINUSE:
                break
    where = f"{host}:{PORT if port is None else port}"
    raise EvenhandError(f"Cannot listen on {where}: {reason}; choose another with --host and --port.")


_HOST = re.compile(r"(?:(?P<name>[a-z0-9_.-]+)|\[(?P<v6>[0-9a-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?")


class _Guard:
    """Refuses unknown host names (DNS rebinding), and adds headers to every response."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app = app
        self.names = {"localhost", "127.0.0.1", "::1", host.lower()}
        self.open = host in ("0.0.0.0", "::")
        if self.open:
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(given) == 1 and self._is_known(given[0]):
            await self.app(scope, receive, with_headers)
        else:
            refused = PlainTextResponse("Unknown host name; open the address that was printed.", 400)
            await refused(scope, receive, with_headers)

    def _is_known(self, given: str) -> bool:
        try:
            found = _HOST.fullmatch(given.lower())
            if found is None or int(found["port"] or 0) > 65535:
                return False
            name = found["name"] or found["v6"]
            if name in self.names:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.open


@dataclass(frozen=True)
class _List:
    """The runs and comparisons at one time, as they are sent."""

    content: dict[str, Any]
    root: Path
    poll_seconds: float
    at: float

    @cached_property
    def page(self) -> bytes:
        """The page, which shows the list even without its script."""
        html = (
            page_environment()
            .get_template("serve.html.j2")
            .render(
                **self.content,
                root=str(self.root),
                run_columns=RUN_COLUMNS,
                comparison_columns=COMPARISON_COLUMNS,
                folded=bool(self.content["comparisons"]) and len(self.content["runs"]) > MOST_UNFOLDED,
                poll_seconds=self.poll_seconds,
                now=when(time.time()),
            )
        )
        return html.encode("utf-8", "replace")

    @cached_property
    def json(self) -> tuple[bytes, str]:
        """The list as JSON, and its tag."""
        return _tagged(self.content)


class _Pages:
    """The endpoints. Starlette runs them in threads, so a slow disk blocks no other request."""

    def __init__(self, listing: Listing, poll_seconds: float) -> None:
        self.listing, self.poll_seconds = listing, poll_seconds
        templates = files("evenhand.report") / "templates"
        self.own = {name: (templates / name).read_bytes() for name in STATIC}
        self._listed: _List | None = None
        self._lock = threading.Lock()

    def page(self, _: Request) -> Response:
        return Response(self._list().page, media_type="text/html")

    def rows(self, request: Request) -> Response:
        return _json(request, *self._list().json)

    def details(self, request: Request) -> Response:
        entry = self.listing.find(request.path_params["id"])
        if entry is None or entry.kind != "run":
            raise HTTPException(404)
        run = self.listing.run(entry)
        content: dict[str, Any] = {
            **run_row(run),
            **{key: getattr(run, key) for key in ("source", "imbalance", "objective", "seed", "epochs_done", "epochs")},
            "name": entry.name,
            "curves": {},
            "classes": [],
            "metrics": [],
        }
        # Damaged files are listed in the problems.
        read, _ = read_leniently(Run(entry.path), "history", "summary")
        if "history" in read:
            content["curves"] = curves(read["history"])
        if "summary" in read:
            content |= {"classes": classes(read["summary"]), "metrics": metric_rows(read["summary"])}
        return _json(request, *_tagged(content))

    def report(self, request: Request) -> Response:
        entry = self.listing.find(request.path_params["id"])
        if entry is None or not entry.has_report:
            raise HTTPException(404)
        if entry.files["report.html"].st_size > LARGEST_REPORT:
            return PlainTextResponse("This report is too large to be served; open report.html from disk.", 413)
        try:
            file = open_regular(entry.path / "report.html", within=entry.path)
        except OSError as error:
            raise HTTPException(404) from error
        # Streamed, so that a slow client does not keep the report in memory.
        headers = {"Content-Security-Policy": REPORT_POLICY, "Content-Length": str(os.fstat(file.fileno()).st_size)}
        return StreamingResponse(_parts(file), media_type="text/html", headers=headers)

    def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.own:
            raise HTTPException(404)
        return Response(self.own[name], media_type=STATIC[name])

    def _list(self) -> _List:
        """Return the list, made by one thread at a time; the others take the last one, if there is one."""
        listed = self._listed
        if listed is not None and time.monotonic() - listed.at < LIST_SECONDS:
            return listed
        if not self._lock.acquire(blocking=listed is None) and listed is not None:
            return listed
        try:
            if self._listed is not listed and self._listed is not None:  # another thread has made it meanwhile
                return self._listed
            content = {
                "runs": [run_row(run) for run in self.listing.runs()],
                "comparisons": [comparison_row(each) for each in self.listing.comparisons()],
                "note": self.listing.note,
            }
            self._listed = _List(content, self.listing.root, self.poll_seconds, time.monotonic())
            return self._listed
        finally:
            self._lock.release()


def _parts(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while part := file.read(2**18):
            yield part


def _tagged(content: dict[str, Any]) -> tuple[bytes, str]:
    body = json_line(content).encode()
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _json(request: Request, body: bytes, tag: str) -> Response:
    """Respond with JSON, or with 304 if the browser has it already."""
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, media_type="application/json", headers={"ETag": tag})
