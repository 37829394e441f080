"""Calls in a process of their own: what might read memory that is not there must not end the tests."""

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch


def outcome(call: Callable[[], object], seconds: float = 120) -> str:
    """Return what a call came to in a forked process: `"value ..."`, `"ValueError: ..."` or `"SIGSEGV"`."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(call, sender))
    process.start()
    sender.close()
    try:
        answer = receiver.recv() if receiver.poll(seconds) else "timeout"
    except EOFError:
        answer = ""
    if answer == "timeout":
        process.kill()
    process.join()
    return answer or signal.Signals(-process.exitcode).name


def _answer(call: Callable[[], object], sender: Connection) -> None:
    torch.set_num_threads(1)
    try:
        sender.send(f"value {call()}")
    except Exception as error:
        sender.send(f"{type(error).__name__}: {error}")
