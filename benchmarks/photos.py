"""Compare the default for photos with what a user would do instead, on the same images.

    python benchmarks/photos.py FOLDER [--imbalance none] [--splits 5] [--fine-tune 0] [--out numbers.json]

Every way is trained and tested on the same images, those of `data.split_seed` 0, 1, ...:

- evenhand's default; the same without discriminants; without training on validation images in the end; its first
  default (lite0, balanced softmax, a linear layer, likewise);
- on lite0's features: scikit-learn's logistic regression with balanced class weights, C by cross-validation;
- on the features of evenhand's default: the same, and logistic regression whose decision is adjusted for the prior;
- a plain fine-tuning loop of lite0 in torch, on as many splits as `--fine-tune` says.

Printed are balanced accuracy, the mean recall of the rarest third of the classes, and CPU seconds without those for
features, which are cached.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.stats import t
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer

from evenhand.data.sources import load_source
from evenhand.models.backbone import load_backbone
from evenhand.models.build import build_model
from evenhand.runs.config import Config
from evenhand.training.features import extract_features
from evenhand.training.prepare import split
from evenhand.training.recipe_choice import make_run_config
from evenhand.training.run import train_run

Labels = NDArray[np.int64]
ONCE = {"head__refit_below": 0}
"""Without training again on training and validation images together."""
COSINE = {"objective": "ce+cosine:scale=20+post-hoc:tau=1"}
"""Without discriminants."""
FORMER = {"model__name": "lite0", "objective": "balanced-softmax", **ONCE}
GRID = [1.0, 10.0, 100.0, 1000.0]
"""Values of C, for features of length 1."""
EPOCHS, BATCH, RATE = 5, 32, 0.01
"""Of the plain fine-tuning loop."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--imbalance", default="none")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--fine-tune", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = load_source(options.folder)
    base = make_run_config(data__source=options.folder, data__imbalance=options.imbalance)[0]
    wide = features_of(table.pixels, base.model.name)
    lite = features_of(table.pixels, "lite0")
    names: dict[str, Callable[[Config], Labels]] = {}
    rows: dict[str, list[dict[str, float]]] = {}
    for number in range(options.splits):
        flags = {"data__source": options.folder, "data__imbalance": options.imbalance, "data__split_seed": number}
        config, cosine, once, former = (make_run_config(**flags, **more)[0] for more in ({}, COSINE, ONCE, FORMER))
        splits = split(config, table)
        # evenhand selects an epoch on some training images, and trains on all in the end, as the others do.
        train, test = np.sort(np.concatenate([splits.train, splits.val])), splits.test
        labels = table.labels
        names = {
            f"evenhand ({config.model.name}, {config.objective})": partial(trained, config, table),
            "evenhand, without discriminants": partial(trained, cosine, table),
            "evenhand, without validation images": partial(trained, once, table),
            "evenhand, former default (lite0, balanced-softmax)": partial(trained, former, table),
            "logistic regression, balanced, on lite0": partial(regression, lite, labels, train, test, balanced=True),
            "logistic regression, balanced, on the same features": partial(
                regression, wide, labels, train, test, balanced=True
            ),
            "logistic regression, prior-adjusted, on the same features": partial(
                regression, wide, labels, train, test, balanced=False
            ),
        }
        if number < options.fine_tune:
            names["fine-tuning loop of lite0"] = partial(fine_tuned, table.pixels, labels, train, test)
        for name, way in names.items():
            began = time.process_time()
            predicted = way()
            seconds = time.process_time() - began
            counts = np.bincount(labels[train], minlength=table.num_classes)
            row = {**scores(predicted, labels[test], counts), "cpu_seconds": seconds}
            rows.setdefault(name, []).append(row)
            print(f"split {number}: {name}: {row}", flush=True)
    report(rows)
    if options.out:
        about = {"images": len(table), "imbalance": options.imbalance, "rows": rows}
        options.out.write_text(json.dumps(about, indent=1) + "\n")


def features_of(pixels: object, name: str) -> NDArray[np.float32]:
    """Return the features of all images, (N, F)."""
    return extract_features(pixels, load_backbone(name)).values[:, 0].astype(np.float32)  # type: ignore[arg-type]


def trained(config: Config, table: object) -> Labels:
    """Train a run; return the predicted classes of the test images, in the order of the table."""
    with tempfile.TemporaryDirectory() as folder:
        predictions = train_run(config, Path(folder) / "run").predictions
    order = {name: place for place, name in enumerate(predictions.ids.tolist())}
    test = [order[name] for name in table.ids.tolist() if name in order]  # type: ignore[attr-defined]
    return predictions.predicted()[test]


def regression(x: NDArray[np.float32], y: Labels, train: Labels, test: Labels, *, balanced: bool) -> Labels:
    """Fit logistic regression with C by cross-validation; without class weights, adjust its decision for the prior."""
    folds = StratifiedKFold(max(2, min(3, int(np.bincount(y[train]).min()))))
    model: Pipeline = make_pipeline(
        Normalizer(), LogisticRegression(class_weight="balanced" if balanced else None, max_iter=200, tol=1e-3)
    )
    search = GridSearchCV(model, {"logisticregression__C": GRID}, scoring="balanced_accuracy", cv=folds)
    search.fit(x[train], y[train])
    scores = search.predict_log_proba(x[test])
    if not balanced:
        scores = scores - np.log(np.bincount(y[train])[search.classes_])
    return search.classes_[scores.argmax(1)]


def fine_tuned(pixels: object, y: Labels, train: Labels, test: Labels) -> Labels:
    """Train all of lite0 with cross entropy, as tutorials do."""
    from evenhand.data.reading import RowReader
    from evenhand.models.transform import centre_crop

    transform = load_backbone("lite0").transform
    reader = RowReader(pixels, transform.resize_size, 3, transform.interpolation)  # type: ignore[arg-type]
    images = torch.stack(
        [torch.from_numpy(centre_crop(reader(int(row)), transform.crop_size)).permute(2, 0, 1) for row in range(len(y))]
    )
    torch.manual_seed(0)
    network = build_model("lite0", num_classes=int(y.max()) + 1, image_size=transform.crop_size, pretrained=True)
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * -(-len(train) // BATCH))

    def batch(rows: Labels) -> torch.Tensor:
        return (images[torch.from_numpy(rows)].float() / 255 - transform.mean[0]) / transform.std[0]

    network.train()
    for _ in range(EPOCHS):
        order = np.random.default_rng(0).permutation(train)
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            part = batch(chosen)
            part = part.flip(3) if np.random.default_rng(start).random() < 0.5 else part
            loss = F.cross_entropy(network(part), torch.from_numpy(y[chosen]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.inference_mode():
        parts = [network(batch(part)).argmax(1) for part in np.array_split(test, max(1, len(test) // 64))]
    return torch.cat(parts).numpy()


def scores(predicted: Labels, labels: Labels, counts: Labels) -> dict[str, float]:
    """Return balanced accuracy and the mean recall of the rarest third of the classes, in percent."""
    recalls = np.array([(predicted[labels == k] == k).mean() for k in range(len(counts))])
    rare = np.argsort(counts, kind="stable")[: len(counts) // 3]
    return {"balanced": 100 * float(recalls.mean()), "rare": 100 * float(recalls[rare].mean())}


def report(rows: dict[str, list[dict[str, float]]]) -> None:
    """Print a table, and paired differences from the first way with 95% intervals."""
    first = next(iter(rows.values()))
    print(
        "| way | balanced accuracy | rare classes | first minus this | rare | CPU seconds |\n|---|---|---|---|---|---|"
    )
    for name, found in rows.items():
        cells = [f"{statistics.mean(row[key] for row in found):.1f}" for key in ("balanced", "rare")]
        cells += [
            paired([one[key] - other[key] for one, other in zip(first, found, strict=False)])
            for key in ("balanced", "rare")
        ]
        seconds = statistics.median(row["cpu_seconds"] for row in found)
        print(f"| {name} | {' | '.join(cells)} | {seconds:.1f} |")


def paired(differences: list[float]) -> str:
    """Return a mean difference with its 95% interval by Student's t."""
    mean = statistics.mean(differences)
    if len(differences) < 2 or not any(differences):
        return f"{mean:+.1f}" if any(differences) else ""
    half = t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


if __name__ == "__main__":
    main()
