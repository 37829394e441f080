"""The process that runs a model for the server, which itself never imports torch."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.core.frames import read_frame, write_frame

SECONDS = 180.0
"""For one picture, the start of the process and the loading of the model included."""
WAIT_SECONDS = 45.0
"""For an answer, and for the pictures before it; less than the server gives to a response."""
IDLE_SECONDS = 600.0
"""Without a picture for so long, the process ends and frees its memory."""

_CODE = "import sys; sys.path[:] = {path!r}; from evenhand.training.picture_worker import serve_pictures as f; f()"


class StillBusyError(EvenhandError):
    """There is no answer yet; the same picture can be sent again."""


class Predictor:
    """Classifies pictures in a child process, which starts with the first one and again after it has ended.

    Args:
        seconds: after which the process is killed.
        wait_seconds: after which :meth:`classify` gives up, though the process goes on to load its model.
        idle_seconds: without a picture, after which the process ends.
    """

    def __init__(
        self, seconds: float = SECONDS, wait_seconds: float = WAIT_SECONDS, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self.seconds, self.wait_seconds, self.idle_seconds = seconds, wait_seconds, idle_seconds
        self.process: subprocess.Popen[bytes] | None = None
        self._queue = ThreadPoolExecutor(1, "evenhand model")
        self._idle: threading.Timer | None = None

    def classify(self, folder: Path, picture: bytes) -> dict[str, Any]:
        """Classify a picture with the model of a run or comparison.

        Args:
            folder: of the run or comparison.
            picture: the bytes of an image file.

        Raises:
            EvenhandError: the picture or the model cannot be read, or the process was too slow or has ended;
                `StillBusyError`: it is still loading its model, or has pictures before this one.
        """
        asked = self._queue.submit(self._ask, folder, picture)
        try:
            answer = asked.result(self.wait_seconds)
        except Late as error:
            asked.cancel()
            raise StillBusyError("The model is still loading or busy; send the picture again.") from error
        if "error" in answer:
            raise EvenhandError(str(answer["error"]))
        return answer

    def close(self) -> None:
        """End the process; the next picture starts another."""
        if self._idle is not None:
            self._idle.cancel()
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what was not written yet is lost
                    pipe.close() if pipe is not None else None
            process.wait()

    def _ask(self, folder: Path, picture: bytes) -> dict[str, Any]:
        process = self._running()
        late = threading.Event()

        def kill() -> None:
            late.set()
            process.kill()  # writing and reading then end with an error

        watch = _start_timer(self.seconds, kill)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            write_frame(process.stdin, os.fsencode(folder))  # type: ignore[arg-type]
            write_frame(process.stdin, picture)  # type: ignore[arg-type]
            answer = read_frame(process.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError, ValueError) as error:  # the last one: closed meanwhile
            process.kill()
            why = "took too long and was stopped" if late.is_set() else f"ended ({_how(process.wait())})"
            self.close()
            raise EvenhandError(f"The process of the model {why}; it starts again with the next picture.") from error
        finally:
            watch.cancel()
        self._idle = _start_timer(self.idle_seconds, lambda: self._queue.submit(self.close))
        content: dict[str, Any] = json.loads(answer)
        return content

    def _running(self) -> subprocess.Popen[bytes]:
        if self._idle is not None:
            self._idle.cancel()
        if self.process is None or self.process.poll() is not None:
            self.close()
            # In a session of its own: Ctrl-C in the terminal is for the server. The child ends when its stdin does.
            self.process = subprocess.Popen(
                [sys.executable, "-c", _CODE.format(path=sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        return self.process


def _start_timer(seconds: float, function: Any) -> threading.Timer:
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    return timer


def _how(exitcode: int) -> str:
    return f"killed by signal {-exitcode}" if exitcode < 0 else f"exit code {exitcode}"
