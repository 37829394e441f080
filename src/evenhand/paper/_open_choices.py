"""What the paper leaves open, and what was chosen here: listed under every study, its own protocol included."""

from collections.abc import Iterable

from evenhand.paper.studies import Study

SELECTION = "Which epoch is judged: the last one, as the paper names no rule of selection."
CLASSES = (
    "Which classes are rare in a long-tailed or step set: the last ones in the order of the labels; the paper names "
    "none."
)
FOCAL = (
    "Focal loss: gamma 2 with a factor alpha = 0.25 on the whole loss, as in the authors' code; the paper names no "
    "alpha. It acts as a smaller learning rate, so `FL without alpha` stands beside it."
)
COT = (
    "COT: two forward passes a step, as its authors run it; algorithm 1 as printed has one, with both gradients at the "
    "same weights. Weight decay acts in both steps."
)
STEMS = "The first layers of ImageNet networks on small images: those that are usual for CIFAR; the paper names none."
CROPS = "Crops: 4 pixels of padding, then the native size; on Tiny ImageNet 56x56 pixels."
ROAD = "Road Marking: crops of 64x64 pixels with a margin of 10% around a marking; the paper names neither."
WARMUP = "Warm-up: the rate rises in every iteration of the first 5 epochs."


def open_choices(study: Study) -> list[str]:
    """Return what the paper leaves open and was chosen here, for one study.

    Example:
        >>> from evenhand.paper._choices import open_choices
        >>> from evenhand.paper.studies import STUDIES
        >>> for line in open_choices(STUDIES["table-gamma"]):
        ...     print(line.split(":")[0])
        Which epoch is judged
        Which classes are rare in a long-tailed or step set
        The first layers of ImageNet networks on small images
        Crops
        Warm-up
    """
    if not study.parts:
        return []
    sources = {part.source.split(":")[0] for part in study.parts}
    methods = {method for part in study.parts for method in part.methods}
    found: Iterable[tuple[str, bool]] = (
        (SELECTION, True),
        (CLASSES, any(each != "none" for part in study.parts for each in part.imbalances)),
        (FOCAL, "FL" in methods),
        (COT, "COT" in methods),
        (STEMS, True),
        (CROPS, bool(sources - {"road-marking"})),
        (ROAD, "road-marking" in sources),
        (WARMUP, True),
    )
    return [text for text, wanted in found if wanted]
