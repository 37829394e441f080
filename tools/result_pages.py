"""Write the pages of `evenhand reproduce` in docs/results from the kept records of finished runs.

Usage:
    python tools/result_pages.py                  # tables
    python tools/result_pages.py --figures OUT    # figures too, from the run folders in OUT/runs

Each page is what its command, printed on it, writes as `table.md`; a test compares them.
"""

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

from evenhand.paper.api import reproduce, study_jobs
from evenhand.paper.planning import StudyOptions
from evenhand.paper.render import to_markdown
from evenhand.paper.results import read_reproduction
from evenhand.paper.studies import find_study
from evenhand.runs.record import RunRecord, records_in
from evenhand.runs.run import Run

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
RECORDS = "docs/results/data/runs"
FIGURES = ("figure-distributions", "figure-overview", "figure-confusion", "figure-tsne", "figure-convergence")
FIGURES += ("figure-errors",)


@dataclass(frozen=True)
class Page:
    """A page of docs/results and the options of the study that it shows."""

    name: str
    study: str
    options: StudyOptions

    @property
    def command(self) -> str:
        """The command line that makes it from the records."""
        options, seeds = self.options, list(self.options.seeds)
        words = ["evenhand reproduce", self.study, f"--protocol {options.protocol}"]
        words += [] if options.model is None else [f"--model {options.model}"]
        words += ["--released"] * options.released
        words += [] if not options.only else [f"--only {','.join(options.only)}"]
        words += [f"--seeds {len(seeds)}" if seeds[0] == 0 else f"--seeds {seeds[0]}-{seeds[-1]}"]
        return " ".join([*words, f"--records {RECORDS}", "--no-train"])


def own_schedule(only: Sequence[str] = ()) -> StudyOptions:
    """Return the options of the paper's own schedule with a network that a CPU can train."""
    return StudyOptions("paper", range(100, 105), released=True, model="resnet8", only=tuple(only))


FAIR = StudyOptions("fair")
PAGES = (
    Page("table-cifar10", "table-cifar10", FAIR),
    Page("table-cifar10-own-schedule", "table-cifar10", own_schedule(["exp:100"])),
    Page("table-cifar100", "table-cifar100", FAIR),
    Page("table-fashion", "table-fashion", FAIR),
    Page("table-tiny", "table-tiny", FAIR),
    Page("table-road", "table-road", StudyOptions("fair", range(5))),
    Page("table-road-sota", "table-road-sota", StudyOptions("fair", range(5))),
    Page("table-svhn", "table-svhn", FAIR),
    Page("table-gamma", "table-gamma", own_schedule(["exp:100"])),
)


def kept_records() -> list[RunRecord]:
    """Return the records of all finished runs of the studies."""
    return records_in(ROOT / RECORDS)


def content(page: Page, records: Sequence[RunRecord]) -> str:
    """Return a page as the records give it today, which is what its command writes."""
    study = find_study(page.study)
    nothing = Path("runs") / "of" / "records"  # no run folder is read
    return to_markdown(read_reproduction(study, page.options, nothing, records=records, command=page.command))


def draw_figures(out: Path) -> None:
    """Draw the figures whose runs are in `out/runs` into docs/results/figures, one PNG for each data set."""
    matplotlib.rcParams["savefig.dpi"] = 120  # readable on a page, and small in the repository
    target = RESULTS / "figures"
    target.mkdir(exist_ok=True)
    for name in FIGURES:
        jobs = study_jobs(find_study(name), FAIR, out)
        if jobs and not any(Run(job.folder).finished for job in jobs):
            print(f"{name}: no finished run")
            continue
        with tempfile.TemporaryDirectory() as folder:
            drawn = Path(folder)
            (drawn / "runs").symlink_to((out / "runs").resolve())
            for path in reproduce(name, FAIR, out=drawn, train=False).written:
                if path.suffix == ".png":
                    shutil.copy(path, target / path.name)
                    print(target / path.name)


def main() -> None:
    """Write the pages, and the figures if their runs are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--figures", type=Path, metavar="OUT", help="Draw the figures from the run folders in OUT/runs."
    )
    arguments = parser.parse_args()
    records = kept_records()
    for page in PAGES:
        (RESULTS / f"{page.name}.md").write_text(content(page, records), "utf-8")
    if arguments.figures:
        draw_figures(arguments.figures)


if __name__ == "__main__":
    main()
