"""Calls in a process of their own: what might read memory that is not there must not end the tests."""

import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection

import torch

FORK = multiprocessing.get_context("fork")


def outcome(call: Callable[[], object], seconds: float = 120) -> str:
    """Return what a call came to in a forked process: `"value ..."`, `"ValueError: ..."` or `"SIGSEGV"`."""
    return outcomes({"": call}, seconds)[""]


def outcomes(calls: Mapping[str, Callable[[], object]], seconds: float = 120) -> dict[str, str]:
    """Return what each call came to; one process does them all, and where a call ends it, another one goes on."""
    answers: dict[str, str] = {}
    while left := {name: call for name, call in calls.items() if name not in answers}:
        receiver, sender = FORK.Pipe(duplex=False)
        process = FORK.Process(target=_answer, args=(list(left.values()), sender))
        process.start()
        sender.close()
        for name in left:
            try:
                answers[name] = receiver.recv() if receiver.poll(seconds) else "timeout"
            except EOFError:
                process.join()
                answers[name] = signal.Signals(-process.exitcode).name
            if process.exitcode is not None or answers[name] == "timeout":
                break
        process.kill()
        process.join()
    return answers


def _answer(calls: Sequence[Callable[[], object]], sender: Connection) -> None:
    torch.set_num_threads(1)
    for call in calls:
        sender.send(_came_to(call))


def _came_to(call: Callable[[], object]) -> str:
    try:
        return f"value {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
