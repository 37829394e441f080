"""The report: one page of HTML that needs nothing else."""

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evenhand.core.errors import EvenhandError
from evenhand.core.files import check_target, write_text
from evenhand.core.text import some
from evenhand.metrics.per_image import correct_per_image
from evenhand.report._embed_figures import draw_figures
from evenhand.report._escape import spelled_out
from evenhand.report._gallery import Mistake, most_confident_errors
from evenhand.report._report_data import Material, read_material
from evenhand.report._tables import class_table, confusion_table, difference_table, objective_table, pair_table
from evenhand.report.figures import PAGE
from evenhand.report.figures.confusion import MOST_TABULATED
from evenhand.report.figures.embedding import EMBEDDING
from evenhand.report.figures.tables import Runs
from evenhand.runs.comparison import COMPARISON
from evenhand.runs.run import Run
from evenhand.runs.schemas import Summary

# Pictures of all galleries together; of one objective at most the second.
MOST_PICTURES, MOST_OF_ONE = 240, 60
# So many rows of a table are shown whole; longer ones scroll.
MOST_ROWS = 30
# Configs, commands and machines of so many runs are shown.
MOST_RUNS = 50


def write_report(folders: Sequence[Path | str], out: Path | str | None = None, *, embedding: bool = True) -> Path:
    """Write a page about runs, or about one comparison, as a single file that needs no network.

    Args:
        folders: of runs, or of one comparison.
        out: the file, or a folder for `report.html`; None: into the folder of the comparison or of the only run.
        embedding: draw the features by t-SNE, which takes seconds.

    Returns:
        Where the page is.

    Raises:
        EvenhandError: a folder is no run and no comparison, or a file that nothing can be said without is damaged.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.report.page import write_report
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.training.run import train_run
        >>> run = train_run(make_config(epochs=1), Path(tempfile.mkdtemp()) / "run")
        >>> write_report([run.path], embedding=False).name
        'report.html'
    """
    paths = [Path(folder) for folder in folders]
    target = _target(paths, None if out is None else Path(out))
    check_target(target)  # before anything is drawn
    text = render(read_material(paths), embedding=embedding)
    write_text(target, text)
    return target


def _target(folders: Sequence[Path], out: Path | None) -> Path:
    if out is not None:
        return out / "report.html" if os.path.isdir(out) else out
    if len(folders) > 1:
        raise EvenhandError(f"A page about {len(folders)} runs belongs to none of their folders; say where with --out.")
    only = folders[0] if folders else Path()
    return (only.parent if only.name == COMPARISON else only) / "report.html"


def render(material: Material, *, embedding: bool = True) -> str:
    """Return the page; the same material gives the same text."""
    templates = files("evenhand.report") / "templates"
    script = (templates / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        loader=PackageLoader("evenhand.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=spelled_out,
    )
    runs = material.predictions()
    content = _results(material, runs) if runs else {}
    wanted = [figure for figure in PAGE if embedding or figure is not EMBEDDING]
    return environment.get_template("report.html.j2").render(
        title=_title(material),
        about=_about(material),
        verdict=_verdict(material),
        remarks=_remarks(material),
        content=content,
        figures=draw_figures(wanted, material),
        uncurved=_why_no_curves(material),
        unfinished=material.unfinished,
        repeating=_repeating(material),
        several_seeds=material.several_seeds(),
        # Ours, and free of what would end the element.
        style=Markup((templates / "style.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=digest,
        version=version("evenhand"),
    )


def _results(material: Material, runs: Runs) -> dict[str, Any]:
    """Return what is known of finished runs."""
    comparison = material.comparison
    first = next(iter(runs.values()))[0]
    content: dict[str, Any] = {
        "objectives": objective_table(material),
        "shot_rule": _shot_rule(material),
        "differences": difference_table(comparison) if comparison and comparison.differences else None,
        "method": comparison.method if comparison else "",
        "same_classes": material.same_classes(),
        "galleries": _galleries(material.finished),
        "seed": comparison.seeds[0] if comparison else None,
    }
    if not material.same_classes():
        return content
    baseline = comparison.baseline if comparison else None
    tabulated = first.num_classes <= MOST_TABULATED
    counts = [each.train_counts for seeds in runs.values() for each in seeds]
    return content | {
        "counts_differ": not all(np.array_equal(each, counts[0]) for each in counts),
        "classes": class_table(runs, baseline),
        "long": first.num_classes > MOST_ROWS,
        "confusions": {name: confusion_table(seeds) for name, seeds in runs.items()} if tabulated else {},
        "pairs": {} if tabulated else {name: pair_table(seeds) for name, seeds in runs.items()},
    }


def _title(material: Material) -> str:
    if material.comparison is not None:
        return f"{', '.join(material.comparison.objectives)} on {material.comparison.source}"
    runs = material.runs()
    sources = ", ".join(dict.fromkeys(_source(run) for run in runs))
    names = ", ".join(material.finished or dict.fromkeys(run.config.objective for run in runs))
    return f"{names} on {sources}"


def _about(material: Material) -> str:
    """Say in a line what was trained."""
    comparison = material.comparison
    configs = [run.config for run in material.runs()]
    models = ", ".join(dict.fromkeys(config.model.name for config in configs))
    imbalances = ", ".join(dict.fromkeys(config.data.imbalance for config in configs))
    parts = [models, f"imbalance {imbalances}"]
    if comparison is not None:
        number = len(comparison.seeds)
        parts.append(f"{number} seed{'s' * (number != 1)} of each objective")
    tested = {len(correct_per_image(seeds).ids) for seeds in material.predictions().values()}
    if len(tested) == 1:
        parts.append(f"{tested.pop():,} test images")
    return ", ".join(parts)


def _verdict(material: Material) -> list[str]:
    """Return what to know first, the most important sentence first."""
    if material.comparison is not None:
        *sentences, last = material.comparison.verdicts
        return [last, *(f"Failed: {each}." for each in material.comparison.failures), *sentences]
    lines = [_sentence(name, summary) for name, summary in material.summaries().items()]
    lines += [f"Failed: {name} {each}." for name, summary in material.summaries().items() for each in summary.failures]
    if len(material.summaries()) > 1:
        alike = "the same" if material.same_images() else "different"
        return [
            f"{len(material.summaries())} runs side by side, tested on {alike} images. Whether they differ is not "
            "tested here; for that, compare objectives over several seeds with evenhand compare.",
            *lines,
        ]
    return lines or ["Not finished."]


def _sentence(name: str, summary: Summary) -> str:
    """Say how good a run is."""
    ends, worst = summary.balanced_accuracy_interval, summary.worst_class
    interval = "" if ends is None else f" [{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]"
    return (
        f"{name}: balanced accuracy {summary.balanced_accuracy:.1%}{interval}; the worst class is {worst.name}, "
        f"of which {worst.recall:.1%} is recognised."
    )


def _remarks(material: Material) -> list[str]:
    given = [_adjustment(name, run) for name, runs in material.finished.items() for run in runs]
    if material.comparison is not None:
        notes = material.comparison.notes
    else:
        notes = [note for summary in material.summaries().values() for note in summary.notes]
    return list(dict.fromkeys(note for note in [*given, *notes] if note))


def _adjustment(name: str, run: Run) -> str:
    """Say so where those who use a model get other answers than this page shows."""
    try:
        given = run.adjustment
    except EvenhandError as error:
        return str(error)
    if given is None or given.is_in(run.predictions):
        return ""
    reached = (given.model_extra or {}).get("balanced_accuracy")
    how_good = f"; balanced accuracy {reached:.1%}" if isinstance(reached, float) else ""
    return (
        f"{name}: predict, export and load adjust what {run.path.name} answers ({given.told()}{how_good}); this page "
        "shows it unadjusted."
    )


def _shot_rule(material: Material) -> str:
    if material.comparison is not None:
        return material.comparison.shot_rule
    return "; ".join(dict.fromkeys(summary.shot_rule for summary in material.summaries().values()))


def _why_no_curves(material: Material) -> str:
    empty = [run.path.name for seeds in material.trained().values() for run in seeds if not run.history]
    if empty:
        return f"There is no epoch in the history of {some(empty)}."
    return "The runs were not validated, so there are no curves to compare."


def _source(run: Run) -> str:
    return run.summary.source if run.finished else run.config.data.source


@dataclass(frozen=True)
class Gallery:
    """The pictures of one objective, or why there are none."""

    mistakes: list[Mistake]
    trouble: str = ""


def _galleries(runs: dict[str, list[Run]]) -> dict[str, Gallery]:
    most = max(1, min(MOST_OF_ONE, MOST_PICTURES // len(runs)))
    return {name: _gallery(seeds[0], most) for name, seeds in runs.items()}


def _gallery(run: Run, most: int) -> Gallery:
    try:
        return Gallery(most_confident_errors(run, most))
    except EvenhandError as error:
        return Gallery([], str(error))


def _repeating(material: Material) -> dict[str, Any]:
    """Return how to make these runs again: commands, configs and machines, equal ones once."""
    runs = material.runs()
    machines: dict[str, list[str]] = {}
    for run in runs:
        try:
            told = run.environment.model_dump(exclude_unset=True, exclude={"started", "seed"})
        except EvenhandError:
            told = {}  # it only says on what machine a run was made
        lines = [f"{key}: {_flat(value)}" for key, value in told.items()]
        machines.setdefault("\n".join(lines), []).append(run.path.name)
    # The runs of a comparison differ in objective and seed only.
    shown = runs[:1] if material.comparison is not None else runs[:MOST_RUNS]
    return {
        "commands": list(dict.fromkeys(run.command for run in runs))[:MOST_RUNS],
        "configs": [(run.path.name, run.config_text) for run in shown],
        "left_out": len(runs) - len(shown),
        "machines": [(some(names), text or "Not written down.") for text, names in machines.items()],
    }


def _flat(value: object) -> str:
    return ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else str(value)
