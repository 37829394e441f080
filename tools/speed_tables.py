"""The parts of the guide on speed, from the kept numbers of benchmarks/losses.py, linear.py and data.py."""

import json
from pathlib import Path
from typing import Any

from study_tables import table

KEPT = Path(__file__).parents[1] / "docs" / "results" / "data" / "loss-speed.json"
BATCHES = KEPT.with_name("batch-speed.json")
ONE, TWO, AVX2, LINEAR = "1 thread", "2 threads", "1 thread, AVX2", "linear"


def kept(path: Path = KEPT) -> dict[str, Any]:
    """Return a kept file."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _shape(name: str) -> str:
    return name.replace("x", " x ")


def losses() -> str:
    """Return the table of time and memory."""
    head = ["N x K", "cross entropy, ms", "native, relative time", "eager", "plain"]
    rows = [[*head, "memory: CE", "native", "eager", "plain"]]
    names = ("native", "eager", "plain", "ce_memory", "native_memory", "eager_memory", "plain_memory")
    for shape, row in kept()[ONE].items():
        rows.append([_shape(shape), f"{1e3 * row['ce']:.3g}", *(f"{row[name]:.2f}" for name in names)])
    return table(rows)


def readme() -> str:
    """Return the cell of the README's table of what was measured."""

    def between(part: str) -> str:
        found = [row["native"] for row in kept()[part].values()]
        return f"{min(found):.2f} to {max(found):.2f}"

    return (
        f"forward and backward of CCE take {between(ONE)} of the time of `nn.CrossEntropyLoss` on one CPU thread "
        f"({between(AVX2)} with AVX2 only)"
    )


def others() -> str:
    """Return the relative times of the kernel with two threads and with AVX2, in words."""

    def times(part: str) -> str:
        *first, last = (f"{kept()[part][shape]['native']:.2f}" for shape in kept()[ONE])
        return f"{', '.join(first)} and {last}"

    return (
        f"With two threads (`{_options(TWO)}`, wall clock) native took {times(TWO)} in the order of the table; on one "
        f"thread with torch and the kernel limited to AVX2 (`{_options(AVX2)}`) {times(AVX2)}."
    )


def measured(part: str, path: Path = KEPT) -> str:
    """Return when, with which command and where a part was measured."""
    found = kept(path)["measured"][part]
    script = found["command"].split()[1]
    return f"Measured on {found['date']} with `python {script} {_options(part, path)}` on {found['machine']}"


def _options(part: str, path: Path = KEPT) -> str:
    options: str = kept(path)["measured"][part]["command"].partition(".py ")[2]
    return options.partition(" --into")[0]


def batches() -> str:
    """Return how much faster batches are than those of torchvision."""
    found = kept(BATCHES)["batches"]
    later = found["later"]
    return (
        f"On {found['images']:,} CIFAR-10 PNG files, one thread, batch 128, later epochs served {later['median']:.0f} "
        f"times as many images a second as `ImageFolder` with PIL transforms and a `DataLoader` ({later['least']:.0f} "
        f"to {later['most']:.0f} over {found['rounds']} rounds), the first epoch {found['first']['median']:.1f} times "
        f"as many. {measured('batches', BATCHES)}."
    )


def linear() -> str:
    """Return the table of the last layer and its loss in one."""
    rows = [["N x D x K", "linear + CE, s", "fused, relative time", "relative memory", "memory / weight gradient"]]
    for shape, row in kept()[LINEAR].items():
        numbers = (f"{row['ratio']:.2f}", f"{row['memory']:.3f}", f"{row['of_gradient']:.3f}")
        rows.append([_shape(shape), f"{row['seconds']:.3g}", *numbers])
    return table(rows)
