"""`evenhand compare`: which objective serves the rare classes, and how sure we are."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli.options import (
    AllowOutside,
    ConfigFile,
    DataRoot,
    DropSmall,
    Engine,
    Epochs,
    ImageSize,
    ImbalanceSpec,
    Jobs,
    ModelName,
    Quiet,
    RayAddress,
    Recipe,
    Settings,
    SkipBad,
    Source,
    Status,
)
from evenhand.core.text import slug

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenhand.experiments.grid.jobs import Failure, Job
    from evenhand.runs.config import Config


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
    recipe: Recipe = "small",
    config: ConfigFile = None,
    settings: Settings = None,
    epochs: Epochs = None,
    data_root: DataRoot = None,
    image_size: ImageSize = None,
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
    from evenhand.cli.grid_progress import run_grid, show_failures, show_status
    from evenhand.core.errors import EvenhandError
    from evenhand.experiments.comparison.comparison import write_comparison
    from evenhand.experiments.comparison.sequence import Plan, compare_in_looks
    from evenhand.experiments.grid.unchanged import refuse_changed_source
    from evenhand.report.page import write_report
    from evenhand.runs.config import make_config
    from evenhand.runs.folder import runs_in
    from evenhand.training.objectives import canonical_objective

    flags: dict[str, Any] = {
        "data__source": source,
        "data__root": None if data_root is None else str(data_root),
        "data__imbalance": imbalance,
        "data__image_size": image_size,
        "data__drop_small": drop_small,
        "data__skip_bad": skip_bad,
        "data__allow_outside": allow_outside,
        "model__name": model,
        "epochs": epochs,
    }
    base = make_config(recipe, config, settings or (), **flags)
    for name, value in (("--seeds", seeds), ("--most-seeds", most_seeds)):
        if value is not None and value < 1:
            raise EvenhandError(f"A comparison needs at least 1 seed, got {name} {value}.")
    if not 0 <= margin < 100:
        raise EvenhandError(f"A margin is 0 to 100 points, got --margin {margin:g}.")
    named = [canonical_objective(spec) for spec in objectives.split(",")]
    if len(set(named)) < 2:
        raise EvenhandError(f"A comparison needs at least 2 objectives, got {objectives!r}.")
    chosen = None if baseline is None else canonical_objective(baseline)
    if chosen is not None and chosen not in named and chosen not in {name.split(":")[0] for name in named}:
        raise EvenhandError(f"The baseline {baseline!r} is not among the objectives {objectives!r}.")
    folder = out or _default_folder(base.data.source, base.data.imbalance, base.model.name)
    plan = Plan(folder, base, tuple(objectives.split(",")), chosen, seeds, most_seeds, margin / 100)
    grid = plan.next_jobs()
    if status:
        show_status(grid, workers=jobs)
        known = {job.folder.name for job in grid}
        others = [run for run in runs_in(folder) if run.path.name not in known]
        if others:
            runs = "1 run" if len(others) == 1 else f"{len(others)} runs"
            typer.echo(f"{folder} also holds {runs} of other settings; give those settings to see how far they are")
        return
    command = shlex.join(["evenhand", *sys.argv[1:]])
    failures: list[Failure] = []  # of the last look

    def run(look: "Sequence[Job]") -> "list[Failure]":
        refuse_changed_source(look)
        failures[:] = run_grid(
            look, workers=jobs, engine=engine, address=ray_address, command=command, quiet=quiet or as_json
        )
        return failures

    def tell(line: str) -> None:
        if not quiet and not as_json:
            typer.echo(f"evenhand: {line}", err=True)

    try:
        comparison, _ = compare_in_looks(plan, run, tell=tell)
        told = [_left_out(failure.job.config, failure.reason) for failure in failures]
        comparison = replace(comparison, notes=[*told, *comparison.notes])
        _tell_replaced(folder / "comparison.json", comparison.objectives, comparison.seeds)
        written = write_comparison(comparison, folder)
        page = write_report([folder])
    except EvenhandError:
        show_failures(failures)  # what failed may be why nothing can be compared
        raise
    if as_json:
        typer.echo(json.dumps(comparison.to_json(folder), ensure_ascii=True))
    elif not quiet:
        typer.echo(comparison.table().rstrip())
        typer.echo(f"\nreport: {page}\ntables: {', '.join(str(path) for path in written)}")
    show_failures(failures)
    if failures:
        raise typer.Exit(1)


def _left_out(config: "Config", reason: str) -> str:
    return f"{config.objective} with seed {config.seed} failed and is left out: {reason}"


def _tell_replaced(path: Path, objectives: list[str], seeds: list[int]) -> None:
    """Say that the tables of another comparison give way; its runs are kept, so it can be made again at once."""
    try:
        before = json.loads(path.read_text("utf-8"))
        named = f"{', '.join(before['objectives'])} with {len(before['seeds'])} seeds"
        same = before["objectives"] == objectives and before["seeds"] == seeds
    except (OSError, ValueError, LookupError, TypeError):
        return
    if not same:
        typer.echo(f"evenhand: the comparison of {named} in {path.parent} is replaced; its runs are kept", err=True)


def _default_folder(source: str, imbalance: str, model: str) -> Path:
    name = Path(source).name if "/" in source else source
    return Path("runs") / slug("compare", name, *([] if imbalance == "none" else [imbalance]), model)
