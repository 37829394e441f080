"""The model card of a model folder: Markdown with the metadata that Hugging Face's hub reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from evenhand.core.text import markdown_escaped, markdown_table, slug, some
from evenhand.data.benchmarks import BENCHMARKS
from evenhand.data.hub import PREFIX
from evenhand.data.imbalance import describe_imbalance
from evenhand.metrics.registry import METRICS
from evenhand.runs.config import Config
from evenhand.runs.model_folder import StoredDecisions
from evenhand.statistics.conformal import images_needed
from evenhand.training.card import Card

COVERAGE = 0.9
"""The example of a coverage."""
FEWEST_IMAGES = 10
"""Test images of a class below which its recall says little."""
_PUBLISHED = ("balanced_accuracy", "accuracy", "macro_f1", "geometric_mean", "ece")


@dataclass(frozen=True)
class Published:
    """What a model card says."""

    name: str
    source: str
    """As it is in the config."""
    results: dict[str, Any]
    """As :class:`evenhand.runs.schemas.Summary` reads them."""
    train_counts: list[int]
    config: Config
    card: Card
    notes: tuple[str, ...]
    licence: str | None
    grouped: bool
    """Whether test images belong to groups."""
    decisions: StoredDecisions
    decided: dict[str, Any]
    """What decisions give on test images, as `evaluate_decisions` returns it, with its notes."""


def write_model_card(about: Published, *, onnx: bool) -> str:
    """Return the card: YAML metadata, then results, use and limits."""
    metadata = yaml.safe_dump(_metadata(about), allow_unicode=True, sort_keys=False, width=1000)
    sections = [
        f"# {markdown_escaped(about.name)}",
        _summary(about),
        "## Results",
        _results(about),
        "## Results by class",
        _by_class(about),
        "## Use",
        _use(onnx=onnx),
        "## Decisions",
        "\n".join(f"- {markdown_escaped(line)}" for line in _decisions(about)),
        "## Limits",
        "\n".join(f"- {markdown_escaped(line)}" for line in _limits(about)),
    ]
    return f"---\n{metadata}---\n\n" + "\n\n".join(sections) + "\n"


def _metadata(about: Published) -> dict[str, Any]:
    """Return the metadata block; the identifiers are those of the hub."""
    results = about.results
    hub = about.source.removeprefix(PREFIX).split(":")[0] if about.source.startswith(PREFIX) else None
    public = hub or (results["source"] if about.source.split(":")[0] in BENCHMARKS else None)
    dataset = {"type": public or slug(results["source"]), "name": results["source"], "split": "test"}
    content: dict[str, Any] = {"library_name": "evenhand", "pipeline_tag": "image-classification"}
    if about.licence is not None:
        content["license"] = about.licence
    if hub:
        content["datasets"] = [hub]
    content["tags"] = ["image-classification", "imbalanced-classification", "long-tailed-recognition"]
    content["metrics"] = ["accuracy", "f1"]
    metrics = [
        {"type": name, "value": round(float(results[name]), 6), "name": METRICS[name].title}
        for name in _PUBLISHED
        if results.get(name) is not None
    ]
    worst = results["worst_class"]
    metrics.append(
        {"type": "recall", "value": round(worst["recall"], 6), "name": f"recall of {worst['name']}, the worst"}
    )
    task = {"type": "image-classification", "name": "Image classification"}
    content["model-index"] = [{"name": about.name, "results": [{"task": task, "dataset": dataset, "metrics": metrics}]}]
    return content


def _summary(about: Published) -> str:
    results, counts = about.results, about.train_counts
    trained = "the last layer on features of a frozen network" if about.config.start.train == "head" else "all layers"
    ratio = max(counts) / max(min(counts), 1)
    lines = [
        f"An image classifier for {results['classes']} classes of {results['source']}: {about.card.model}, {trained}, "
        f"trained by evenhand with the objective `{about.config.objective}`.",
        f"Training data: {sum(counts):,} images, from {min(counts):,} to {max(counts):,} per class (imbalance ratio "
        f"{ratio:.3g}; {describe_imbalance(about.config.data.imbalance)}). Tested on {results['images']:,} images.",
    ]
    return "\n\n".join(markdown_escaped(line) for line in lines)


def _results(about: Published) -> str:
    results = about.results
    rows = []
    for name, metric in METRICS.items():
        if results.get(name) is not None:
            rows.append([metric.title, f"{metric.format(results[name])}{metric.unit}", _interval(results, name)])
    for group, content in results["groups"].items():
        if content is not None:
            title = f"mean recall of {content['classes']} {group}-shot classes"
            rows.append([title, f"{content['recall']:.1%}", _ends(content.get("interval"))])
    return (
        markdown_table(["metric", "value", "95% interval"], rows)
        + "\n\n"
        + markdown_escaped(f"Shot groups: {results['shot_rule']}. Intervals: {results['intervals']}.")
    )


def _by_class(about: Published) -> str:
    rows = [
        [
            row["name"],
            f"{row['train_count']:,}",
            f"{row['test_count']:,}",
            "" if row["recall"] is None else f"{row['recall']:.1%}",
            _ends(row.get("recall_interval")),
            "" if row.get("precision") is None else f"{row['precision']:.1%}",
            "" if row.get("f1") is None else f"{row['f1']:.1%}",
        ]
        for row in sorted(about.results["per_class"], key=lambda row: -row["train_count"])
    ]
    return markdown_table(
        ["class", "training images", "test images", "recall", "95% interval", "precision", "F1"], rows
    )


def _use(*, onnx: bool) -> str:
    lines = [
        "```python",
        "import evenhand",
        "",
        'model = evenhand.load("FOLDER")  # this folder, downloaded',
        'probabilities = model.predict(["image.jpg"])  # (1, K), in the order of model.class_names',
        "```",
        "",
        "On the command line: `evenhand predict FOLDER image.jpg`. `preprocessing.json` describes how images are "
        "prepared, `config.json` names the classes.",
    ]
    if onnx:
        lines.append(
            "`model.onnx` takes normalised images, float32 (N, C, S, S), and returns logits, (N, K), with any "
            "adjustment applied; preprocessing and classes are also stored in its metadata."
        )
    return "\n".join(lines)


def _decisions(about: Published) -> list[str]:
    """Return sentences on how the model decides, with what is guaranteed."""
    stored, lines = about.decisions, []
    cost, sets, answers = (about.decided.get(name) for name in ("cost", "sets", "answers"))
    if stored.prior is not None:
        lines.append(f"Probabilities are for these class shares where the model is used: {stored.prior}.")
    if cost is not None:
        lines.append(
            "It decides for the class of least expected cost, by the costs in decisions.json; the results above are of "
            f"the most probable class. Cost per test image, weighted to these class shares: {cost['realised']:.4g} "
            f"(standard error {cost['error']:.2g}); {cost['most_probable']:.4g} for the most probable class, and "
            f"{cost['expected']:.4g} expected by the model."
        )
    if sets is not None:
        lines += sets["notes"]
        found = [
            f"{shot}-shot {row['coverage']:.1%} ({_ends(row['interval'])})"
            for shot, row in sets["groups"].items()
            if row["coverage"] is not None
        ]
        lines.append(
            f"Prediction sets of the test images have {sets['mean_size']:.2f} classes on average, {sets['unsure']:.1%} "
            f"of them several and {sets['full']:.1%} all. Mean coverage of classes with enough calibration images, "
            f"with 95% intervals: {', '.join(found) or 'no class was tested'}."
        )
    if answers is not None:
        lines += answers["notes"]
        precision = (
            "none was answered"
            if answers["precision"] is None
            else f"of its answers {answers['precision']:.1%} were right ({_ends(answers['interval'])})"
        )
        lines.append(f"On the test images it was unsure about {answers['unsure']:.1%}; {precision}.")
    if stored.calibration is None:
        lines.append(
            "No calibration images were kept for it, so it cannot answer with prediction sets or be unsure: --coverage "
            "and --min-precision are refused."
        )
    elif sets is None and answers is None:
        counts = [stored.calibration.targets.count(k) for k in range(len(stored.class_names))]
        enough = sum(count >= images_needed(COVERAGE) for count in counts)
        lines.append(
            f"{sum(counts):,} calibration images, which were not trained on, allow prediction sets that contain the "
            f"class of an image with a probability of at least {COVERAGE:g} in each class, for new images like them: "
            f"evenhand predict FOLDER IMAGE --coverage {COVERAGE:g}. {enough} of {len(counts)} classes have the "
            f"{images_needed(COVERAGE)} that this needs; the others are in every set."
        )
    return lines


def _limits(about: Published) -> list[str]:
    results = about.results
    few = [row["name"] for row in results["per_class"] if 0 < row["test_count"] < FEWEST_IMAGES]
    lines = [
        "The results hold for images like those of the test set, which come from the same source as the training "
        "images; images from elsewhere may be classified worse.",
        "The model knows no other class: an image of none of these classes gets one of them.",
        "Intervals are over test images; other training runs are not covered.",
    ]
    if few:
        lines.append(f"Tested on fewer than {FEWEST_IMAGES} images, so that the recall is hardly known: {some(few)}.")
    if results.get("absent_classes"):
        lines.append(f"Not tested at all: {some(results['absent_classes'])}.")
    if not about.grouped:
        lines.append(
            "Test images are taken to be independent; near duplicates of training images would flatter the results."
        )
    lines += [f"Failure: {each}." for each in results.get("failures", ())]
    return [*lines, *about.notes]


def _interval(results: dict[str, Any], name: str) -> str:
    return _ends(results.get(f"{name}_interval"))


def _ends(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}"
