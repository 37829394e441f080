"""The report: one self-contained HTML page."""

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from evenhand.core.errors import EvenhandError
from evenhand.core.files import check_target, enclosing, write_text
from evenhand.core.text import some
from evenhand.data.imbalance import describe_imbalance
from evenhand.experiments.comparison.verdict import ensemble_note
from evenhand.metrics.per_image import correct_per_image
from evenhand.report._embed_figures import draw_figures
from evenhand.report._escape import page_environment
from evenhand.report._gallery import error_gallery
from evenhand.report._model import (
    Model,
    commands,
    find_model,
    key_figures,
    measured_on,
    photograph_table,
    trend_sentence,
    weakest_classes,
)
from evenhand.report._report_data import ReportData, read_report_data
from evenhand.report._tables import (
    calibration_table,
    class_table,
    confusion_table,
    difference_table,
    objective_table,
    pair_table,
    precision_table,
)
from evenhand.report.figures import PAGE
from evenhand.report.figures.confusion import MOST_LABELLED, MOST_TABULATED
from evenhand.report.figures.embedding import EMBEDDING
from evenhand.report.figures.tables import Runs
from evenhand.runs.comparison import Comparison
from evenhand.runs.filenames import COMPARISON
from evenhand.runs.run import Run
from evenhand.runs.schemas import Summary, precision_name

MOST_PICTURES, MOST_PER_OBJECTIVE = 240, 60
MOST_INVOLVED = 16
"""Classes of a confusion matrix where there are too many for all."""
MOST_ROWS = 30
"""Longer tables scroll."""
MOST_RUNS_NAMED = 2
"""Runs of one environment."""
MOST_RUNS = 50
"""Runs whose commands and configs are listed."""


def write_report(folders: Sequence[Path | str], out: Path | str | None = None, *, embedding: bool = True) -> Path:
    """Write a report on runs, or on one comparison, as a single HTML file that needs no network.

    Args:
        folders: of runs, or of one comparison.
        out: the file, or a folder for `report.html`; None: the folder of the comparison or of the only run.
        embedding: draw the t-SNE of the features, which takes seconds.

    Returns:
        The path of the page.

    Raises:
        EvenhandError: a folder is neither a run nor a comparison, or a required file is damaged.

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
    # A comparison may be named by its file.
    within = enclosing(target, [path if path.is_dir() else path.parent for path in paths])
    if within is None:
        check_target(target)  # before anything is drawn
    write_text(target, render(read_report_data(paths), embedding=embedding), within=within)
    return target


def _target(folders: Sequence[Path], out: Path | None) -> Path:
    if out is not None:
        return out / "report.html" if os.path.isdir(out) else out
    if len(folders) > 1:
        raise EvenhandError(
            f"A page about {len(folders)} runs belongs to none of their folders; choose a file with --out."
        )
    only = folders[0] if folders else Path()
    return (only.parent if only.name == COMPARISON else only) / "report.html"


def render(data: ReportData, *, embedding: bool = True) -> str:
    """Return the HTML of the page; the same data gives the same text."""
    templates = files("evenhand.report") / "templates"
    script = (templates / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = page_environment(trim=True)
    runs = data.predictions()
    figures = [figure for figure in PAGE if embedding or figure is not EMBEDDING]
    model = find_model(data)
    headline, *sentences = _verdict(data)
    return environment.get_template("report.html.j2").render(
        title=_title(data),
        about=_about(data),
        failures=_failures(data),
        headline=headline,
        sentences=sentences,
        model=None if model is None else _model(data, model),
        opened=None if model is None else model.name,
        adjustments=_adjustments(data),
        remarks=_remarks(data),
        content=_results(data, runs) if runs else {},
        figures=draw_figures(figures, data),
        no_curves=_why_no_curves(data),
        unfinished=data.unfinished,
        reproduce=_reproduce(data),
        several_seeds=data.several_seeds(),
        # Our own files, which hold no end tag.
        style=Markup((templates / "style.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=digest,
        version=version("evenhand"),
    )


def _results(data: ReportData, runs: Runs) -> dict[str, Any]:
    """Return the results of finished runs."""
    comparison = data.comparison
    rules = [comparison.shot_rule] if comparison else [summary.shot_rule for summary in data.summaries().values()]
    most = max(1, min(MOST_PER_OBJECTIVE, MOST_PICTURES // len(runs)))
    content: dict[str, Any] = {
        "results": objective_table(data),
        "shot_rule": "; ".join(dict.fromkeys(rules)),
        "differences": difference_table(comparison) if comparison and comparison.differences else None,
        "method": comparison.method if comparison else "",
        "same_classes": data.same_classes(),
        "galleries": {name: error_gallery(seeds[0], most) for name, seeds in data.finished.items()},
        "seed": comparison.seeds[0] if comparison else None,
    }
    if not data.same_classes():
        return content
    num_classes = next(iter(runs.values()))[0].num_classes
    tabulated, labelled = num_classes <= MOST_TABULATED, num_classes <= MOST_LABELLED
    shown = None if tabulated else MOST_INVOLVED
    counts = [each.train_counts for seeds in runs.values() for each in seeds]
    return content | {
        "counts_differ": not all(np.array_equal(each, counts[0]) for each in counts),
        "classes": class_table(runs, comparison.baseline if comparison else None),
        "long": num_classes > MOST_ROWS,
        "precision": precision_table(runs),
        "calibration": calibration_table(runs),
        "num_classes": num_classes,
        "part": not tabulated and not labelled,
        "confusions": {}
        if labelled and not tabulated
        else {name: confusion_table(seeds, shown) for name, seeds in runs.items()},
        "pairs": {name: pair_table(seeds) for name, seeds in runs.items()},
    }


def _title(data: ReportData) -> str:
    if data.comparison is not None:
        return f"{', '.join(data.comparison.objectives)} on {data.comparison.source}"
    runs = data.runs()
    sources = dict.fromkeys(run.summary.source if run.finished else run.config.data.source for run in runs)
    names = data.finished or dict.fromkeys(run.config.objective for run in runs)
    return f"{', '.join(names)} on {', '.join(sources)}"


def _about(data: ReportData) -> str:
    """Describe the runs in one line."""
    configs = [run.config for run in data.runs()]
    parts = [
        *dict.fromkeys(config.model.name for config in configs),
        *dict.fromkeys(describe_imbalance(config.data.imbalance) for config in configs),
    ]
    if data.comparison is not None:
        number = len(data.comparison.seeds)
        parts.append(f"{number} seed{'s' * (number != 1)} per objective")
    tested = {len(correct_per_image(seeds).ids) for seeds in data.predictions().values()}
    if len(tested) == 1:
        parts.append(f"{tested.pop():,} test images")
    return ", ".join(parts)


def _model(data: ReportData, model: Model) -> dict[str, Any]:
    """Return what the page says of the model it hands over, before any statistics."""
    imbalances = dict.fromkeys(run.config.data.imbalance for run in model.seeds)
    return {
        "name": model.name,
        "status": model.status,
        "balanced_accuracy": f"{model.balanced_accuracy:.1%}",
        "figures": key_figures(model),
        "measured": measured_on(model),
        "weakest": weakest_classes(model),
        "photograph": photograph_table(model),
        "trend": trend_sentence(model),
        "thinned": ", ".join(each for each in imbalances if each != "none"),
        "commands": commands(model),
        "conclusion": data.comparison.verdicts[-1] if data.comparison else "",
    }


def _verdict(data: ReportData) -> list[str]:
    """Return the main results as sentences, the most important one first."""
    if data.comparison is not None:
        *sentences, last = data.comparison.verdicts
        return [last, *sentences]
    lines = [_sentence(name, summary) for name, summary in data.summaries().items()]
    if len(lines) > 1:
        images = "the same" if data.same_images() else "different"
        return [
            f"{len(lines)} runs, tested on {images} images. Differences between them are not tested here; use "
            "evenhand compare with several seeds for that.",
            *lines,
        ]
    return lines or ["Not finished."]


def _failures(data: ReportData) -> list[str]:
    if data.comparison is not None:
        return [f"Failed: {each}." for each in data.comparison.failures]
    return [f"Failed: {name} {each}." for name, summary in data.summaries().items() for each in summary.failures]


def _sentence(name: str, summary: Summary) -> str:
    """Return the headline result of a run."""
    ends, worst = summary.balanced_accuracy_interval, summary.worst_class
    interval = "" if ends is None else f" [{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]"
    return (
        f"{name}: balanced accuracy {summary.balanced_accuracy:.1%}{interval}; worst class {worst.name} "
        f"with a recall of {worst.recall:.1%}."
    )


def _remarks(data: ReportData) -> list[str]:
    notes: list[str] = []
    for source in [data.comparison] if data.comparison else data.summaries().values():
        notes += [*ensemble_note(source), *source.notes] if isinstance(source, Comparison) else source.notes
    return list(dict.fromkeys(notes))


def _adjustments(data: ReportData) -> list[str]:
    notes = [_adjustment_note(name, run) for name, runs in data.finished.items() for run in runs]
    return list(dict.fromkeys(filter(None, notes)))


def _adjustment_note(name: str, run: Run) -> str:
    """Return a note where the model is used with an adjustment that this page does not show."""
    try:
        adjustment = run.adjustment
    except EvenhandError as error:
        return str(error)
    if adjustment is None or adjustment.is_in(run.predictions):
        return ""
    value = (adjustment.model_extra or {}).get("balanced_accuracy")
    result = f"; balanced accuracy {value:.1%}" if isinstance(value, float) else ""
    return (
        f"{name}: predict, export and load adjust the logits of {run.path.name} ({adjustment.describe()}{result}); "
        "this page shows the unadjusted results."
    )


def _why_no_curves(data: ReportData) -> str:
    empty = [run.path.name for seeds in data.trained().values() for run in seeds if not run.history]
    return f"No epoch is finished in {some(empty)}." if empty else "The runs have no validation set, so no curves."


def _reproduce(data: ReportData) -> dict[str, Any]:
    """Return the commands, configs and environments of the runs; equal ones once."""
    runs = data.runs()
    environments: dict[str, list[str]] = {}
    for run in runs:
        try:
            fields = run.environment.model_dump(exclude_unset=True, exclude={"started", "seed"})
        except EvenhandError:
            fields = {}  # a report does not need it
        lines = []
        if isinstance(fields.get("precision"), str):
            fields["precision"] = precision_name(fields["precision"])
        for key, value in fields.items():
            flat = ", ".join(f"{name} {each}" for name, each in value.items()) if isinstance(value, dict) else value
            lines.append(f"{'source hash' if key == 'code' else key}: {flat}")
        environments.setdefault("\n".join(lines), []).append(run.path.name)
    # The runs of a comparison differ in objective and seed only.
    shown = runs[:1] if data.comparison is not None else runs[:MOST_RUNS]
    return {
        "commands": list(dict.fromkeys(run.command for run in runs))[:MOST_RUNS],
        "configs": [(run.path.name, run.config_text) for run in shown],
        "left_out": len(runs) - len(shown),
        "environments": [(_named(names), text or "Not recorded.") for text, names in environments.items()],
    }


def _named(names: Sequence[str]) -> str:
    return some(names) if len(names) <= MOST_RUNS_NAMED else f"{len(names)} runs, such as {names[0]}"
