"""Where a study differs from what the paper did, in sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from evenhand.paper._protocols import PROTOCOLS
from evenhand.paper._published import NETWORKS
from evenhand.paper.planning import ROAD, StudyCell, StudyOptions, plan
from evenhand.paper.studies import Study

MIRRORED = {
    ROAD: "a mirrored leftturn looks like a rightturn, and numbers and words are reversed",
    "svhn": "mirrored digits are reversed",
}
"""What mirroring does to a data set that it does not suit."""


def deviations(study: Study, options: StudyOptions) -> list[str]:
    """Return where a study differs from what the paper did, and where the paper's own choice is a problem.

    Example:
        >>> from evenhand.paper._deviations import deviations
        >>> from evenhand.paper.planning import StudyOptions
        >>> from evenhand.paper.studies import STUDIES
        >>> for sentence in deviations(STUDIES["table-fashion"], StudyOptions(protocol="fair", epochs=5)):
        ...     print(sentence)
        The network is resnet8 instead of ResNet-34.
        Training lasts 5 epochs (protocol fair: 30, the paper: 200); warm-up and schedule are scaled to that.
        Recipe small: batch 64, Nesterov momentum, 0.333 epochs of warm-up, cosine to 0.
    """
    cells = plan(study, options)
    if not cells:
        return []
    return [
        *filter(None, [options.settings.caveat]),
        *_data(study, cells, options),
        *_networks(cells),
        *_epochs(study, cells, options),
        *_recipe(cells, options),
        *_mirroring(cells),
    ]


def _data(study: Study, cells: Sequence[StudyCell], options: StudyOptions) -> Iterator[str]:
    if options.source is not None:
        only = "" if all(cell.comparable for cell in cells) else ": only the order of methods can be compared"
        yield f"The data are {options.source} instead of {study.needs}{only}."
    data = [cell.config.data for cell in cells]
    for fraction in sorted({each.fraction for each in data if each.fraction < 1}):
        yield f"{100 * fraction:g}% of the training images are kept, with the same imbalance ratio."
    for size in sorted({each.image_size for each in data if each.image_size}):
        yield f"Images of Road Marking are {size}x{size} pixels instead of 64x64, to save time."
    if options.source is None and any("split=runs" in each.source for each in data):
        yield (
            "Next to the paper's random split there is one by drives (split=runs), which keeps frames of one drive "
            "together and is drawn again for every seed."
        )


def _networks(cells: Sequence[StudyCell]) -> Iterator[str]:
    pairs = dict.fromkeys((cell.config.model.name, NETWORKS.get(cell.row, cell.row)) for cell in cells)
    replaced = [f"{name} instead of {row}" for name, row in pairs if NETWORKS.get(name) != row]
    kept = [row for name, row in pairs if NETWORKS.get(name) == row]
    if replaced:
        yield f"The network is {', and '.join([*replaced, *kept])}."


def _epochs(study: Study, cells: Sequence[StudyCell], options: StudyOptions) -> Iterator[str]:
    used = cells[0].config.epochs
    protocol = plan(study, replace(options, epochs=None))[0].config.epochs
    paper = plan(study, StudyOptions(protocol="paper"))[0].config.epochs
    if used == paper:
        return
    if used == protocol:
        yield f"Training lasts {used} epochs (the paper: {paper})."
        return
    whole = f"the paper: {paper}"
    if protocol != paper:
        whole = f"protocol {options.protocol}: {protocol}, {whole}"
    yield f"Training lasts {used} epoch{'s' * (used != 1)} ({whole}); warm-up and schedule are scaled to that."


def _recipe(cells: Sequence[StudyCell], options: StudyOptions) -> Iterator[str]:
    protocol = options.settings
    if protocol.recipe == PROTOCOLS["paper"].recipe:
        return
    first = cells[0].config
    yield (
        f"Recipe {protocol.recipe}: batch {first.batch_size}, Nesterov momentum, {first.schedule.warmup_epochs:.3g} "
        "epochs of warm-up, cosine to 0."
    )
    changed = {cell.config.model.name: cell.config.optimizer.lr for cell in cells}
    for name in protocol.network_settings:
        if name in changed:
            yield (
                f"{NETWORKS.get(name, name)} is trained with a learning rate of {changed[name]:g}: with that of the "
                "recipe, 0.1, it learns nothing."
            )


def _mirroring(cells: Sequence[StudyCell]) -> Iterator[str]:
    configs = {cell.config.data.source.split(":")[0]: cell.config for cell in cells}
    for source, config in configs.items():
        if source in MIRRORED:
            own = "so does this study" if config.augmentation.flip else "this study does not"
            yield f"The paper mirrors half of the images of every training set, {own}: {MIRRORED[source]}."
