"""`evenhand compare`: which objective is better for the rare classes, and with which confidence."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.options import (
    Costs,
    Engine,
    Jobs,
    Prior,
    Quiet,
    RayAddress,
    RunOptions,
    Slurm,
    Status,
    with_run_options,
)
from evenhand.cli.output import GUIDE, NO_SOURCE, begin, echo, echo_json, named, remark, show_kept


@with_run_options
def compare(
    options: RunOptions,
    objectives: Annotated[
        str | None,
        typer.Option(
            help="Objectives, joined by commas; default: ce, cce, balanced-softmax, with mixup, and the recipe's."
        ),
    ] = None,
    tune: Annotated[bool, typer.Option("--tune", help="Tune settings on validation; test the best.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Fixed number of seeds, analysed once.")] = None,
    most_seeds: Annotated[int, typer.Option(help="Maximum number of seeds without --seeds.")] = 12,
    margin: Annotated[float, typer.Option(help="Equivalence margin in percentage points.")] = 1.0,
    baseline: Annotated[str | None, typer.Option(help="Objective to compare with; ce if listed.")] = None,
    costs: Costs = None,
    prior: Prior = None,
    metric: Annotated[str, typer.Option(help="Recommend by this or cost.")] = "balanced_accuracy",
    jobs: Jobs = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    slurm: Slurm = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the comparison; default: under runs/.")] = None,
    status: Status = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print comparison.json instead of tables.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Do not escape spreadsheet formulas in CSV.")] = False,
) -> None:
    """Compare objectives over several seeds.

    Seeds are added until everything is decided: interim analyses with 3, 5, 8 and 12 seeds together make at most 5%
    false claims. Finished runs are kept: the same command continues after an interruption. Which objectives to try:
    `evenhand guide objectives`, and `evenhand objectives` lists their parts.

    With --costs, what the decisions of each objective cost for the class shares of --prior (default: uniform).
    """
    if not (quiet or as_json or status):
        source = options.flags["data__source"] or "the source of the config"
        source = NO_SOURCE if options.default_source else source
        begin(f"comparing {named(objectives or 'objectives')} on {named(source)}")
    from evenhand.cli.grid_progress import show_failures, show_ledger, show_others, show_status, watching_grid
    from evenhand.core.errors import EvenhandError
    from evenhand.experiments.api import default_objectives, make_comparison, plan_comparison
    from evenhand.experiments.comparison import cost_alpha, write_comparison
    from evenhand.experiments.comparison.costs import (
        check_costs,
        check_metric,
        cost_table,
        holds_for_shares,
        name_costs,
        with_costs,
    )
    from evenhand.experiments.comparison.unsure import unsure_sentence
    from evenhand.report.page import write_report
    from evenhand.runs.filenames import EXPLORATORY
    from evenhand.training.recipe_choice import make_run_config

    by = check_metric(metric, costs, seeds)
    if prior is not None and costs is None:
        raise EvenhandError("--prior is for costs; give --costs, or leave it out.")
    if not 0 <= margin < 100:
        raise EvenhandError(f"The margin is 0 to 100 points, got --margin {margin:g}.")
    base, why = make_run_config(options.recipe, options.config, options.settings, **options.flags)
    names = None if objectives is None else objectives.split(",")
    if costs is not None and names is None:
        names = [name for name in default_objectives(base) if holds_for_shares(base, name)]
        left_out = [name for name in default_objectives(base) if name not in names]
        if left_out and not (quiet or as_json or status):
            remark(f"without {', '.join(left_out)}, whose probabilities hold for no known class shares, as costs need")
    plan = plan_comparison(
        base,
        names,
        out=out,
        seeds=seeds,
        most_seeds=most_seeds,
        margin=margin / 100,
        baseline=baseline,
        tune=tune,
    )
    if costs is not None:
        check_costs(plan.base, plan.objectives, plan.table, costs, prior)
        plan = replace(plan, costs=name_costs(costs, prior))
    if status:
        grid = plan.next_jobs()
        show_status(grid, workers=jobs)
        show_others(grid, plan.folder)
        show_ledger(plan.folder)
        return
    silent = quiet or as_json
    if why and not silent:
        remark(f"comparing on {base.data.source}: {why}")
    most = f"up to {plan.most_runs} runs with {plan.planned[-1]} seeds; fewer where all is decided before"
    command = shlex.join(["evenhand", *sys.argv[1:]])
    with watching_grid(workers=jobs, engine=engine, note=most if seeds is None else "", quiet=silent) as progress:
        try:
            comparison, written = make_comparison(
                plan, engine=engine, workers=jobs, address=ray_address, slurm=slurm, command=command, callback=progress
            )
        except EvenhandError:
            show_failures(progress.failures)  # a failure may be why nothing can be compared
            raise
    if costs is not None:
        alpha = cost_alpha(plan, len(comparison.seeds))
        comparison = with_costs(comparison, costs, prior=prior, metric=by, level=alpha)
        written = write_comparison(comparison, plan.folder, raw=raw)
    elif raw:
        written = write_comparison(comparison, plan.folder, raw=True)
    kept = written[0].name == EXPLORATORY  # the comparison of the folder, next to which this one is written
    page = write_report([written[0]], out=written[0].with_suffix(".html") if kept else None)
    chosen = written[0] if kept else plan.folder
    if as_json:
        echo_json(comparison.to_json(plan.folder))
    elif not quiet:
        echo(comparison.table().rstrip())
        if comparison.costs is not None:
            echo(f"\n{cost_table(comparison.costs)}")
        echo(f"\n{unsure_sentence(comparison, chosen)}".rstrip())
        tables = ", ".join(path.name for path in written)
        echo(f"\n{GUIDE}\nuse {comparison.recommended}: evenhand predict {shlex.quote(str(chosen))} IMAGES")
        echo(f"comparison: {chosen}\nreport: {page}\ntables: {tables}, in the same folder")
        show_kept(plan.folder)
    show_failures(progress.failures)
    if progress.failures:
        raise typer.Exit(1)
