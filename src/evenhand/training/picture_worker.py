"""Classify single pictures for the page of `evenhand serve`, in a process of its own."""

import base64
import io
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from evenhand.core.errors import EvenhandError, none_if_unreadable
from evenhand.core.frames import read_frame, write_frame
from evenhand.core.text import json_line
from evenhand.data.decode import BadImage, probe_image, read_image, resize_array
from evenhand.models.classifier import Classifier
from evenhand.runs.comparison import is_comparison, read_recommended
from evenhand.runs.filenames import ADJUSTMENT
from evenhand.runs.run import Run
from evenhand.training._similar_images import PICTURE_SIZE, TrainingImages, find_training_images
from evenhand.training.predict import TrainedModel, load

MOST_PIXELS = 50_000_000
"""A picture that declares more is refused before it is decoded."""
MOST_CLASSES, MOST_SIMILAR = 5, 6


def serve_pictures() -> None:
    """Answer requests on stdin until it is closed: a folder, then the bytes of a picture, gives JSON on stdout."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    models = _Models()
    with suppress(EOFError, BrokenPipeError):  # the server has ended
        while True:
            folder, picture = Path(os.fsdecode(read_frame(requests))), read_frame(requests)
            try:
                answer = models.get(folder).classify(picture)
            except EvenhandError as error:
                answer = {"error": str(error)}
            except MemoryError:
                answer = {"error": "Out of memory; try a smaller picture."}
            write_frame(answers, json_line(answer).encode("utf-8", "replace"))


@dataclass(frozen=True, eq=False)
class PictureModel:
    """The model of a run, with its training images if their features are cached.

    Example:
        >>> import io, tempfile
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.training.picture_worker import PictureModel
        >>> from evenhand.training.run import train_run
        >>> run = train_run(make_config(epochs=1), Path(tempfile.mkdtemp()) / "run")
        >>> Image.new("L", (20, 30)).save(file := io.BytesIO(), "PNG")
        >>> answer = PictureModel.open(run).classify(file.getvalue())
        >>> len(answer["classes"]), answer["similar"]
        (5, [])
    """

    run: Run
    model: TrainedModel
    training: TrainingImages | None

    @classmethod
    def open(cls, run: Run) -> "PictureModel":
        """Load the model of a finished run."""
        model = load(run)
        return cls(run, model, find_training_images(run, model))

    def classify(self, content: bytes) -> dict[str, Any]:
        """Return the most probable classes of a picture and the most similar training images, as plain values.

        Args:
            content: the bytes of an image file.

        Raises:
            EvenhandError: it cannot be read, or has too many pixels.
        """
        image = self._read(content)
        probabilities, features = self._forward(image)
        summary = none_if_unreadable(lambda: self.run.summary)
        known = {} if summary is None else {row.name: row for row in summary.per_class}
        classes = []
        for k in np.argsort(-probabilities, kind="stable")[:MOST_CLASSES].tolist():
            name = self.model.class_names[k]
            row = known.get(name)
            classes.append(
                {
                    "name": name,
                    "probability": float(probabilities[k]),
                    "train_count": None if row is None else row.train_count,
                    "recall": None if row is None else row.recall,
                    "test_count": None if row is None else row.test_count,
                }
            )
        similar = [] if self.training is None else self.training.most_similar(features, MOST_SIMILAR)
        return {
            "run": self.run.path.name,
            "objective": str(self.run.config.objective),
            "seen": _as_address(image),
            "classes": classes,
            "similar": [
                {
                    "image": _as_address(each.image),
                    "id": each.id,
                    "class": each.class_name,
                    "similarity": each.similarity,
                }
                for each in similar
            ],
        }

    def _read(self, content: bytes) -> NDArray[np.uint8]:
        """Return the part of a picture that the network sees, (S, S, C)."""
        card = self.model.card
        try:
            info = probe_image("", content)
            if info.width * info.height > MOST_PIXELS:
                size = f"{info.width:,} x {info.height:,}"
                raise EvenhandError(f"This picture has {size} pixels; at most {MOST_PIXELS // 10**6} million are read.")
            image = read_image(
                "",
                channels=card.channels,
                image_size=card.image_size,
                stretch=card.stretch,
                interpolation=card.interpolation,
                content=content,
            )
        except BadImage as error:
            raise EvenhandError(f"This picture cannot be read: {error.reason.rstrip('.')}.") from error
        return self.model.cut(image)

    def _forward(self, image: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the probabilities (K,) of an image and, for a single network, its features (F,)."""
        _, logits, _ = next(self.model.forward([image], lambda each: each, 1))
        probabilities = self.model.probabilities(logits)[0]
        if self.training is None or not isinstance(self.model.network, Classifier):
            return probabilities, np.zeros(0, np.float32)
        pixels = torch.from_numpy(image[None]).permute(0, 3, 1, 2).to(self.model.device)
        with torch.inference_mode():
            features = self.model.network.features(self.model.card.preprocessing.normalise(pixels))
        return probabilities, np.asarray(features[0].float().cpu().numpy(), np.float32)


@dataclass
class _Models:
    """The last model used; it is loaded again when its files have changed."""

    stamp: object = None
    opened: PictureModel | None = field(default=None, repr=False)

    def get(self, folder: Path) -> PictureModel:
        run = read_recommended(folder).runs[0] if is_comparison(folder) else Run(folder)
        files = [run.weights, run.path / ADJUSTMENT]
        stamp = [(str(file), file.stat().st_mtime_ns if file.is_file() else None) for file in files]
        if self.opened is None or self.stamp != stamp:
            self.opened = None  # two models at a time may not fit in memory
            self.opened, self.stamp = PictureModel.open(run), stamp
        return self.opened


def _as_address(image: NDArray[np.uint8]) -> str:
    """Return an image (H, W, C) as a `data:` address."""
    if min(image.shape[:2]) > PICTURE_SIZE:
        image = resize_array(image, PICTURE_SIZE)
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    small = min(image.shape[:2]) <= 64  # JPEG would blur the few pixels there are
    picture.save(file := io.BytesIO(), "PNG" if small else "JPEG", quality=90)
    return f"data:image/{'png' if small else 'jpeg'};base64,{base64.b64encode(file.getvalue()).decode()}"
