"""Measure `evenhand train FOLDER` with an empty cache, from the command to the model and the page.

    python benchmarks/first_run.py FOLDER [--threads 2] [--into FILE]

Wall time and CPU time of a process of its own, with the load of the machine before it. The CPU time divided by the
number of cores is the least wall time that an idle machine could need. `--into` writes them into a file, which
tools/photo_tables.py reads.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _kept import keep


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    images = sum(each.is_file() for each in options.folder.glob("*/*"))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "XDG_CACHE_HOME": f"{place}/cache", "OMP_NUM_THREADS": str(options.threads)}
        command = [sys.executable, "-m", "evenhand", "train", str(options.folder), "--out", f"{place}/run"]
        began = time.perf_counter()
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        wall = time.perf_counter() - began
        if not Path(place, "run", "report.html").exists():
            parser.error("the run has no page")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    print(f"{images:,} images, {options.threads} threads, load {load:.1f}: {wall:.0f} s, {cpu:.0f} s of CPU")
    if options.into is not None:
        about = {"images": images, "threads": options.threads, "load": load, "seconds": wall, "cpu_seconds": cpu}
        keep(options.into, "first run", about)


if __name__ == "__main__":
    main()
