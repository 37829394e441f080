"""How long the page about a comparison takes to build, on one core.

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/report.py COMPARISON [--rounds 1]

COMPARISON is the folder that `evenhand compare` wrote, for instance of Fashion-MNIST with 4 objectives and 5 seeds. The
times of the whole and of its parts are printed in seconds, of the clock and of the processor, and the size of the page.
The clock means something on an idle machine only.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evenhand.report import page, sections
from evenhand.report._report_data import read_report_data

PARTS = ("distribution", "recall", "differences", "confusions", "calibration", "curves", "embedding")


def main() -> None:
    """Build the page, with a clock around each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    chosen = parser.parse_args()
    data = read_report_data([chosen.comparison])
    runs, names = len(data.runs()), len(data.finished)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{chosen.comparison}: {names} objectives, {runs} runs; {cores} core{'s' * (cores != 1)} allowed")
    taken: dict[str, float] = {}
    for part in PARTS:
        setattr(sections, part, timed(part, getattr(sections, part), taken))
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(chosen.rounds):
            taken.clear()
            start, used = time.perf_counter(), time.process_time()
            written = page.write_report([chosen.comparison], Path(folder) / "report.html")
            clock, processor = time.perf_counter() - start, time.process_time() - used
            parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in taken.items())
            print(f"page: {clock:.1f} s by the clock, {processor:.1f} s of the processor ({parts})")
        print(f"page: {written.stat().st_size / 1e6:.2f} MB")


def timed(name: str, work: Callable[..., Any], taken: dict[str, float]) -> Callable[..., Any]:
    """Return the same function with a note of the processor time it took."""

    def run(*arguments: Any) -> Any:
        start = time.process_time()
        result = work(*arguments)
        taken[name] = taken.get(name, 0.0) + time.process_time() - start
        return result

    return run


if __name__ == "__main__":
    main()
