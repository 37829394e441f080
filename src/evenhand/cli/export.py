"""`evenhand export`: write a trained model as ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.options import EnsembleOfRuns
from evenhand.cli.output import echo, show_chosen_model


def export(
    run: Annotated[Path, typer.Argument(help="A run, a comparison or a checkpoint.")],
    onnx: Annotated[Path, typer.Option("--onnx", help="ONNX file to write.")],
    ensemble: EnsembleOfRuns = False,
) -> None:
    """Export a model to ONNX.

    Its results are checked against torch on test images of each class.

    The graph takes normalised float images (N, C, S, S) with any N and returns logits (N, K). Class names and
    preprocessing are stored in the file's metadata. For a comparison, the model of the recommended objective is used.
    """
    from evenhand.training.export import export_onnx

    show_chosen_model(run, ensemble=ensemble)
    check = export_onnx(run, onnx, ensemble=ensemble)
    worst = max(check.differences, key=lambda name: check.differences[name])
    images = "test images" if check.real else "noise images (the run's own are missing)"
    classes = f"{len(check.differences)} {'class' if len(check.differences) == 1 else 'classes'}"
    echo(
        f"{onnx}: on {check.images} {images} of {classes}, logits differ from torch by at most "
        f"{check.largest:.2g} (class {worst!r})"
    )
