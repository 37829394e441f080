"""Where the numbers of a page come from: machines, versions, dates and hours of training."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.runs.record import FinishedRun
from evenhand.runs.schemas import precision_name


def provenance(runs: Iterable[FinishedRun]) -> dict[str, Any]:
    """Return on which machines, with which versions, when and for how long runs were trained.

    Returns:
        `machines`, `versions`, `code` and `dates`: sorted lists of distinct values, without host names; `hours`: of
        training, summed over runs; `written`: today.
    """
    found: dict[str, set[str]] = {"machines": set(), "versions": set(), "code": set(), "dates": set()}
    seconds = 0.0
    for run in runs:
        try:
            environment, history = run.environment, run.history
        except EvenhandError:
            continue  # a page can be written without it
        seconds += sum(row.get("seconds", 0.0) for row in history)
        if environment.started is None:
            continue
        found["machines"].add(
            f"{environment.cpus} processors ({environment.processor}), {environment.device}, "
            f"{precision_name(environment.precision)}, threads per run: {environment.threads}"
        )
        versions = ", ".join(f"{name} {number}" for name, number in environment.versions.items())
        found["versions"].add(f"Python {environment.python}, {versions}")
        found["code"].add(str(environment.code))
        found["dates"].add(environment.started[:10])
    lists = {name: sorted(values) for name, values in found.items()}
    return lists | {"hours": round(seconds / 3600, 3), "written": time.strftime("%Y-%m-%d")}


def provenance_lines(found: Mapping[str, Any]) -> list[str]:
    """Return the result of :func:`provenance` as a list in Markdown."""
    days = " to ".join(dict.fromkeys([*found["dates"][:1], *found["dates"][-1:]])) or "no date"
    return [
        *(f"- machine: {machine}" for machine in found["machines"]),
        *(f"- versions: {versions}" for versions in found["versions"]),
        f"- code {', '.join(found['code']) or 'unknown'}; runs of {days}, page of {found['written']}",
        f"- {found['hours']:,.1f} hours of training, summed over runs",
    ]
