"""What a folder of runs keeps on disk: how much, and which of its files are large and why."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from evenhand.runs import filenames as names

PURPOSES = {
    names.BEST_WEIGHTS: "the best epoch",
    names.LAST_WEIGHTS: "the last epoch",
    names.REFIT_WEIGHTS: "trained again with the validation images",
    names.STATE: "the optimizer, to resume",
    names.PREDICTIONS: "test logits, for reports and comparisons",
    names.VALIDATION: "validation logits, for --adjust",
    names.CALIBRATION: "calibration logits, for guarantees",
    names.FEATURES: "for the map of test images",
    names.THUMBNAILS: "images in the report",
    "report.html": "the report",
}
MOST_NAMED = 3
REPORT_ONLY = (names.FEATURES, names.THUMBNAILS)
"""Files that only a report reads."""


def describe_kept(folder: Path | str) -> str:
    """Return how many bytes a folder of one or several runs has, and what its largest files are for.

    Links are not followed.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.runs.kept import describe_kept
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "weights").mkdir()
        >>> _ = (folder / "weights" / "best.safetensors").write_bytes(b"0" * 2_000_000)
        >>> _ = (folder / "config.yaml").write_bytes(b"0" * 500)
        >>> describe_kept(folder)
        '2 MB: weights/best.safetensors 2 MB (the best epoch)'
    """
    sizes: Counter[str] = Counter()
    for name, size in _files(Path(folder)):
        sizes[name] += size
    total = sum(sizes.values())
    large = [(name, size) for name, size in sizes.most_common(MOST_NAMED) if size >= total / 20 and name in PURPOSES]
    named = ", ".join(f"{name} {readable_size(size)} ({PURPOSES[name]})" for name, size in large)
    rest = total - sum(size for _, size in large)
    others = f", other files {readable_size(rest)}" if large and rest >= total / 20 else ""
    spare = " and ".join(name for name, _ in large if name in REPORT_ONLY)
    advice = f"; {spare} can be deleted once the report is written" if spare else ""
    return f"{readable_size(total)}{': ' * bool(named)}{named}{others}{advice}"


def readable_size(number: float) -> str:
    """Return a number of bytes in a unit that suits it.

    Example:
        >>> from evenhand.runs.kept import readable_size
        >>> readable_size(12), readable_size(4_560_000), readable_size(1_700_000_000)
        ('12 bytes', '5 MB', '1.7 GB')
    """
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:,.0f} {unit}"
        number /= 1000
    return f"{number:,.1f} GB"


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the name of each file in its run, and its bytes."""
    for place, _, files in os.walk(folder):
        inner = f"{Path(place).name}/" if Path(place).name in names.FOLDERS else ""
        for name in files:
            with suppress(OSError):  # removed meanwhile
                yield f"{inner}{name}", os.lstat(os.path.join(place, name)).st_size
