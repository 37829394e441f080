"""Tables of the photos, from the numbers of benchmarks/photos.py and of the tuning sets in docs/results/data/photos."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scipy.stats import t
from study_tables import table

PHOTOS = Path(__file__).parents[1] / "docs" / "results" / "data" / "photos"
DEFAULT = "evenhand (lite0+lite1+lite2, ce+cosine:lda=0.3:scale=20+post-hoc:tau=1)"
COSINE = "evenhand, without discriminants"
ONCE = "evenhand, without validation images"
FORMER = "evenhand, former default (lite0, balanced-softmax)"
REGRESSION = "logistic regression, balanced, on lite0"
SAME = "logistic regression, balanced, on the same features"
ADJUSTED = "logistic regression, prior-adjusted, on the same features"
TUNED = "fine-tuning loop of lite0"
WAYS = {
    DEFAULT: "**the default**",
    COSINE: "the same without discriminants",
    ONCE: "the same, not trained again with validation images",
    FORMER: "the first default (lite0, `balanced-softmax`, linear)",
    REGRESSION: "logistic regression, balanced class weights, on lite0's features",
    SAME: "logistic regression, balanced class weights, on the default's features",
    ADJUSTED: "logistic regression, prior-adjusted, on the default's features",
    TUNED: "a plain fine-tuning loop of lite0",
}


def read(name: str) -> Any:
    """Read a kept file."""
    return json.loads((PHOTOS / f"{name}.json").read_text("utf-8"))


def differences(rows: dict[str, list[dict[str, float]]], way: str, key: str) -> list[float]:
    """Return the default minus a way, in points, per split that both have."""
    return [one[key] - other[key] for one, other in zip(rows[DEFAULT], rows[way], strict=False)]


def interval(values: Sequence[float]) -> str:
    """Return a mean with its 95% interval by Student's t; one value alone."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:+.1f}"
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


def mean(rows: Sequence[dict[str, float]], key: str) -> str:
    """Return a mean over splits."""
    return f"{statistics.mean(row[key] for row in rows):.1f}"


def against_others(name: str) -> str:
    """Return the table of one condition."""
    rows = read(name)["rows"]
    lines = [["way", "balanced accuracy", "rare classes", "default minus this", "on rare classes", "CPU s"]]
    for way in (each for each in WAYS if each in rows):
        found, most = rows[way], len(rows[DEFAULT])
        split = "" if len(found) == most else f" ({len(found)} split{'s' * (len(found) > 1)})"
        gains = ["", ""] if way == DEFAULT else [interval(differences(rows, way, key)) for key in ("balanced", "rare")]
        seconds = statistics.median(row["cpu_seconds"] for row in found)
        lines.append([WAYS[way] + split, mean(found, "balanced"), mean(found, "rare"), *gains, f"{seconds:.1f}"])
    return table(lines)


def gain(name: str, way: str, key: str = "balanced") -> str:
    """Return by how much the default is ahead of a way."""
    return interval(differences(read(name)["rows"], way, key))


def summary() -> str:
    """Return what the tables say, in sentences."""
    reached = statistics.mean(differences(read("natural")["rows"], REGRESSION, "balanced"))
    aim = "it is reached" if reached >= 2 else "it is not reached"
    return (
        f"**On the long tail** the default is {gain('exp50', FORMER)} points ahead of the first one and "
        f"{gain('exp50', REGRESSION)} of balanced logistic regression on lite0's features, "
        f"{gain('exp50', FORMER, 'rare')} and {gain('exp50', REGRESSION, 'rare')} on rare classes; against "
        f"prior-adjusted logistic regression on its own features it is {gain('exp50', ADJUSTED)}.\n\n"
        f"**As they are**, it is {gain('natural', FORMER)} against the first default, "
        f"{gain('natural', REGRESSION)} against balanced logistic regression on lite0's features, and "
        f"{gain('natural', ADJUSTED)} against prior-adjusted logistic regression on its own features. The aim was "
        f"two points ahead of logistic regression on lite0's features: **{aim}** on these photos. Discriminants change "
        f"balanced accuracy by {gain('natural', COSINE)} here and by {gain('exp50', COSINE)} on the long tail, rare "
        f"classes by {gain('natural', COSINE, 'rare')} and {gain('exp50', COSINE, 'rare')}."
    )


def readme() -> str:
    """Return the row of the README."""
    cells = {
        name: [
            mean(read(name)["rows"][way], key) for way in (DEFAULT, REGRESSION, SAME) for key in ("balanced", "rare")
        ]
        for name in ("natural", "exp50")
    }
    long, plain = cells["exp50"], cells["natural"]
    return (
        f"the default {long[0]}% (rare classes {long[1]}%), balanced logistic regression {long[2]}% ({long[3]}%) on "
        f"`lite0` features and {long[4]}% ({long[5]}%) on the same; as they are, {plain[0]}, {plain[2]} and {plain[4]}%"
    )


def first_round() -> str:
    """Return the table of networks and heads on the tuning sets."""
    found = read("tuning")["first"]
    lines = [["features, head", *found["columns"], "mean"]]
    for row in found["rows"]:
        cells = [f"{one:.1f} / {rare:.1f}" for one, rare in row["cells"]]
        name = f"**{row['way']}**" if row.get("chosen") else row["way"]
        lines.append([name, *cells, f"{row['mean'][0]:.1f} / {row['mean'][1]:.1f}"])
    return table(lines)


def second_round() -> str:
    """Return the table of what was tried later on the tuning sets: differences from the default, in points."""
    return _tried("second")


def third_round() -> str:
    """Return the table of what costs nothing in extraction: differences from the default of that time, in points."""
    return _tried("third")


def other_images() -> str:
    """Return the same of what gained most, on images that no setting was chosen on."""
    return _tried("other images")


def claim_elsewhere() -> str:
    """Return by how much the default is ahead of logistic regression on the tuning sets as they are, and on others."""
    texts = []
    for name, where in (("third", "On the tuning sets as they are"), ("other images", "on the other images")):
        found = read("tuning")[name]["ahead of logistic regression as they are"]["default"]
        ahead = ", ".join(f"{interval([one for one, _ in rows])} ({each})" for each, rows in found.items())
        gained = interval([one for one, _ in read("tuning")[name]["adopted by split"]])
        texts.append(f"{where} it is ahead by {ahead}; discriminants gain {gained} over all six columns")
    return f"{texts[0]}. {texts[1][0].upper()}{texts[1][1:]}."


def _tried(name: str) -> str:
    found = read("tuning")[name]
    lines = [["tried", *found["columns"], "mean"]]
    for way, cells in found["differences"].items():
        both = [statistics.mean(column) for column in zip(*cells, strict=True)]
        lines.append([way, *(f"{one:+.1f} / {rare:+.1f}" for one, rare in [*cells, both])])
    return table(lines)


def first_run() -> str:
    """Return what the first run on photos takes, for the README."""
    first = read("speed")["first run"]
    return f"{first['cpu_seconds']:.0f} s of CPU time for {first['images']:,} photos the first time"


def speed() -> str:
    """Return the speed of extraction, of a run on features, and of a first run."""
    found = read("speed")
    one, three = (found["extraction"][name] for name in ("lite0", "lite0+lite1+lite2"))
    heads, first = found["head"], found["first run"]
    plain, default = (heads[name] for name in ("ce", "ce+cosine:lda=0.3:scale=20"))
    least = first["cpu_seconds"] / 2
    return (
        f"In `benchmarks/features.py` the graphs of the three networks computed {three['graph']:.2f} times as many "
        f"images per CPU second as torch (lite0 alone {one['graph']:.2f} times), with features within "
        f"{max(one['within'], three['within']):.1g}; a whole extraction of {three['images']} photos, with decoding and "
        f"the making of the graphs, was {three['features']:.2f} times as fast ({one['features']:.2f} times for "
        f"{one['images']} by lite0). In `benchmarks/heads.py` ({plain['images']:,} images, "
        f"{plain['classes']} classes, 1,280 features) a whole run took {plain['median']:.1f} s of processor time with "
        f"a linear layer and {default['median']:.1f} s with the default's cosine layer (medians; the aim was 2 s): "
        f"{plain['ratio']:.2f} and {default['ratio']:.2f} times what a plain loop with a linear layer takes. "
        f"In `benchmarks/first_run.py`, `evenhand train` on {first['images']:,} photos with an empty cache and "
        f"{first['threads']} threads took {first['cpu_seconds']:.0f} s of processor time from the command to model and "
        f"page, so at least {least:.0f} s on two idle cores, and {first['seconds']:.0f} s by the clock on two cores "
        f"that were busy with other work (load average {first['load']:.0f}). The aim was 180 s on two idle cores."
    )
