"""Make the runs that docs/results/plan.yaml plans, and keep a compact record of each.

Usage:
    python tools/study.py run --data-root DATA --out OUT [--jobs 2] [--only BLOCK]
    python tools/study.py status --out OUT
    python tools/study.py keep --out OUT
    python tools/study.py check --out OUT

`run` finishes the planned runs that have no record yet, each on one thread, in the order of the plan; called again, it
continues. `keep` writes docs/results/data/BLOCK/RUN.json for every finished run, as evenhand.runs.record defines it.
`check` says whether finished runs repeat the records that are kept of them, to the last digit.
"""

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# One thread per run: the number of threads changes results in the last digits, and training amplifies that.
os.environ["OMP_NUM_THREADS"] = "1"

import yaml

from evenhand.experiments.grid.jobs import Job, status
from evenhand.experiments.grid.local import run_jobs
from evenhand.experiments.grid.naming import run_folder
from evenhand.paper.api import study_jobs
from evenhand.paper.planning import StudyOptions, resplits
from evenhand.paper.studies import find_study
from evenhand.runs.config import Config, make_config
from evenhand.runs.record import RunRecord, make_record, read_record, write_record
from evenhand.runs.run import Run

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
FLAGS = {
    "source": "data__source",
    "imbalance": "data__imbalance",
    "image_size": "data__image_size",
    "model": "model__name",
}


def planned(out: Path, data_root: Path | None = None, only: list[str] | None = None) -> Iterator[tuple[str, Job]]:
    """Yield the block and the job of every planned run, each once, the first seed of all blocks first."""
    plan: dict[str, dict[str, Any]] = yaml.safe_load((RESULTS / "plan.yaml").read_text(encoding="utf-8"))
    unknown = sorted(set(only or ()) - set(plan))
    if unknown:
        raise SystemExit(f"docs/results/plan.yaml has no block {' or '.join(unknown)}.")
    root, seen = None if data_root is None else str(data_root), set()
    for place in range(max(len(block["seeds"]) for block in plan.values())):
        for name, block in plan.items():
            for seed in block["seeds"][place : place + 1]:
                make = _study_jobs if "reproduce" in block else _block_jobs
                for job in make(block, seed, out, root):
                    # A run that two blocks share belongs to the first one of the plan.
                    if job.folder not in seen and (not only or name in only):
                        yield name, job
                    seen.add(job.folder)


def _study_jobs(block: dict[str, Any], seed: int, out: Path, root: str | None) -> Iterator[Job]:
    """Yield the runs of one seed of a block that names studies of `evenhand reproduce`."""
    only = tuple(block.get("only", ()))
    for study in block["reproduce"]:
        yield from study_jobs(
            find_study(study), StudyOptions(block["protocol"], (seed,), data_root=root, only=only), out
        )


def _block_jobs(block: dict[str, Any], seed: int, out: Path, root: str | None) -> Iterator[Job]:
    """Yield the runs of one seed of a block that names a config, its variants and objectives."""
    for data in block.get("data", [{}]):
        for objective in block["objectives"]:
            if seed not in block.get("except", {}).get(objective, []):
                settings = {FLAGS.get(key, key): value for key, value in (block["config"] | data).items()}
                config = make_config(**settings, data__root=root, objective=objective, seed=seed)
                if resplits(config):
                    config = _with_split(config, seed)
                yield Job(config, run_folder(out / "runs", config))


def _with_split(config: Config, seed: int) -> Config:
    return config.model_copy(update={"data": config.data.model_copy(update={"split_seed": seed})})


def record_path(block: str, job: Job) -> Path:
    """Return where the record of a run is kept."""
    return RESULTS / "data" / "runs" / block / f"{job.folder.name}.json"


def _as_kept(run: Run) -> RunRecord:
    """Return the record of a run as it is read, with its numbers rounded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        write_record(make_record(run), path)
        return read_record(path)


def is_repeated(kept: RunRecord, again: RunRecord) -> bool:
    """Return whether two records have the same losses and metrics in every epoch, and the same images right."""

    def results(record: RunRecord) -> Any:
        timed = {"seconds", "images_per_second"}
        history = [{key: value for key, value in row.items() if key not in timed} for row in record.history]
        return history, record.summary.confusion_matrix, record.correct.tolist()

    return bool(results(kept) == results(again))


def main() -> None:
    """Parse the arguments and run the action."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "status", "keep", "check"))
    parser.add_argument("--out", type=Path, required=True, help="Runs are stored in OUT/runs.")
    parser.add_argument("--data-root", type=Path, help="Folder of the data sets.")
    parser.add_argument("--jobs", type=int, default=1, help="Runs at a time.")
    parser.add_argument("--only", action="append", help="Name of a block; may be repeated.")
    arguments = parser.parse_args()
    jobs = list(planned(arguments.out, arguments.data_root, arguments.only))
    kept = {job.folder for block, job in jobs if record_path(block, job).exists()}
    if arguments.action == "run":
        left = {job.folder: job for _, job in jobs if job.folder not in kept}
        for failure in run_jobs(list(left.values()), workers=arguments.jobs):
            print(f"{failure.job.folder.name}: {failure.reason}")
    elif arguments.action == "status":
        states = ((block, "kept" if job.folder in kept else status(job).value) for block, job in jobs)
        for (block, state), count in sorted(Counter(states).items()):
            print(f"{block}: {count} {state}")
    elif arguments.action == "check":
        for block, job in jobs:
            if job.folder in kept and Run(job.folder).finished:
                same = is_repeated(read_record(record_path(block, job)), _as_kept(Run(job.folder)))
                print(f"{job.folder.name}: {'identical' if same else 'differs'}")
    else:
        for block, job in jobs:
            path = record_path(block, job)
            if Run(job.folder).finished and not path.exists():
                write_record(make_record(Run(job.folder)), path)
                print(path.relative_to(RESULTS))


if __name__ == "__main__":
    main()
