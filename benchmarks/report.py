"""Measure the time to build the report of a comparison, on one core.

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/report.py COMPARISON [--rounds 1]

COMPARISON is a folder written by `evenhand compare`, for instance of Fashion-MNIST with 4 objectives and 5 seeds. It
prints wall time, CPU time and the size of the page, with and without the t-SNE embedding. Wall time is meaningful on an
idle machine only.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from evenhand.report.page import write_report


def main() -> None:
    """Build the page in each round and print its times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{args.comparison}: {cores} core{'s' * (cores != 1)} allowed")
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for embedding in (True, False):
                wall, cpu = time.perf_counter(), time.process_time()
                written = write_report([args.comparison], Path(folder) / "report.html", embedding=embedding)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                size = written.stat().st_size / 1e6
                print(f"{'with' if embedding else 'without'} t-SNE: {wall:.1f} s wall, {cpu:.1f} s CPU, {size:.2f} MB")


if __name__ == "__main__":
    main()
