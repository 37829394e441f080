"""The page on which a picture is classified with the model of a run or comparison.

The picture is the body of a POST request. It is neither stored nor logged.
"""

import secrets
import threading
import time
from collections import deque
from typing import Any

from jinja2 import Environment
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from evenhand.core.errors import EvenhandError
from evenhand.core.text import json_line
from evenhand.report._listing import Compared, Entry, Listing, RunState
from evenhand.report._predictor import Predictor, StillBusyError

LARGEST = 20 * 2**20
"""Bytes of a picture."""
TYPES = ("jpeg", "png", "webp", "gif", "bmp", "tiff", "avif", "jp2")
MOST, MOST_SECONDS = 30, 60.0
"""At most this many pictures in this many seconds."""
MOST_AT_ONCE = 4
"""Requests whose pictures are in memory."""


class TryPages:
    """Two endpoints of one address: GET the page, POST a picture.

    A request of another site is refused: it lacks the token of the page, which only pages of this server can read.

    Args:
        listing: of runs and comparisons.
        environment: of the templates.
    """

    def __init__(self, listing: Listing, environment: Environment) -> None:
        self.listing, self.environment = listing, environment
        self.predictor = Predictor()
        self.token = secrets.token_urlsafe(32)
        self.times: deque[float] = deque(maxlen=MOST)
        self.places = threading.BoundedSemaphore(MOST_AT_ONCE)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/try/{id}", self.page), Route("/try/{id}", self.classify, methods=["POST"])]

    def page(self, request: Request) -> Response:
        """Return the page."""
        entry = self._entry(request)
        html = self.environment.get_template("try.html.j2").render(
            name=entry.name,
            kind=entry.kind,
            report=f"/reports/{entry.id}" if entry.has_report else None,
            token=self.token,
            largest=LARGEST,
            types=[f"image/{name}" for name in TYPES],
            **_about(self._state(entry)),
        )
        return Response(html.encode("utf-8", "replace"), media_type="text/html")

    async def classify(self, request: Request) -> Response:
        """Classify the picture that is the body of the request."""
        if not self._is_own(request):
            return _refuse("Open the page again and send the picture from there.", 403)
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given.removeprefix("image/") not in TYPES or not given.startswith("image/"):
            return _refuse(f"Pictures are {', '.join(TYPES)}; this is {given[:60] or 'of an unknown type'}.", 415)
        entry = await run_in_threadpool(self._entry, request)
        if not self.places.acquire(blocking=False):
            return _refuse("The model is busy with other pictures; try again in a few seconds.", 429)
        try:
            if not self._may_go_on():
                return _refuse(f"At most {MOST} pictures in a minute are classified; wait a little.", 429)
            picture = await _body(request)
            if picture is None:
                return _refuse(f"This picture is too large; at most {LARGEST >> 20} MB are read.", 413)
            answer = await run_in_threadpool(self.predictor.classify, entry.path, picture)
        except StillBusyError as error:
            return _refuse(str(error), 503)
        except EvenhandError as error:
            return _refuse(str(error).replace(f"{self.listing.root}/", ""), 422)
        except ClientDisconnect:
            return Response(status_code=400)
        finally:
            self.places.release()
        return _json(answer, 200)

    def _entry(self, request: Request) -> Entry:
        entry = self.listing.find(request.path_params["id"])
        if entry is None or not entry.has_model:
            raise HTTPException(404)
        return entry

    def _state(self, entry: Entry) -> RunState | Compared:
        if entry.kind == "run":
            return self.listing.run(entry)
        compared = (each for each in self.listing.comparisons() if each.entry.id == entry.id)
        return next(compared, Compared(entry, 0.0))

    def _is_own(self, request: Request) -> bool:
        """Return whether a request comes from a page of this server."""
        origin, token = request.headers.get("origin"), request.headers.get("x-evenhand-token", "")
        same = origin is None or origin.partition("://")[2] == request.headers.get("host")
        return same and secrets.compare_digest(token.encode(), self.token.encode())

    def _may_go_on(self) -> bool:
        now = time.monotonic()
        if len(self.times) == MOST and now - self.times[0] < MOST_SECONDS:
            return False
        self.times.append(now)
        return True


def _about(state: RunState | Compared) -> dict[str, Any]:
    """Return what the page says about the model."""
    if isinstance(state, RunState):
        reached = "" if state.balanced_accuracy is None else f"balanced accuracy {state.balanced_accuracy:.1%}"
        parts = [state.source, state.model, state.objective, reached]
    else:
        parts = [state.source, state.model, "the recommended objective"]  # its report has the verdict
    return {"about": ", ".join(filter(None, parts))}


async def _body(request: Request) -> bytes | None:
    """Return the body of a request; None where it is too large."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > LARGEST:
        return None
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            return None
    return b"".join(parts)


def _refuse(why: str, status: int) -> Response:
    return _json({"error": why}, status)


def _json(content: dict[str, Any], status: int) -> Response:
    headers = {"Cache-Control": "no-store"}
    return Response(json_line(content).encode(), status, media_type="application/json", headers=headers)
