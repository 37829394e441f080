"""Limits that keep the server responsive to slow, many or invalid clients."""

import asyncio
import logging
import time
from collections import deque

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 128
"""With more, the newest is refused with 503, unless another one keeps the server waiting."""
PATIENCE = 2.0
"""Seconds for which a client that sends no request, or takes no response, may hold one of these connections."""
REFUSED_SECONDS = 2.0
"""Seconds for the request that is answered with 503: to close before it has come would lose the answer."""
MOST_REFUSED = 512
"""Connections waiting for that; more are dropped."""
HEADER_SECONDS = 10.0
"""From the first byte of a request, or from the connection, to its last header."""
ANSWER_SECONDS = 60.0
"""From there until the client has received the response."""
MOST_LINES, LINE_SECONDS = 20, 60.0
"""At most this many log lines in this many seconds; the next line reports how many were left out."""


_BUSY = b"Too many connections; try again in a second."
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\n"
    b"X-Content-Type-Options: nosniff\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_BUSY), _BUSY)
)


class LimitedProtocol(H11Protocol):
    """A connection that is dropped when its client is too slow, and refused when there are too many."""

    _waiting: asyncio.TimerHandle | None = None
    _since = 0.0
    _asked = _dropped = _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it if there are too many."""
        super().connection_made(transport)
        self._since = self.loop.time()
        known = [each for each in self.connections if isinstance(each, LimitedProtocol) and not each._dropped]
        served = [each for each in known if not each._refused]
        if len(served) > MOST_CONNECTIONS:
            idle = [each for each in served if each._keeps_waiting()]
            if idle:
                min(idle, key=lambda each: each._since)._drop()
            elif len(known) - len(served) < MOST_REFUSED:
                self._refused = True
            else:
                self._drop()
                return
        self._give(REFUSED_SECONDS if self._refused else HEADER_SECONDS, asked=False)

    def data_received(self, data: bytes) -> None:
        """Receive bytes; a complete request starts the timeout of its response."""
        if self._refused:
            if not self.transport.is_closing():
                self.transport.write(BUSY)
                self.transport.close()
            return
        idle = self.cycle is None or self.cycle.response_complete
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering != self._asked or (idle and self._waiting is None):
            self._give(ANSWER_SECONDS if answering else HEADER_SECONDS, asked=answering)

    def _keeps_waiting(self) -> bool:
        """Return whether this client, not the server, has to go on, and has not for a while."""
        at_work = self.cycle is not None and not self.cycle.response_complete
        sending = self.transport.get_write_buffer_size() > 0
        return (sending or not at_work) and self.loop.time() - self._since > PATIENCE

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
