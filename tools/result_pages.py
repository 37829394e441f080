"""Write the pages of `evenhand reproduce` in docs/results from the kept records of finished runs.

Usage:
    python tools/result_pages.py                  # tables
    python tools/result_pages.py --figures OUT    # figures too, from the run folders in OUT/runs

Each page is what its command, printed on it, writes as `table.md`; a test compares them.
"""

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

from evenhand.paper._provenance import provenance_lines
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
FIGURES = {
    "figure-overview": "One test image of the rarest class, and the probabilities that both networks give it.",
    "figure-distributions": "Training images of each class, from known counts; no run.",
    "figure-confusion": "Rows: the true class. Dots: below 0.5%. Dashed lines: many-, medium- and few-shot classes.",
    "figure-tsne": "t-SNE of the features before the last layer, 2,000 test images, one projection for each network.",
    "figure-convergence": "Test error in percent by epoch; nothing was selected by it.",
    "figure-errors": "The most confident errors of CCE.",
}
"""The ids of the paper's figures, and how to read each."""
FIGURE_OPTIONS = StudyOptions("fair", (0,))


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
        jobs = study_jobs(find_study(name), FIGURE_OPTIONS, out)
        if jobs and not any(Run(job.folder).finished for job in jobs):
            print(f"{name}: no finished run")
            continue
        for path in reproduce(name, FIGURE_OPTIONS, out=out, train=False).written:
            if path.suffix == ".png":
                shutil.copy(path, target / path.name)
                print(target / path.name)


def figures_page(records: Sequence[RunRecord]) -> str:
    """Return the page of the figures that were drawn, each with the runs that it shows."""
    lines = ["# Figures, protocol fair", "", "The figures of the paper, drawn from runs of one seed.", ""]
    for name, how in FIGURES.items():
        study, drawn = find_study(name), sorted((RESULTS / "figures").glob(f"{name}*.png"))
        command = f"evenhand reproduce {name} --protocol fair --seeds 1"
        lines += [f"## {name}", "", f"{study.shows[0].upper()}{study.shows[1:]}. {how}", "", "```", command, "```", ""]
        lines += [f"![{path.stem.replace('_', ' ')}](figures/{path.name})\n" for path in drawn] or [
            "Not drawn yet.",
            "",
        ]
        if study.panels:
            nothing = Path("runs") / "of" / "records"
            found = read_reproduction(study, FIGURE_OPTIONS, nothing, records=records, command=command)
            notes = [f"{found.finished} of {found.wanted} runs", *found.deviations()]
            lines += [*(f"- {note}" for note in notes), *provenance_lines(found.provenance), ""]
    return "\n".join(lines).rstrip() + "\n"


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
    (RESULTS / "figures.md").write_text(figures_page(records), "utf-8")


if __name__ == "__main__":
    main()
