"""`evenhand compare`: which objective serves the rare classes, and how sure we are."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli.options import (
    AllowOutside,
    ClassOrder,
    ConfigFile,
    DataRoot,
    DropSmall,
    Engine,
    Epochs,
    Flip,
    ImageSize,
    ImbalanceSpec,
    Jobs,
    ModelName,
    Pretrained,
    Quiet,
    RayAddress,
    Recipe,
    Settings,
    SkipBad,
    Source,
    Status,
    StemName,
    TrainedPart,
    Weights,
    start_flags,
)
from evenhand.cli.output import remark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenhand.experiments.grid.jobs import Failure, Job


def compare(
    source: Source = None,
    objectives: Annotated[
        str, typer.Option(help="Joined by commas; several settings of one are tuned on validation.")
    ] = "ce,focal,cot,cce",
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each objective for one look; without it, looks at 3, 5, 8 and 12 seeds.")
    ] = None,
    most_seeds: Annotated[int, typer.Option(help="Without --seeds: stop at so many, decided or not.")] = 12,
    margin: Annotated[float, typer.Option(help="In points: differences that are smaller do not matter.")] = 1.0,
    baseline: Annotated[str | None, typer.Option(help="What the others are compared with; ce if it is there.")] = None,
    imbalance: ImbalanceSpec = None,
    model: ModelName = None,
    recipe: Recipe = None,
    config: ConfigFile = None,
    settings: Settings = None,
    epochs: Epochs = None,
    data_root: DataRoot = None,
    image_size: ImageSize = None,
    flip: Flip = None,
    pretrained: Pretrained = None,
    trained: TrainedPart = None,
    weights: Weights = None,
    stem: StemName = None,
    class_order: ClassOrder = None,
    drop_small: DropSmall = None,
    skip_bad: SkipBad = None,
    allow_outside: AllowOutside = None,
    jobs: Jobs = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    out: Annotated[Path | None, typer.Option(help="The comparison's folder; under runs/ if not given.")] = None,
    status: Status = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print comparison.json instead of tables.")] = False,
) -> None:
    """Train with several objectives and seeds, and say which is better, by how much, and how sure that is.

    Seeds are added until everything is decided: it looks with 3, 5, 8 and 12 of them, and all looks together make at
    most 5% false claims. Finished runs are kept: the same command continues after an interruption.
    """
    from evenhand.cli.grid_progress import run_grid, show_failures, show_others, show_status
    from evenhand.core.errors import EvenhandError
    from evenhand.experiments.api import make_comparison, plan_comparison
    from evenhand.report.page import write_report
    from evenhand.training.defaults import make_run_config

    flags: dict[str, Any] = {
        "data__source": source,
        "data__root": None if data_root is None else str(data_root),
        "data__imbalance": imbalance,
        "data__image_size": image_size,
        "data__drop_small": drop_small,
        "data__skip_bad": skip_bad,
        "data__allow_outside": allow_outside,
        "data__class_order": class_order,
        "model__name": model,
        "model__pretrained": pretrained,
        "model__stem": stem,
        "augmentation__flip": flip,
        **start_flags(trained, weights),
        "epochs": epochs,
    }
    base, why = make_run_config(recipe, config, settings or (), **flags)
    plan = plan_comparison(
        base,
        objectives.split(","),
        out=out,
        seeds=seeds,
        most_seeds=most_seeds,
        margin=margin,
        baseline=baseline,
    )
    if status:
        grid = plan.next_jobs()
        show_status(grid, workers=jobs)
        show_others(grid, plan.folder)
        return
    command = shlex.join(["evenhand", *sys.argv[1:]])
    silent = quiet or as_json
    failures: list[Failure] = []  # of the last look

    def run(look: "Sequence[Job]") -> "list[Failure]":
        failures[:] = run_grid(look, workers=jobs, engine=engine, address=ray_address, command=command, quiet=silent)
        return failures

    if why and not silent:
        remark(f"comparing on {base.data.source}: {why}")
    try:
        comparison, written = make_comparison(plan, run, tell=(lambda _: None) if silent else remark)
        page = write_report([plan.folder])
    except EvenhandError:
        show_failures(failures)  # what failed may be why nothing can be compared
        raise
    if as_json:
        typer.echo(json.dumps(comparison.to_json(plan.folder), ensure_ascii=True))
    elif not quiet:
        typer.echo(comparison.table().rstrip())
        typer.echo(f"\nreport: {page}\ntables: {', '.join(str(path) for path in written)}")
    show_failures(failures)
    if failures:
        raise typer.Exit(1)
