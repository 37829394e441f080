"""`evenhand export`: write a trained model as ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.options import Costs, EnsembleOfRuns, Prior
from evenhand.cli.output import echo, show_chosen_model


def export(
    run: Annotated[Path, typer.Argument(help="A run, a comparison or a checkpoint.")],
    onnx: Annotated[Path, typer.Option("--onnx", help="ONNX file to write.")],
    ensemble: EnsembleOfRuns = False,
    costs: Costs = None,
    prior: Prior = None,
) -> None:
    """Export a model to ONNX.

    Its results are checked against torch on test images of each class.

    The graph takes normalised float images (N, C, S, S) with any N and returns logits (N, K). Class names and
    preprocessing are stored in the file's metadata. For a comparison, the model of the recommended objective is used.

    With --costs, these are stored too, and the logits are for the class shares of --prior (default: uniform);
    examples/onnx_predict.py then answers with the class of least expected cost.
    """
    from evenhand.training.export import export_onnx

    show_chosen_model(run, ensemble=ensemble, prior=prior or (None if costs is None else "uniform"))
    check = export_onnx(run, onnx, ensemble=ensemble, costs=costs, prior=prior)
    worst = max(check.differences, key=lambda name: check.differences[name])
    images = "test images" if check.real else "noise images (the run's own are missing)"
    classes = f"{len(check.differences)} {'class' if len(check.differences) == 1 else 'classes'}"
    echo(
        f"{onnx}: on {check.images} {images} of {classes}, logits differ from torch by at most "
        f"{check.largest:.2g} (class {worst!r})"
    )
