"""A trained model as an ONNX file, compared with torch before it gets its name."""

import contextlib
import io
import json
import logging
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.extras import how_to_install
from evenhand.core.files import replacing
from evenhand.core.seeds import stream
from evenhand.data.decode import MAX_ASPECT, with_channels
from evenhand.data.reading import RowReader
from evenhand.data.sources import load_source
from evenhand.data.table import FilePixels
from evenhand.runs.comparison import is_comparison, read_recommended
from evenhand.runs.run import Run
from evenhand.runs.schemas import Adjustment
from evenhand.training.predict import TrainedModel, load

MOST_DIFFERENT = 1e-3
"""Logits of torch and of ONNX may differ by this much."""
A_CLASS, NOISE = 8, 64
"""So many real images of each class are compared, or so many of noise."""


@dataclass(frozen=True)
class Check:
    """How an exported model compares with torch."""

    images: int
    real: bool
    """They are test images of the run, not noise."""
    differences: dict[str, float]
    """The largest difference of logits by class: the true one of real images, the predicted one of noise."""

    @property
    def largest(self) -> float:
        """Over all images."""
        return max(self.differences.values())


def export_onnx(run: Path | str, path: Path | str, *, ensemble: bool = False) -> Check:
    """Write a trained model as ONNX and compare what it answers with torch.

    The graph takes `images`, float32 (N, C, S, S) with any N, normalised: pixels / 255, less the mean, over the
    deviation of each channel. It returns `logits`, float32 (N, K). What is needed to make such images and to read the
    answer stands in the file's metadata as JSON: `class_names`, `channels`, `image_size` and the `resize_rule`
    (`shorter`: the shorter side is brought to this length and the other in proportion, rounded down; `stretch`: both
    are, which `stretch` says too), `max_aspect` (where the shorter side counts, a picture longer than so many times it
    is first cut to its middle), the `interpolation` (antialiased), `crop_size` (S) and `crop` (`center`, odd rests
    rounded down), `mean` and `std`; and `adjustment`, what was done to the logits after training, which the graph does
    itself (`null`: nothing; of an ensemble a list, one for each run). A frozen body and the last layer that was trained
    on it are one graph.

    Args:
        run: a run, a file of weights, or a comparison, of which the recommended objective's model is taken.
        path: the file to write. It only gets its name once the comparison is good.
        ensemble: of a comparison: all runs of the recommended objective, averaged, in one graph.

    Returns:
        The comparison: on test images of the run of every class if they are at hand, else on noise.

    Raises:
        EvenhandError: the packages of the extra `onnx` are missing, the network cannot be exported, or the answers
            differ by more than `MOST_DIFFERENT`.
    """
    onnx, runtime, _ = (_required(name) for name in ("onnx", "onnxruntime", "onnxscript"))
    model = load(run, device="cpu", ensemble=ensemble)
    runs = [each.path for each in read_recommended(run).runs] if is_comparison(run) else [Path(run)]
    run, done = runs[0], [_adjustment_of(each) for each in runs]
    pixels, classes, real = _images(run, model)
    images = model.card.preprocessing.normalise(pixels)
    with replacing(path) as temporary:
        _export(model, temporary)
        graph = onnx.load(temporary)
        onnx.helper.set_model_props(graph, _metadata(model, done if ensemble else done[0]))
        onnx.checker.check_model(graph)
        onnx.save(graph, temporary)
        check = _compare(model, runtime, temporary, images, classes, real)
        if not check.largest <= MOST_DIFFERENT:
            worst = max(check.differences, key=lambda name: check.differences[name])
            raise EvenhandError(
                f"The exported model answers otherwise than torch: logits differ by up to {check.largest:.2g} (class "
                f"{worst!r}), more than {MOST_DIFFERENT:g}; {path} was not written."
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
        # The exporter reports its steps on stdout, where a user's pipe may be.
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _adjusted(model).to(memory_format=torch.contiguous_format),
                (example,),
                str(path),
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes={"images": {0: "batch"}},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # the exporter raises whatever its stages raise
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


def _adjustment_of(run: Path) -> dict[str, Any] | None:
    """Say what is done to the logits of a run, as its folder does; a file of weights is taken as it is."""
    done = Run(run).adjustment if run.is_dir() else None
    return None if done is None else done.model_dump(mode="json", include=set(Adjustment.model_fields))


def _metadata(model: TrainedModel, adjustment: object) -> dict[str, str]:
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
    }
    named = {key: json.dumps(value, ensure_ascii=False) for key, value in content.items()}
    return {**named, "model": card.model, "producer": "evenhand"}


@torch.inference_mode()
def _compare(
    model: TrainedModel, runtime: Any, path: Path, images: Tensor, classes: list[str] | None, real: bool
) -> Check:
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    expected = _adjusted(model)(images).numpy()
    parts = np.array_split(images.numpy(), [1])  # of one image and of many: the batch is dynamic
    answers = np.concatenate([session.run(["logits"], {"images": part})[0] for part in parts if len(part)])
    different = np.abs(answers - expected).max(1)
    if classes is None:
        classes = [model.class_names[k] for k in expected.argmax(1)]
    names = np.array(classes)
    return Check(len(images), real, {name: float(different[names == name].max()) for name in dict.fromkeys(classes)})


def _images(run: Path | str, model: TrainedModel) -> tuple[Tensor, list[str] | None, bool]:
    """Return pixels, uint8 (N, C, S, S), and their classes: a few test images of each class if the run has its data."""
    with contextlib.suppress(EvenhandError):
        folder = Run(Path(run))
        config, named = folder.config, folder.splits
        table = load_source(
            config.data.source, data_root=config.data.root, download=False, allow_outside=config.data.allow_outside
        )
        test = np.flatnonzero(np.isin(table.ids, named.test))
        labels = table.labels[test]
        rows = np.concatenate([test[labels == k][:A_CLASS] for k in np.unique(labels)])
        pixels = table.pixels
        if isinstance(pixels, FilePixels):
            pixels = FilePixels(pixels.root, pixels.paths, pixels.boxes, model.card.stretch)
        reader = RowReader(pixels, model.card.image_size, model.card.channels, model.card.interpolation)
        found = [model.cut(with_channels(reader(int(row)), model.card.channels)) for row in rows]
        return _tensor(found), [table.class_names[k] for k in table.labels[rows]], True
    size, channels = model.card.preprocessing.crop_size, model.card.channels
    noise = stream(0, "noise").integers(0, 256, (NOISE, size, size, channels), dtype=np.uint8)
    return _tensor(list(noise)), None, False


def _tensor(images: list[NDArray[np.uint8]]) -> Tensor:
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
