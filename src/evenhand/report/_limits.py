"""Limits that keep the server responsive to slow, many or invalid clients."""

import asyncio
import logging
import time
from collections import deque

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 64
"""With more, the connection that has waited longest is dropped."""
HEADER_SECONDS = 10.0
"""From the first byte of a request, or from the connection, to its last header."""
ANSWER_SECONDS = 60.0
"""From there until the client has received the response."""
MOST_LINES, LINE_SECONDS = 20, 60.0
"""At most this many log lines in this many seconds; the next line reports how many were left out."""


class LimitedProtocol(H11Protocol):
    """A connection that is dropped when its client is too slow, or when there are too many."""

    _waiting: asyncio.TimerHandle | None = None
    _since = 0.0
    _asked = _dropped = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, and drop the one that has waited longest if there are too many."""
        super().connection_made(transport)
        self._give(HEADER_SECONDS, asked=False)
        known = [each for each in self.connections if isinstance(each, LimitedProtocol) and not each._dropped]
        if len(known) > MOST_CONNECTIONS:
            min(known, key=lambda each: each._since)._drop()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; a complete request starts the timeout of its response."""
        idle = self.cycle is None or self.cycle.response_complete
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering != self._asked or (idle and self._waiting is None):
            self._give(ANSWER_SECONDS if answering else HEADER_SECONDS, asked=answering)

    def on_response_complete(self) -> None:
        """Stop the timeout if the client has received the whole response; uvicorn handles idle connections."""
        if not self.transport.get_write_buffer_size():
            self._forget()
        self._asked = False
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        super().connection_lost(exc)

    def _give(self, seconds: float, *, asked: bool) -> None:
        self._forget()
        self._asked, self._since = asked, self.loop.time()
        self._waiting = self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        answered = self.cycle is not None and self.cycle.response_complete
        if answered and not self.transport.get_write_buffer_size():
            self._waiting = None  # idle
        else:
            self._drop()

    def _drop(self) -> None:
        self._dropped = True
        self.transport.abort()

    def _forget(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


class FewLines(logging.Filter):
    """Limits the number of log lines per minute."""

    def __init__(self) -> None:
        super().__init__()
        self.times: deque[float] = deque(maxlen=MOST_LINES)
        self.left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        now = time.monotonic()
        if len(self.times) == MOST_LINES and now - self.times[0] < LINE_SECONDS:
            self.left_out += 1
            return False
        self.times.append(now)
        if self.left_out:
            record.msg = f"{record.getMessage()} ({self.left_out} lines left out before this)"
            record.args, self.left_out = None, 0
        return True
