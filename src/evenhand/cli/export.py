"""`evenhand export`: a trained model for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.options import EnsembleOfRuns
from evenhand.cli.output import echo, tell_which_model


def export(
    run: Annotated[Path, typer.Argument(help="A run's folder, a file of weights, or a comparison's folder.")],
    onnx: Annotated[Path, typer.Option("--onnx", help="The ONNX file to write.")],
    ensemble: EnsembleOfRuns = False,
) -> None:
    """Write a trained model as ONNX, checked against torch on test images of each class.

    The graph takes normalised float images (N, C, S, S) with any N and returns logits (N, K). Class names and all that
    is done to an image before stand in the file's metadata. Of a comparison it is the recommended objective's model.
    """
    from evenhand.training.export import export_onnx

    tell_which_model(run, ensemble=ensemble)
    check = export_onnx(run, onnx, ensemble=ensemble)
    worst = max(check.differences, key=lambda name: check.differences[name])
    images = "test images" if check.real else "images of noise (the run's own are not at hand)"
    classes = f"{len(check.differences)} {'class' if len(check.differences) == 1 else 'classes'}"
    echo(
        f"{onnx}: on {check.images} {images} of {classes}, its logits differ from torch's by at most "
        f"{check.largest:.2g} (class {worst!r})"
    )
