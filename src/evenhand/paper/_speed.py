"""The time of a training step with CCE (algorithm 2) against COT (algorithm 1), measured in turns."""

import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from evenhand.core.text import markdown_table
from evenhand.experiments.grid.runtime_estimate import Size, threads, time_of, training_step
from evenhand.runs.config import Config, make_config
from evenhand.training.environment import code_fingerprint

PAPER = 1.7
"""The speed of algorithm 2 relative to algorithm 1 in the paper."""
OBJECTIVES = ("cce", "ce", "cot:forwards=1", "cot")
ALGORITHM_1 = {"cot:forwards=1": "algorithm 1 as printed (one forward pass)", "cot": "COT as its authors run it (two)"}
WARM_UP, MIN_ROUNDS = 1, 5


@dataclass(frozen=True)
class Setting:
    """A network, a batch size, the size of the images and a precision."""

    network: str
    batch_size: int
    size: Size
    precision: str


@dataclass(frozen=True)
class StepTimes:
    """The times of one setting."""

    setting: Setting
    threads: int
    rounds: int
    milliseconds: dict[str, float]
    """The median by objective."""
    ratios: dict[str, tuple[float, float, float]]
    """Relative to CCE in the same round, by form of COT: median, lower and upper quartile."""


def settings() -> list[Setting]:
    """Return the measured settings: resnet8 in both precisions, and resnet34 with a smaller batch than the paper's."""
    grey, colour = Size((600,) * 10, 0, 1, 28), Size((500,) * 10, 0, 3, 32)
    return [
        Setting("resnet8", 128, grey, "float32"),
        Setting("resnet8", 128, grey, "bfloat16"),
        Setting("resnet34", 8, colour, "float32"),
    ]


def measure_speed(chosen: Sequence[Setting] | None = None, *, seconds: float = 12.0) -> list[StepTimes]:
    """Measure the steps in turns, so that other load on the machine affects all objectives alike.

    Args:
        chosen: the settings; None: `settings()`.
        seconds: per setting; there are at least `MIN_ROUNDS` rounds.
    """
    return [_measure(setting, seconds) for setting in (settings() if chosen is None else chosen)]


def _measure(setting: Setting, seconds: float) -> StepTimes:
    number = torch.get_num_threads()
    with threads(number):
        steps = {name: training_step(_config(setting, name), setting.size, setting.batch_size) for name in OBJECTIVES}
        for _ in range(WARM_UP):
            for step in steps.values():
                step()
        rounds: list[dict[str, float]] = []
        began = time.perf_counter()
        while len(rounds) < MIN_ROUNDS or time.perf_counter() - began < seconds:
            rounds.append({name: time_of(step) for name, step in steps.items()})
    return StepTimes(
        setting,
        number,
        len(rounds),
        {name: 1e3 * statistics.median(each[name] for each in rounds) for name in OBJECTIVES},
        {name: _quartiles([each[name] / each["cce"] for each in rounds]) for name in ALGORITHM_1},
    )


def _config(setting: Setting, objective: str) -> Config:
    return make_config(
        "paper",
        model__name=setting.network,
        objective=objective,
        batch_size=setting.batch_size,
        compute__accelerator="cpu",  # as in `machine`
        compute__precision=setting.precision,
    )


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def speed_json(times: Sequence[StepTimes], command: str, provenance: dict[str, Any]) -> dict[str, Any]:
    """Return everything as plain numbers and text."""
    settings_ = [
        {
            "network": each.setting.network,
            "image_size": each.setting.size.image_size,
            "channels": each.setting.size.channels,
            "batch_size": each.setting.batch_size,
            "precision": each.setting.precision,
            "threads": each.threads,
            "rounds": each.rounds,
            "milliseconds": each.milliseconds,
            "ratios": {
                name: {"median": middle, "lower_quartile": low, "upper_quartile": high}
                for name, (middle, low, high) in each.ratios.items()
            },
        }
        for each in times
    ]
    return {"study": "speed", "command": command, "provenance": provenance, "paper": PAPER, "settings": settings_}


def speed_rows(times: Sequence[StepTimes]) -> list[dict[str, Any]]:
    """Return one row per setting and objective."""
    return [
        {
            "network": each.setting.network,
            "image_size": each.setting.size.image_size,
            "batch_size": each.setting.batch_size,
            "precision": each.setting.precision,
            "threads": each.threads,
            "rounds": each.rounds,
            "objective": objective,
            "milliseconds": milliseconds,
            "ratio_to_cce": each.ratios[objective][0] if objective in each.ratios else None,
            "published_ratio": PAPER if objective in each.ratios else None,
        }
        for each in times
        for objective, milliseconds in each.milliseconds.items()
    ]


def speed_table(times: Sequence[StepTimes]) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of the table, as text."""
    heading = ["network", "images", "batch", "precision", "threads", "rounds", "CCE step", "as printed", "two forwards"]
    rows = []
    for each in times:
        shown = [f"{middle:.2f} [{low:.2f}, {high:.2f}]" for middle, low, high in each.ratios.values()]
        size, setting = each.setting.size, each.setting
        rows.append(
            [
                setting.network,
                f"{size.image_size}x{size.image_size}x{size.channels}",
                str(setting.batch_size),
                setting.precision,
                str(each.threads),
                str(each.rounds),
                f"{each.milliseconds['cce']:.1f} ms",
                *shown,
            ]
        )
    return heading, rows


def speed_markdown(times: Sequence[StepTimes], command: str, provenance: dict[str, Any]) -> str:
    """Return the page in Markdown."""
    lines = ["# speed: algorithm 2 (CCE) against algorithm 1 (COT)", "", "```", command, "```", ""]
    measured_on = (provenance["machines"][0], provenance["versions"][0], f"code {provenance['code'][0]}")
    lines += [f"Measured on {', '.join(measured_on)}, {provenance['written']}.", ""]
    lines += [
        f"The time of a training step relative to CCE; the paper reports {PAPER}. Median [quartiles] over rounds; in",
        "each round every objective takes one step on the same batch of noise. *As printed*: one forward pass for both",
        "steps; *two forwards*: the second step starts from the weights after the first.",
        "",
    ]
    return "\n".join([*lines, markdown_table(*speed_table(times))]) + "\n"


def machine() -> dict[str, Any]:
    """Return the machine and the versions of this process, with the keys of `provenance`; without the host name."""
    processor = platform.processor() or platform.machine()
    versions = ", ".join(f"{name} {version(name)}" for name in ("evenhand", "torch", "lightning-fabric"))
    return {
        "machines": [f"{os.cpu_count()} processors ({processor}), cpu, {torch.get_num_threads()} threads"],
        "versions": [f"Python {platform.python_version()}, {versions}"],
        "code": [code_fingerprint()],
        "dates": [time.strftime("%Y-%m-%d")],
        "written": time.strftime("%Y-%m-%d"),
    }
