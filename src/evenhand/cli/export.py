"""`evenhand export`: write a trained model as ONNX, or as a folder with a model card."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli.options import Costs, Coverage, EnsembleOfRuns, MinPrecision, Prior
from evenhand.cli.output import echo, remark, show_chosen_model

if TYPE_CHECKING:
    from evenhand.training.export import Check


def export(
    run: Annotated[Path, typer.Argument(help="A run, a comparison or a checkpoint.")],
    onnx: Annotated[Path | None, typer.Option("--onnx", help="ONNX file to write.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="New folder for weights, ONNX and model card.")
    ] = None,
    licence: Annotated[str | None, typer.Option("--license", help="Licence in the model card, such as mit.")] = None,
    ensemble: EnsembleOfRuns = False,
    costs: Costs = None,
    prior: Prior = None,
    coverage: Coverage = None,
    min_precision: MinPrecision = None,
) -> None:
    """Export a model to ONNX, or to a folder with a model card.

    The results of an ONNX file are checked against torch on test images of each class. Its graph takes normalised float
    images (N, C, S, S) with any N and returns logits (N, K). Class names and preprocessing are stored in the file's
    metadata. For a comparison, the model of the recommended objective is used. `evenhand guide model-folder` shows how
    to upload a folder.

    With --costs, the exported model decides for the class of least expected cost for the class shares of --prior
    (default: uniform); with --coverage it answers with sets of classes, with --min-precision with a class or "unsure".
    A folder always keeps what these options need, so that predict takes them later too; the metadata of an ONNX file
    has the costs and thresholds, which examples/onnx_predict.py shows how to use.
    """
    from evenhand.core.errors import EvenhandError

    if onnx is None and folder is None:
        raise EvenhandError("Nothing to export; give --onnx FILE or --folder FOLDER.")
    if folder is None and licence is not None:
        raise EvenhandError("--license is written into the model card of a folder; give --folder too.")
    if folder is not None and ensemble:
        raise EvenhandError("A folder holds one run of a comparison; leave out --ensemble, or give --onnx alone.")
    show_chosen_model(run, ensemble=ensemble, prior=prior or (None if costs is None else "uniform"))
    decided: dict[str, Any] = {
        "costs": costs,
        "prior": prior,
        "coverage": coverage,
        "min_precision": min_precision,
    }
    if onnx is not None:
        from evenhand.training.export import export_onnx

        written_before = onnx.is_file()
        _show(str(onnx), export_onnx(run, onnx, ensemble=ensemble, **decided))
        if written_before:
            remark(f"replaced {onnx}")
    if folder is not None:
        from evenhand.core.extras import how_to_install
        from evenhand.training.model_folder import export_folder

        written = export_folder(run, folder, licence=licence, **decided)
        echo(f"{folder}: {', '.join(written.files)}")
        if written.onnx is None:
            echo(f"without ONNX, whose packages are not installed: {how_to_install('onnx')}")
        else:
            _show("model.onnx", written.onnx)


def _show(name: str, check: "Check") -> None:
    worst = max(check.differences, key=lambda each: check.differences[each])
    images = "test images" if check.real else "noise images (the run's own are missing)"
    classes = f"{len(check.differences)} {'class' if len(check.differences) == 1 else 'classes'}"
    echo(
        f"{name}: on {check.images} {images} of {classes}, logits differ from torch by at most "
        f"{check.largest:.2g} (class {worst!r})"
    )
