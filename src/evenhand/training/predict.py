"""Prediction with a trained model: images to probabilities, with the preprocessing of its test set."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.data.decode import BadImage, read_image, resize_array, with_channels
from evenhand.data.pixels import is_one_image, to_pixels
from evenhand.data.reading import read_ahead
from evenhand.metrics.costs import expected_costs
from evenhand.metrics.priors import tau_normalise
from evenhand.models.classifier import Classifier
from evenhand.models.heads import ScaledHead, last_layer
from evenhand.models.transform import centre_crop
from evenhand.runs.comparison import is_comparison, read_recommended
from evenhand.runs.filenames import DECISIONS, MODEL_WEIGHTS
from evenhand.runs.model_folder import StoredDecisions, is_model_folder, read_decisions
from evenhand.runs.run import Run
from evenhand.runs.schemas import Adjustment
from evenhand.training._ensemble import Ensemble, Member
from evenhand.training.card import Card
from evenhand.training.checkpoint import load_classifier
from evenhand.training.cost_files import read_costs
from evenhand.training.prediction import ImagePredictions
from evenhand.training.prior import change_prior

Item: TypeAlias = Path | str | NDArray[np.uint8] | Image.Image | Tensor
"""An image: the path of a file, or pixels as :func:`~evenhand.data.pixels.to_pixels` takes them."""

_T = TypeVar("_T")
_logger = logging.getLogger("evenhand")


@dataclass(frozen=True, eq=False)
class BatchPrediction:
    """The predictions for a batch of images."""

    items: list[Item]
    """The readable images, as they were given."""
    probabilities: NDArray[np.float32]
    """(B, K), one row per readable image."""
    bad: list[tuple[Item, str]]
    """The unreadable images, and why."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained network with its preprocessing and class names; :func:`load` returns one.

    Attributes:
        network: in evaluation mode, in float32. It takes normalised images, (N, C, S, S), and returns logits, (N, K).
        card: class names, channels, image size, crop and normalisation.
        device: of the network.
        adjustment: added to the logits, (K,), if the run has an adjustment (`evenhand evaluate --adjust`) or
            probabilities are for another prior.
        costs: the cost of each true class predicted as each class, (K, K), by which :meth:`decide` decides.
    """

    network: Classifier | Ensemble
    card: Card
    device: torch.device
    adjustment: Tensor | None = None
    costs: NDArray[np.float64] | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The K classes, in the order of the probabilities of :meth:`predict`."""
        return self.card.class_names

    def predict(
        self, images: Item | Sequence[Item], batch_size: int = 64, *, skip_bad: bool = False
    ) -> ImagePredictions:
        """Return the class of each image, and the probability of every class.

        With costs, it is the class of least expected cost; otherwise the most probable one.

        Args:
            images: paths of image files, PIL images, uint8 arrays (H, W), (H, W, 1) or (H, W, 3) of any size, tensors
                (C, H, W) of uint8 or of floats from 0 to 1, or one array (N, H, W, C) or tensor (N, C, H, W); also a
                single one of these.
            batch_size: images per batch.
            skip_bad: give unreadable files no class and probabilities of NaN, and log a warning.

        Raises:
            EvenhandError: files cannot be read (and `skip_bad` is off), or an array is not an image.
        """
        items = _listed(images)
        rows = np.full((len(items), len(self.class_names)), np.nan, np.float32)
        done, unreadable = 0, []
        for part, logits, bad in self.forward(items, self.read, batch_size):
            refuse_bad(part, bad, skip_bad)
            kept = [position for position in range(len(part)) if position not in bad]
            rows[[done + position for position in kept]] = self.probabilities(logits)
            unreadable += list(bad.values())
            done += len(part)
        if unreadable:
            _logger.warning("%d of %d images cannot be read; the first: %s", len(unreadable), done, unreadable[0])
        readable = ~np.isnan(rows).any(1)
        predicted = np.full(len(rows), -1, np.int64)
        predicted[readable] = self.decide(rows[readable])
        return ImagePredictions(_named(items), rows, predicted, self.class_names)

    def stream(
        self, images: Iterable[Item], batch_size: int = 64, *, skip_bad: bool = False
    ) -> Iterator[BatchPrediction]:
        """Predict any number of images, batch by batch, with at most two batches in memory.

        Args:
            images: paths or arrays, as :meth:`predict` takes them.
            batch_size: images per batch.
            skip_bad: list unreadable files in `BatchPrediction.bad` instead of raising an `EvenhandError`.
        """
        for part, logits, bad in self.forward(images, self.read, batch_size):
            refuse_bad(part, bad, skip_bad)
            read = [item for position, item in enumerate(part) if position not in bad]
            refused = [(part[position], error.reason) for position, error in bad.items()]
            yield BatchPrediction(read, self.probabilities(logits), refused)

    def probabilities(self, logits: Tensor) -> NDArray[np.float32]:
        """Return probabilities (N, K) of the network's logits, with the adjustment of the run."""
        adjusted = logits if self.adjustment is None else logits + self.adjustment
        return np.asarray(adjusted.softmax(1).numpy(), np.float32)

    def decide(self, probabilities: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the class of least expected cost, (N,); without costs, the most probable one."""
        if self.costs is None:
            return np.asarray(probabilities.argmax(1), np.int64)
        return np.asarray(expected_costs(probabilities, self.costs).argmin(1), np.int64)

    def forward(
        self,
        items: Iterable[_T],
        read: Callable[[_T], NDArray[np.uint8]],
        batch_size: int,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Iterator[tuple[list[_T], Tensor, dict[int, BadImage]]]:
        """Read items in threads and compute their logits; while the network computes, the next batch is read.

        Args:
            items: anything that `read` takes.
            read: returns uint8, (H, W, C), with the image size and the channels of the card, or raises `BadImage`.
            batch_size: items per batch.
            autocast: the context of the computation.

        Yields:
            The items of a batch; the logits of the readable ones, float32 on the CPU; and the errors of the others, by
            position in the batch.
        """
        if batch_size < 1:
            raise EvenhandError(f"The batch size must be at least 1, got {batch_size}.")
        for batch in read_ahead(items, read, batch_size):
            yield self._forward_batch(batch, autocast)

    def _forward_batch(
        self,
        batch: list[tuple[_T, NDArray[np.uint8] | BadImage]],
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> tuple[list[_T], Tensor, dict[int, BadImage]]:
        part = [item for item, _ in batch]
        bad = {position: result for position, (_, result) in enumerate(batch) if isinstance(result, BadImage)}
        images = [self.cut(result) for _, result in batch if not isinstance(result, BadImage)]
        if not images:
            return part, torch.empty(0, len(self.class_names)), bad
        pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).to(self.device)
        with torch.inference_mode(), autocast():
            normalised = self.card.preprocessing.normalise(pixels).contiguous(memory_format=torch.channels_last)
            logits = self.network(normalised).float().cpu()
        if not logits.isfinite().all():
            raise EvenhandError("The network's logits are NaN or infinite, so its weights cannot be used; train again.")
        return part, logits, bad

    def read(self, item: Item) -> NDArray[np.uint8]:
        """Return an image with the size and channels of the card: uint8, (H, W, C), not cropped."""
        card = self.card
        if isinstance(item, str | Path):
            return read_image(
                item,
                channels=card.channels,
                image_size=card.image_size,
                stretch=card.stretch,
                interpolation=card.interpolation,
            )
        image = resize_array(to_pixels(item), card.image_size, stretch=card.stretch, interpolation=card.interpolation)
        return with_channels(image, card.channels)

    def cut(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the centre crop of an image."""
        return centre_crop(image, self.card.preprocessing.crop_size)


def load(
    run: os.PathLike[str] | str,
    *,
    device: torch.device | str | None = None,
    ensemble: bool = False,
    adjust: bool = True,
    prior: str | None = None,
    costs: os.PathLike[str] | str | None = None,
) -> TrainedModel:
    """Load a trained model.

    Args:
        run: the folder of a finished run, whose selected weights are loaded; a file of weights; a model folder
            (`evenhand export --folder`); or the folder of a comparison, whose recommended objective's run with the best
            validation result is loaded.
        device: of the computation; None: a CUDA GPU if there is one, else the CPU.
        ensemble: for a comparison: average the probabilities of all runs of the recommended objective.
        adjust: apply the adjustment that a run was given after training, if any.
        prior: the class shares where the model is used, which probabilities then hold for: `uniform`, `train` or a
            file; in place of the run's adjustment. None: those that a model folder was exported with; else `uniform`
            with costs, and as the run is without.
        costs: a file of costs, a cost per class or a matrix: `TrainedModel.decide` then returns the class of least
            expected cost. None: those that a model folder was exported with, if any.

    Raises:
        EvenhandError: the run is missing or not finished, or its weights are damaged.

    Example:
        >>> import tempfile, numpy as np, evenhand
        >>> from pathlib import Path
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.training.run import train_run
        >>> run = train_run(make_config(epochs=1, data__imbalance="exp:20"), Path(tempfile.mkdtemp()) / "run")
        >>> model = evenhand.load(run.path)
        >>> found = model.predict(np.zeros((2, 8, 8, 1), np.uint8))
        >>> len(found.labels), found.probabilities.shape
        (2, (2, 10))
    """
    stored = read_decisions(run) if is_model_folder(run) and Run(Path(run)).has(DECISIONS) else None
    if costs is not None:
        if prior is None and (stored is None or stored.prior is None):
            prior = "uniform"
        model = load(run, device=device, ensemble=ensemble, prior=prior)
        return replace(model, costs=read_costs(Path(costs), model.class_names))
    if is_comparison(run):
        recommended = read_recommended(run).runs
        if ensemble:
            models = [load(each, device=device, prior=prior) for each in recommended]
            members = [Member(model.network, model.card, model.adjustment) for model in models]  # type: ignore[arg-type]
            return TrainedModel(Ensemble(members).to(models[0].device).eval(), models[0].card, models[0].device)
        run = recommended[0]
    elif ensemble:
        raise EvenhandError(f"An ensemble needs a comparison, and {Path(run)} is not one; leave out --ensemble.")
    return _load_one(Path(run), stored, device=device, adjust=adjust, prior=prior)


def _load_one(
    path: Path, stored: StoredDecisions | None, *, device: torch.device | str | None, adjust: bool, prior: str | None
) -> TrainedModel:
    """Load the model of a run, a model folder with what is stored of its decisions, or a file of weights."""
    network, card = load_classifier(selected_weights(path), within=path if path.is_dir() else None)
    if stored is not None and stored.class_names != card.class_names:
        raise EvenhandError(f"{DECISIONS} in {path} is of other classes than its weights; export it again.")
    exported = is_model_folder(path)
    if path.is_dir() and not exported and card.model != (expected := Run(path).config.model.name):
        raise EvenhandError(
            f"The weights in {path} are of {card.model}, but the run is of {expected}; restore its own."
        )
    network, place = _on_device(network, device)
    added: NDArray[np.float64] | None = None
    if prior is not None:
        if not path.is_dir():
            raise EvenhandError(
                f"{path} is a file of weights, whose class shares are unknown; give the folder of a run."
            )
        added = change_prior(Run(path), prior).added_to_logits
    elif adjust and path.is_dir():
        adjustment = Run(path).adjustment or (None if exported else own_adjustment(Run(path)))
        added = None if adjustment is None else _apply(adjustment, network, card, path)
    offset = None if added is None else torch.tensor(added, dtype=torch.float32)
    costs = None if stored is None or stored.costs is None else np.array(stored.costs)
    return TrainedModel(network.eval(), card, place, offset, costs)


def _on_device(network: Classifier, device: torch.device | str | None) -> tuple[Classifier, torch.device]:
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
        return network.to(place).to(memory_format=torch.channels_last), place
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        raise EvenhandError(f"Cannot compute on {device}: {str(error).splitlines()[0].rstrip('.')}.") from error


def _apply(adjustment: Adjustment, network: Classifier, card: Card, path: Path) -> NDArray[np.float64] | None:
    """Return what an adjustment adds to the logits, (K,); None: it normalises the last layer, in place."""
    if adjustment.kind == "tau-normalised":
        normalise_head(network, adjustment.tau or 0.0)
        return None
    added = adjustment.added_to_logits
    if added is None or len(added) != len(card.class_names):
        raise EvenhandError(
            f"The adjustment of {path} does not fit {len(card.class_names)} classes; evaluate it again with --adjust."
        )
    return np.array(added)


def own_adjustment(run: Run) -> Adjustment | None:
    """Return the adjustment by the post-hoc part of a run's objective, which its predictions store."""
    if not run.finished or run.config.objective.training == run.config.objective:
        return None
    added = run.predictions.adjustment
    return None if added is None else Adjustment(kind="post-hoc", chosen="given", added_to_logits=tuple(added.tolist()))


def normalise_head(network: Classifier | Ensemble, tau: float) -> None:
    """Tau-normalise the weights of a linear last layer and zero its bias, in place.

    See :func:`evenhand.metrics.priors.tau_normalise`.
    """
    if isinstance(network, Ensemble):
        raise EvenhandError("An ensemble has no single last layer whose weights can be normalised.")
    head = network.get_submodule(last_layer(network))
    if not isinstance(head, nn.Linear) or isinstance(head, ScaledHead):
        raise EvenhandError(f"{network.name} has no plain linear last layer whose weights can be normalised.")
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(tau_normalise(head.weight.cpu().numpy(), tau)))
        if head.bias is not None:
            head.bias.zero_()


def selected_weights(run: os.PathLike[str] | str) -> Path:
    """Return the file of a finished run's selected weights; a file is returned unchanged."""
    folder = Path(run)
    if folder.is_file():
        return folder
    if is_model_folder(folder):
        return folder / MODEL_WEIGHTS
    if not folder.is_dir():
        raise EvenhandError(f"There is no run or file of weights {folder}; {Run(folder).suggestion}")
    return Run(folder).weights


def _listed(images: Item | Sequence[Item]) -> Sequence[Item]:
    if is_one_image(images):
        return [images]  # type: ignore[list-item]
    if isinstance(images, np.ndarray | Tensor) and images.ndim != 4:
        shape, order = tuple(images.shape), "(N, C, H, W)" if isinstance(images, Tensor) else "(N, H, W, C)"
        raise EvenhandError(f"An array of images must be {order}, C of 1 or 3, got shape {shape}.")
    return list(images)  # type: ignore[arg-type]


def _named(items: Sequence[Item]) -> tuple[str, ...]:
    return tuple(
        os.fspath(item) if isinstance(item, str | Path) else f"image {number}" for number, item in enumerate(items)
    )


def refuse_bad(part: Sequence[object], bad: dict[int, BadImage], skip_bad: bool) -> None:
    """Raise an error about the unreadable images of a batch, unless they are to be left out."""
    if not bad or skip_bad:
        return
    lost = [item for item in (part[position] for position in bad) if isinstance(item, str | Path)]
    lost = [item for item in lost if not os.path.lexists(item)]
    if len(lost) == len(bad):
        raise EvenhandError(
            f"There {'is no file' if len(lost) == 1 else 'are no files'} {some(list(map(str, lost)), 3)}."
        )
    advice = "--skip-bad (in Python, skip_bad=True)."
    if len(bad) == 1:
        raise EvenhandError(f"{str(next(iter(bad.values()))).rstrip('.')}; leave it out with {advice}")
    named = ", ".join(f"{part[position]} ({error.reason})" for position, error in list(bad.items())[:3])
    raise EvenhandError(
        f"{len(bad)} images cannot be read: {named}{', ...' if len(bad) > 3 else ''}; leave them out with {advice}"
    )
