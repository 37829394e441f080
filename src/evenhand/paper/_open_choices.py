"""What the paper leaves open, and what was chosen here."""

from collections.abc import Sequence

from evenhand.paper._published import NETWORKS
from evenhand.paper.planning import ROAD, StudyCell
from evenhand.paper.studies import PLAIN_FOCAL

SELECTION = "Evaluated epoch: the last one; the paper names no selection rule."
CLASSES = "Rare classes of a long-tailed or step set: the last ones in the order of the labels; the paper names none."
FOCAL = (
    "Focal loss: gamma 2 with a factor alpha = 0.25 on the whole loss, as in the authors' code; the paper names no "
    "alpha. The factor acts like a smaller learning rate."
)
COT = (
    "COT: two forward passes per step, as its authors run it; algorithm 1 as printed has one, with both gradients at "
    "the same weights. Weight decay is applied in both steps."
)
STEMS = "First layers of ImageNet networks on small images: 3x3, stride 1, no pooling; the paper names none."


def open_choices(cells: Sequence[StudyCell]) -> list[str]:
    """Return what the paper leaves open for some cells, and the choice made here.

    Example:
        >>> from evenhand.paper._open_choices import open_choices
        >>> from evenhand.paper.planning import StudyOptions, plan
        >>> from evenhand.paper.studies import STUDIES
        >>> for line in open_choices(plan(STUDIES["table-gamma"], StudyOptions(protocol="paper"))):
        ...     print(line)
        Evaluated epoch: the last one; the paper names no selection rule.
        Rare classes of a long-tailed or step set: the last ones in the order of the labels; the paper names none.
        First layers of ImageNet networks on small images: 3x3, stride 1, no pooling; the paper names none.
        Crops: 4 pixels of padding, then the native size.
        Warm-up: the rate rises in every iteration of the first 5 epochs.
    """
    if not cells:
        return []
    configs = [cell.config for cell in cells]
    sources = {config.data.source.split(":")[0] for config in configs}
    methods = {cell.method for cell in cells}
    compared = f" It is compared with {PLAIN_FOCAL}." * (PLAIN_FOCAL in methods)
    padding = configs[0].augmentation.padding
    pixels = "an eighth of the side (at most 4 pixels)" if padding is None else f"{padding} pixels"
    tiny = ", on Tiny ImageNet 56x56 pixels" if "tiny-imagenet" in sources else ""
    sizes = " or ".join(f"{size}x{size}" for size in sorted({config.data.image_size or 64 for config in configs}))
    road = f"Road Marking: images of {sizes} pixels with a margin of 10% around a marking; the paper names neither."
    warm_up = configs[0].schedule.warmup_epochs
    found = (
        (SELECTION, True),
        (CLASSES, any(config.data.imbalance != "none" for config in configs)),
        (FOCAL + compared, "FL" in methods),
        (COT, "COT" in methods),
        (STEMS, any(config.model.name in NETWORKS for config in configs)),
        (f"Crops: {pixels} of padding, then the native size{tiny}.", True),
        (road, ROAD in sources),
        (f"Warm-up: the rate rises in every iteration of the first {warm_up:.3g} epochs.", True),
    )
    return [text for text, wanted in found if wanted]
