"""A frozen network as a graph of onnxruntime, which computes features about twice as fast as torch on a CPU.

The graph has its batch norms folded into the convolutions. Measured in float32 on one thread, in images per second
against torch in channels last (`benchmarks/features.py` measures it again): lite0 2.7, efficientnet_b0 2.6,
mobilenet_v3_large 2.3, resnet18 1.3. Frozen TorchScript reached 1.1 to 1.8.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from evenhand.models.backbone import Backbone
from evenhand.models.classifier import Classifier
from evenhand.models.joined import Member, join_features

MOST_DIFFERENT = 1e-4
"""Largest allowed difference of features between torch and the graph, relative for features above 1."""

_logger = logging.getLogger("evenhand")


def compile_backbone(backbone: Backbone, images: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a faster function from images to the same features; the network itself where there is none.

    Args:
        backbone: the network, in float32 on the CPU; of networks side by side each has a graph of its own.
        images: (N, C, S, S), normalised, to check the graph with.

    Returns:
        A graph of onnxruntime, if it is installed, the network can be exported, and its features of these images are
        within `MOST_DIFFERENT` of torch's. Otherwise the network.

    Example:
        >>> import torch
        >>> from evenhand.models.backbone import load_backbone
        >>> from evenhand.training.compiled_backbone import compile_backbone
        >>> images = torch.zeros(2, 3, 224, 224)
        >>> compile_backbone(load_backbone("lite0"), images)(images).shape
        torch.Size([2, 1280])
    """
    members = backbone.members()
    if len(members) > 1:
        networks = [compile_backbone(member, images) for member in members]
        return lambda batch: join_features([network(batch) for network in networks])
    try:
        compiled = _Graph(backbone, images)
        with torch.inference_mode():
            expected, found = backbone(images), compiled(images)
        if bool(((found - expected).abs() <= MOST_DIFFERENT * expected.abs().clamp(min=1)).all()):
            return compiled
        _logger.debug("%s: its graph gives other features than torch", backbone.name)
    except Exception as error:  # exporters and runtimes raise nearly anything; torch is always right
        _logger.debug("%s: no graph for onnxruntime (%s)", backbone.name, error)
    return backbone


class _Graph:
    """A session of onnxruntime, called as a network; one of several side by side prepares its images in torch."""

    def __init__(self, backbone: Backbone, images: Tensor) -> None:
        self.prepare = backbone.network.prepare if isinstance(backbone.network, Member) else None
        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        network = backbone if self.prepare is None else _Features(backbone.classifier).eval()
        content = _export(network, self._prepared(images))
        self.session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def __call__(self, images: Tensor) -> Tensor:
        return torch.from_numpy(self.session.run(None, {"images": self._prepared(images).contiguous().numpy()})[0])

    def _prepared(self, images: Tensor) -> Tensor:
        return images if self.prepare is None else self.prepare(images)


class _Features(nn.Module):
    def __init__(self, network: Classifier) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network.features(images)


def _export(network: nn.Module, images: Tensor) -> bytes:
    file = io.BytesIO()
    # The exporter that traces: it takes a second, the newer one ten. It prints to stdout, which may be a pipe.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (images.contiguous(),),
            file,  # type: ignore[arg-type] # the exporter that traces takes it
            input_names=["images"],
            output_names=["features"],
            dynamic_axes={"images": {0: "batch"}, "features": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
    return file.getvalue()
