"""Export to ONNX; the file is checked against torch before it gets its name."""

import contextlib
import io
import json
import logging
import warnings
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.extras import how_to_install
from evenhand.core.files import enclosing, replacing
from evenhand.core.seeds import stream
from evenhand.data.decode import MAX_ASPECT, with_channels
from evenhand.data.reading import RowReader
from evenhand.data.sources import load_source
from evenhand.data.table import FilePixels
from evenhand.runs.comparison import is_comparison, read_recommended
from evenhand.runs.model_folder import exported_with
from evenhand.runs.run import Run, run_of
from evenhand.runs.schemas import Adjustment
from evenhand.training.decisions import refuse_combined, stored_thresholds
from evenhand.training.predict import TrainedModel, load
from evenhand.training.prior import change_prior

MOST_DIFFERENT = 1e-3
"""Largest allowed difference between the logits of torch and of ONNX."""
IMAGES_PER_CLASS, NOISE_IMAGES = 8, 64
"""Images that are compared: test images per class, or noise."""


@dataclass(frozen=True)
class Check:
    """The comparison of an exported model with torch."""

    images: int
    real: bool
    """Whether they are test images of the run; otherwise noise."""
    differences: dict[str, float]
    """Largest difference of logits per class: the true class of test images, the predicted class of noise."""

    @property
    def largest(self) -> float:
        """Largest difference over all images."""
        return max(self.differences.values())


def export_onnx(
    run: Path | str,
    path: Path | str,
    *,
    ensemble: bool = False,
    costs: Path | str | None = None,
    prior: str | None = None,
    coverage: float | None = None,
    min_precision: float | None = None,
) -> Check:
    """Write a trained model as ONNX and compare its logits with torch.

    The graph takes `images`, float32 (N, C, S, S) with any N, normalised: (pixels / 255 - mean) / std per channel. It
    returns `logits`, float32 (N, K). Preprocessing and classes are stored in the file's metadata as JSON:

    - `class_names`, `channels`, `image_size`;
    - `resize_rule`: `shorter` (the shorter side is resized to `image_size`, the other in proportion, rounded down) or
      `stretch` (both sides are; also stored as `stretch`);
    - `max_aspect`: for `shorter`, a longer image is first cropped to its centre at this aspect ratio;
    - `interpolation` (antialiased), `crop_size` (S), `crop` (`center`, rounded down), `mean` and `std`;
    - `adjustment`: the adjustment of the logits after training, which the graph applies itself (`null`: none; for an
      ensemble a list with one entry per run);
    - `costs`: the cost of each true class (row) predicted as each class (column), in the order of `class_names`
      (`null`: none), and `prior`: the class shares that the probabilities are for, if they were changed;
    - `coverage` and `set_thresholds`: a class is in the prediction set if its probability is at least its threshold
      (`null`: it always is), or if it is the most probable one; `min_precision` and `answer_thresholds`: the most
      probable class is the answer if its probability is at least its threshold (`null`: never).

    A frozen body and the last layer that was trained on it are one graph.

    Args:
        run: a run, a file of weights, or a comparison, whose recommended model is used.
        path: the file to write; it gets its name after the check.
        ensemble: for a comparison: average all runs of the recommended objective in one graph.
        costs: a file of costs, see :func:`evenhand.load`.
        prior: the class shares where the model is used, see :func:`evenhand.load`.
        coverage: of each class by prediction sets, see `load_unsure`.
        min_precision: of the answers, see `load_unsure`.

    Returns:
        The comparison: on test images of every class if the run's data are found, else on noise.

    Raises:
        EvenhandError: packages of the extra `onnx` are missing, the network cannot be exported, or logits differ by
            more than `MOST_DIFFERENT`.
    """
    if (costs, prior, coverage, min_precision) == (None,) * 4:
        coverage, min_precision = exported_with(run)
    refuse_combined(coverage, min_precision, ensemble=ensemble, costs=costs, prior=prior)
    onnx, runtime, _ = (_required(name) for name in ("onnx", "onnxruntime", "onnxscript"))
    model = load(run, device="cpu", ensemble=ensemble, prior=prior, costs=costs)
    prior = prior or (None if costs is None else "uniform")
    runs = [each.path for each in read_recommended(run).runs] if is_comparison(run) else [Path(run)]
    decided = {"coverage": coverage, "min_precision": min_precision}
    decided |= stored_thresholds(Run(runs[0]), coverage, min_precision)
    stored = [Run(each).adjustment if each.is_dir() else None for each in runs]  # a file of weights has none
    fields = set(Adjustment.model_fields)
    adjustments = [None if each is None else each.model_dump(mode="json", include=fields) for each in stored]
    if prior is not None:
        changed = [change_prior(Run(each), prior).added_to_logits.tolist() for each in runs]
        given = {"kind": "prior", "chosen": "given", "tau": None, "prior": prior}
        adjustments = [{**given, "added_to_logits": values} for values in changed]
    pixels, classes = _images(runs[0], model)
    images = model.card.preprocessing.normalise(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous())
    with replacing(path, within=enclosing(path, map(run_of, [run, *runs]))) as temporary:
        _export(model, temporary)
        graph = onnx.load(temporary)
        onnx.helper.set_model_props(
            graph, _metadata(model, adjustments if ensemble else adjustments[0], prior, decided)
        )
        onnx.checker.check_model(graph)
        onnx.save(graph, temporary)
        check = _compare(model, runtime, temporary, images, classes)
        if not check.largest <= MOST_DIFFERENT:
            worst = max(check.differences, key=lambda name: check.differences[name])
            raise EvenhandError(
                f"The exported model differs from torch: logits by up to {check.largest:.2g} (class {worst!r}), more "
                f"than {MOST_DIFFERENT:g}; {path} was not written."
            )
    return check


def _required(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise EvenhandError(f"ONNX needs the package {name}: {how_to_install('onnx')}.") from error


def _export(model: TrainedModel, path: Path) -> None:
    card = model.card
    example = torch.zeros(2, card.channels, card.preprocessing.crop_size, card.preprocessing.crop_size)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        # The exporter prints to stdout, which may be a pipe.
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _adjusted(model).to(memory_format=torch.contiguous_format),
                (example,),
                str(path),
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # the exporter's stages raise nearly anything
        raise EvenhandError(f"torch cannot export {card.model} to ONNX: {reason(error)}.") from error


class _Adjusted(nn.Module):
    """A network, with the adjustment of its run added to its logits."""

    def __init__(self, network: nn.Module, adjustment: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("adjustment", adjustment)

    def forward(self, images: Tensor) -> Tensor:
        return torch.add(self.network(images), self.get_buffer("adjustment"))


def _adjusted(model: TrainedModel) -> nn.Module:
    return model.network if model.adjustment is None else _Adjusted(model.network, model.adjustment).eval()


def _metadata(model: TrainedModel, adjustment: object, prior: str | None, decided: dict[str, Any]) -> dict[str, str]:
    card = model.card
    content = {
        "class_names": card.class_names,
        "channels": card.channels,
        "image_size": card.image_size,
        "resize_rule": "stretch" if card.stretch else "shorter",
        "stretch": card.stretch,
        "max_aspect": MAX_ASPECT,
        "interpolation": card.interpolation,
        "crop": "center",
        "crop_size": card.preprocessing.crop_size,
        "mean": card.preprocessing.mean,
        "std": card.preprocessing.std,
        "adjustment": adjustment,
        "prior": prior,
        "costs": None if model.costs is None else model.costs.tolist(),
        **decided,
    }
    named = {key: json.dumps(value, ensure_ascii=False) for key, value in content.items()}
    return {**named, "model": card.model, "producer": "evenhand"}


@torch.inference_mode()
def _compare(model: TrainedModel, runtime: Any, path: Path, images: Tensor, classes: list[str] | None) -> Check:
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    expected = _adjusted(model)(images).numpy()
    parts = np.array_split(images.numpy(), [1])  # batches of one image and of many
    answers = np.concatenate([session.run(["logits"], {"images": part})[0] for part in parts if len(part)])
    different = np.abs(answers - expected).max(1)
    names = np.array([model.class_names[k] for k in expected.argmax(1)] if classes is None else classes)
    differences = {name: float(different[names == name].max()) for name in dict.fromkeys(names.tolist())}
    return Check(len(images), classes is not None, differences)


def _images(run: Path, model: TrainedModel) -> tuple[NDArray[np.uint8], list[str] | None]:
    """Return pixels, (N, S, S, C), and the classes of test images; noise (None) if the data are not found."""
    with contextlib.suppress(EvenhandError):
        folder = Run(run)
        config, named = folder.config, folder.splits
        table = load_source(
            config.data.source, data_root=config.data.root, download=False, allow_outside=config.data.allow_outside
        )
        test = np.flatnonzero(np.isin(table.ids, named.test))
        labels = table.labels[test]
        rows = np.concatenate([test[labels == k][:IMAGES_PER_CLASS] for k in np.unique(labels)])
        pixels = table.pixels
        if isinstance(pixels, FilePixels):
            pixels = replace(pixels, stretch=model.card.stretch)
        reader = RowReader(pixels, model.card.image_size, model.card.channels, model.card.interpolation)
        found = [model.cut(with_channels(reader(int(row)), model.card.channels)) for row in rows]
        return np.stack(found), [table.class_names[k] for k in table.labels[rows]]
    size, channels = model.card.preprocessing.crop_size, model.card.channels
    return stream(0, "noise").integers(0, 256, (NOISE_IMAGES, size, size, channels), dtype=np.uint8), None
