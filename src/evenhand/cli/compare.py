"""`evenhand compare`: which objective serves the rare classes, and how sure we are."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli.options import Engine, Jobs, Quiet, RayAddress, RunOptions, Status, with_run_options
from evenhand.cli.output import GUIDE, begin, echo, echo_json, remark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenhand.experiments.grid.jobs import Failure, Job


@with_run_options
def compare(
    options: RunOptions,
    objectives: Annotated[
        str,
        typer.Option(help="Joined by commas; all of them stand in the table. `evenhand objectives` lists the parts."),
    ] = "ce,cce,balanced-softmax,balanced-softmax+mixup",
    tune: Annotated[
        bool, typer.Option("--tune", help="Try a few settings of each, pick on validation, test what was picked once.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each objective for one look; without it, looks at 3, 5, 8 and 12 seeds.")
    ] = None,
    most_seeds: Annotated[int, typer.Option(help="Without --seeds: stop at so many, decided or not.")] = 12,
    margin: Annotated[float, typer.Option(help="In points: differences that are smaller do not matter.")] = 1.0,
    baseline: Annotated[str | None, typer.Option(help="What the others are compared with; ce if it is there.")] = None,
    jobs: Jobs = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    out: Annotated[Path | None, typer.Option(help="The comparison's folder; under runs/ if not given.")] = None,
    status: Status = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print comparison.json instead of tables.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write names into CSV as they are, even where a spreadsheet obeys them.")
    ] = False,
) -> None:
    """Train with several objectives and seeds, and say which is better, by how much, and how sure that is.

    Seeds are added until everything is decided: it looks with 3, 5, 8 and 12 of them, and all looks together make at
    most 5% false claims. Finished runs are kept: the same command continues after an interruption. Which objectives
    are worth a try: docs/which-objective.md.
    """
    if not (quiet or as_json or status):
        begin(f"comparing {objectives} on {options.flags['data__source'] or 'the source of the config'}")
    from evenhand.cli.grid_progress import run_grid, show_failures, show_others, show_status
    from evenhand.core.errors import EvenhandError
    from evenhand.experiments.api import make_comparison, plan_comparison
    from evenhand.experiments.comparison import write_comparison
    from evenhand.report.page import write_report
    from evenhand.training.recipe_choice import make_run_config

    if not 0 <= margin < 100:
        raise EvenhandError(f"A margin is 0 to 100 points, got --margin {margin:g}.")
    base, why = make_run_config(options.recipe, options.config, options.settings, **options.flags)
    plan = plan_comparison(
        base,
        objectives.split(","),
        out=out,
        seeds=seeds,
        most_seeds=most_seeds,
        margin=margin / 100,
        baseline=baseline,
        tune=tune,
    )
    if status:
        grid = plan.next_jobs()
        show_status(grid, workers=jobs)
        show_others(grid, plan.folder)
        return
    command = shlex.join(["evenhand", *sys.argv[1:]])
    silent = quiet or as_json
    failures: list[Failure] = []

    def run(look: "Sequence[Job]") -> "list[Failure]":
        failed = run_grid(look, workers=jobs, engine=engine, address=ray_address, command=command, quiet=silent)
        failures[:] = [*(each for each in failures if each.job not in look), *failed]
        return failed

    if why and not silent:
        remark(f"comparing on {base.data.source}: {why}")
    try:
        comparison, written = make_comparison(plan, run, tell=(lambda _: None) if silent else remark)
        if raw:
            written = write_comparison(comparison, plan.folder, raw=True)
        page = write_report([plan.folder])
    except EvenhandError:
        show_failures(failures)  # what failed may be why nothing can be compared
        raise
    if as_json:
        echo_json(comparison.to_json(plan.folder))
    elif not quiet:
        echo(comparison.table().rstrip())
        echo(f"\n{GUIDE}\nreport: {page}\ntables: {', '.join(str(path) for path in written)}")
    show_failures(failures)
    if failures:
        raise typer.Exit(1)
