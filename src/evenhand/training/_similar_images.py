"""The training images most similar to a new one, by the cached features of a frozen network."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.core.cache import cache_root
from evenhand.core.errors import EvenhandError
from evenhand.data.decode import BadImage, read_image
from evenhand.data.sources import load_source
from evenhand.data.table import ArrayPixels, FilePixels, SampleTable
from evenhand.models.backbone import Backbone
from evenhand.models.classifier import Classifier
from evenhand.models.weights import Weights, join_weights
from evenhand.runs.run import Run
from evenhand.training._feature_cache import FeatureStores
from evenhand.training.features import join_blocks, open_store, rows_by_content
from evenhand.training.frozen_body import split_reference
from evenhand.training.predict import TrainedModel

MOST_IMAGES, MOST_BYTES = 20_000, 2**31
"""Of the training images: each file is read to find its features."""
PICTURE_SIZE = 128
"""Length in pixels of the shorter side of a picture that is shown."""


@dataclass(frozen=True, eq=False)
class Similar:
    """A training image and its similarity to the new one."""

    image: NDArray[np.uint8]
    """(H, W, C)."""
    id: str
    class_name: str
    similarity: float
    """Cosine of the two feature vectors."""


@dataclass(frozen=True, eq=False)
class TrainingImages:
    """The training images of a run whose features are cached."""

    table: SampleTable
    rows: NDArray[np.int64]
    """Of the table, (M,)."""
    features: NDArray[np.float32]
    """Of length 1, (M, F)."""

    def most_similar(self, features: NDArray[np.float32], number: int) -> list[Similar]:
        """Return the training images most similar to one with these features (F,), the most similar one first.

        Images that can no longer be read are left out.
        """
        similarities = self.features @ (features / max(float(np.linalg.norm(features)), 1e-12))
        found: list[Similar] = []
        for place in np.argsort(-similarities, kind="stable"):
            if len(found) == number:
                break
            row = int(self.rows[place])
            try:
                image = _picture(self.table.pixels, row)
            except BadImage:
                continue
            name = self.table.class_names[self.table.labels[row]]
            found.append(Similar(image, str(self.table.ids[row]), name, float(similarities[place])))
        return found


def find_training_images(run: Run, model: TrainedModel) -> TrainingImages | None:
    """Find the training images of a run and their cached features; nothing is computed and nothing downloaded.

    Args:
        run: a finished run.
        model: its model.

    Returns:
        The images; None where the network was not frozen, or the source or the features are no longer there.
    """
    if model.card.backbone is None or not isinstance(model.network, Classifier):
        return None
    data = run.config.data
    try:
        table = load_source(data.source, data_root=data.root, download=False, allow_outside=data.allow_outside)
        trained = set(run.splits.train)
    except EvenhandError:
        return None
    rows = np.array([row for row, name in enumerate(table.ids.tolist()) if name in trained], np.int64)
    if not 0 < len(rows) <= MOST_IMAGES or _bytes(table.pixels, rows) > MOST_BYTES:
        return None
    pixels = table.pixels.take(rows)
    members = [Weights(None, *about) for about in split_reference(**model.card.backbone)]
    weights = join_weights(members) if len(members) > 1 else members[0]
    backbone = Backbone(model.network, model.card.transform(), weights)
    stores = FeatureStores(tuple(open_store(cache_root() / "features", member, False) for member in backbone.members()))
    places = rows_by_content(pixels, {}, progress=False)
    values = np.zeros((len(rows), backbone.num_features), np.float16)
    found = stores.fill(places, values, set())
    if len(members) > 1:
        values = join_blocks(stores.split(values))
    kept = np.sort([place for digest in found for place in places[digest]]).astype(np.int64)
    if not len(kept):
        return None
    features = values[kept].astype(np.float32)
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return TrainingImages(table, rows[kept], features / np.maximum(lengths, 1e-12))


def _picture(pixels: FilePixels | ArrayPixels, row: int) -> NDArray[np.uint8]:
    if isinstance(pixels, ArrayPixels):
        return np.asarray(pixels.images[row], np.uint8)
    box = None if pixels.boxes is None else pixels.boxes[row].tolist()
    return read_image(pixels.root / pixels.paths[row], box, image_size=PICTURE_SIZE)


def _bytes(pixels: FilePixels | ArrayPixels, rows: NDArray[np.int64]) -> int:
    if isinstance(pixels, ArrayPixels):
        return 0  # in memory already
    paths = (pixels.root / pixels.paths[row] for row in rows)
    return sum(path.stat().st_size for path in paths if path.is_file())
