"""Processes of their own that begin with everything imported and nothing done: the server of a grid's processes, which
imports torch once in a session, makes them."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from evenhand.experiments.grid.local import _context


def begin(
    function: Callable[..., object], *args: object, log: Path, environment: Mapping[str, str] | None = None
) -> Any:
    """Start a process that calls a function of a module; what it prints, or its traceback, goes to a file."""
    process = _context().Process(target=_call, args=(function, args, log, dict(environment or {})))
    process.start()
    return process


def end_of(process: Any, seconds: float = 120) -> int:
    """Wait for the exit code of a process; less than 0 where a signal ended it."""
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
    return int(process.exitcode)


def call(function: Callable[..., object], *args: object, log: Path) -> int:
    """Call a function in a process of its own, and return the exit code."""
    return end_of(begin(function, *args, log=log))


def _call(function: Callable[..., object], args: tuple[object, ...], log: Path, environment: Mapping[str, str]) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    torch.set_num_threads(1)
    function(*args)
