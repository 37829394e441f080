"""The cost of the decisions of each objective, at given costs and class shares."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.text import text_table
from evenhand.data.table import SampleTable
from evenhand.experiments.comparison._comparison import ComparisonResult
from evenhand.experiments.comparison._hypothesis_tests import image_errors, judge_differences
from evenhand.experiments.comparison.verdict import listed
from evenhand.metrics.costs import Cost, cost_of_decisions, expected_costs, realised_costs
from evenhand.metrics.predictions import Predictions
from evenhand.objectives.objective import build_objective
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.runs.comparison_schemas import CostComparison, CostRow, Difference
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.statistics.paired import LEVEL
from evenhand.training.cost_files import read_costs
from evenhand.training.prior import UNIFORM, change_prior, read_shares

COST = "cost"


def check_costs(
    base: Config, objectives: Sequence[str], table: SampleTable, costs: Path | str, prior: str | None = None
) -> None:
    """Refuse what :func:`with_costs` would refuse, before anything is trained.

    Args:
        base: the config of all runs, but for the objective.
        objectives: that are compared.
        table: the source.
        costs: a file of costs.
        prior: the class shares where the model is used.
    """
    if not base.data.drop_small:  # which leaves out classes that are not known yet
        read_costs(costs, table.class_names)
        if prior not in (None, "train", *UNIFORM):
            read_shares(Path(prior), table.class_names)
    for name in objectives:
        if not holds_for_shares(base, name):
            raise EvenhandError(
                f"The probabilities of {name} hold for no known class shares, so its decisions by cost cannot be "
                "compared; leave it out of --objectives."
            )


def name_costs(costs: Path | str, prior: str | None = None) -> str:
    """Return a name for costs and class shares in the ledger of a folder: a part of the hash of their files."""
    given = prior or UNIFORM[0]
    shares = given.encode() if given in ("train", *UNIFORM) else Path(given).read_bytes()
    return hashlib.sha256(Path(costs).read_bytes() + b"\n" + shares).hexdigest()[:12]


def holds_for_shares(base: Config, objective: str) -> bool:
    """Return whether the probabilities of an objective hold for known class shares, as decisions by cost need.

    Example:
        >>> from evenhand.experiments.comparison.costs import holds_for_shares
        >>> from evenhand.runs.config import make_config
        >>> [holds_for_shares(make_config(), name) for name in ("ce", "balanced-softmax", "cce", "focal")]
        [True, True, False, False]
    """
    config = base.model_copy(update={"objective": ObjectiveSpec(objective)})
    weights = None if config.class_weights is None else (1.0,) * 10
    trained = build_objective(config.objective.training, counts=[2] * 10, epochs=config.epochs, class_weights=weights)
    return trained.prior() is not None


def with_costs(
    comparison: ComparisonResult,
    costs: Path | str,
    *,
    prior: str | None = None,
    metric: Literal["balanced_accuracy", "cost"] = "balanced_accuracy",
    level: float = LEVEL,
) -> ComparisonResult:
    """Add what the decisions of least expected cost cost per image with each objective.

    Differences from the baseline are paired by seed, and their intervals include the sampling of test images, as those
    of balanced accuracy do. All claims about costs together err in at most 5% of comparisons, or at `level`.

    Args:
        comparison: of finished runs.
        costs: a file, as `read_costs` takes it.
        prior: the class shares where the model is used: `uniform` (None), `train` or a file.
        metric: `cost` recommends by cost.
        level: the significance level of all claims about costs together; 0: they are exploratory.

    Raises:
        EvenhandError: the file does not fit, or the probabilities of an objective hold for no known class shares.
    """
    runs = {
        name: [Run(run.folder) for run in comparison.runs if run.objective == name and run.picked]
        for name in comparison.objectives
    }
    first = runs[comparison.baseline][0]
    matrix = read_costs(costs, first.predictions.class_names)
    found: dict[str, list[tuple[Cost, Predictions, NDArray[np.float64]]]] = {}
    top = 0.0
    for name, members in runs.items():
        for run in members:
            change = change_prior(run, prior or "uniform")
            used = replace(run.predictions, adjustment=change.added_to_logits)
            p = np.exp(used.log_probabilities())
            decided = expected_costs(p, matrix).argmin(1)
            each = realised_costs(used.targets, decided, matrix) * (change.shares * len(matrix))[used.targets]
            cost = cost_of_decisions(p, used.targets, matrix, change.shares)
            found.setdefault(name, []).append((cost, used, each))
            top = max(top, float((change.shares[:, None] * len(matrix) * np.abs(matrix)).max()))
    differences = _differences(found, comparison.baseline, top, first.config.data.test_fraction, level or LEVEL)
    rows = [_row(name, [cost for cost, _, _ in own], differences.get(name), top) for name, own in found.items()]
    if not level:
        rows = [row.model_copy(update={"outcome": "exploratory"}) if row.outcome else row for row in rows]
    chosen, verdict = _recommended(rows, comparison.baseline, len(comparison.seeds))
    shown = verdict.startswith("Use")
    if not level:
        why = "Exploratory, as no analysis in this folder was planned with these costs"
        verdict = f"{why}: {verdict[0].lower()}{verdict[1:]}"
    added = CostComparison(
        prior=prior or "uniform", metric=metric, matrix=matrix.tolist(), rows=rows, verdict=verdict, level=level
    )
    if metric != COST:
        return comparison.model_copy(update={"costs": added})
    *sentences, last = comparison.verdicts
    note = f"Recommended by cost, not by balanced accuracy, by which: {last}"
    changes = {
        "costs": added,
        "recommended": chosen,
        "certainty": "shown" if shown and level else "undecided",
        "verdicts": [*sentences, verdict],
        "notes": [note, *comparison.notes],
        "ensemble": comparison.ensemble if chosen == comparison.recommended else None,
    }
    return comparison.model_copy(update=changes)


def _recommended(rows: Sequence[CostRow], baseline: str, seeds: int) -> tuple[str, str]:
    """Return the objective to use by cost, and why: of those shown to cost less the cheapest, or the lowest mean."""
    better = [row for row in rows if row.outcome.startswith("better") and not row.outcome.endswith("only")]
    best = min(better or rows, key=lambda row: row.realised)
    size = ""
    if best.difference is not None:
        ends = "" if best.low is None or best.high is None else f" [{best.low:.3g}, {best.high:.3g}]"
        size = f", {best.difference:+.3g}{ends} against {baseline}"
    after = f" per image{size}, {seeds} seed{'s' * (seeds != 1)}"
    if not better:
        others = [row for row in rows if row is not best]
        if best.objective == baseline and others and all(row.outcome == "worse" for row in others):
            return baseline, f"Use {baseline}: it costs {best.realised:.4g}{after}, and all others more."
        return best.objective, f"Undecided by cost; {best.objective} has the lowest mean, {best.realised:.4g}{after}."
    names = [row.objective for row in better if row is not best]
    untested = f" Which of it and {listed(names)} costs less was not tested." if names else ""
    return best.objective, f"Use {best.objective}: its decisions cost {best.realised:.4g}{after}.{untested}"


def cost_table(costs: CostComparison) -> str:
    """Return the costs as a table for a terminal."""
    cells = [["cost per image", "realised", "expected", "most probable", "diff.", "95% CI", "outcome"]]
    for row in costs.rows:
        spread = "" if row.spread is None else f" ± {row.spread:.2g}"
        ends = "" if row.low is None or row.high is None else f"[{row.low:.3g}, {row.high:.3g}]"
        difference = "" if row.difference is None else f"{row.difference:+.3g}"
        cells.append(
            [
                row.objective,
                f"{row.realised:.4g}{spread}",
                f"{row.expected:.4g}",
                f"{row.most_probable:.4g}",
                difference,
                ends,
                row.outcome,
            ]
        )
    alpha = f" All claims about costs have an alpha of {costs.level:.2%}." if costs.level else ""
    about = f"For the class shares {costs.prior}; most probable: without costs in the decision.{alpha} {costs.verdict}"
    return "\n".join([*text_table(cells, left=(0, 6)), about])


def _differences(
    found: Mapping[str, Sequence[tuple[Cost, Predictions, NDArray[np.float64]]]],
    baseline: str,
    top: float,
    test_fraction: float,
    level: float,
) -> dict[str, Difference]:
    """Return the tested differences, in units of the largest cost; positive where an objective costs less."""
    if len(found) < 2 or top == 0:
        return {}
    every = np.unique(np.concatenate([used.ids for own in found.values() for _, used, _ in own]))
    targets = np.zeros(len(every), np.int64)
    groups = None if found[baseline][0][1].groups is None else np.empty(len(every), dtype=object)
    saved: dict[str, NDArray[np.float64]] = {}
    for name, own in found.items():
        saved[name] = np.full((len(own), len(every)), np.nan)
        for row, (_, used, each) in zip(saved[name], own, strict=True):
            places = np.searchsorted(every, used.ids)
            row[places], targets[places] = 1 - each / top, used.targets
            if groups is not None:
                groups[places] = used.groups
    if len(next(iter(saved.values()))) < 2:
        return {}
    values = {name: [1 - cost.realised / top for cost, _, _ in own] for name, own in found.items()}
    counts = np.rint(np.mean([used.train_counts for _, used, _ in found[baseline]], axis=0)).astype(np.int64)
    errors = image_errors(
        saved,
        baseline,
        targets,
        {COST: None},
        None if groups is None else groups.astype(str),
        train_counts=counts,
        test_fraction=test_fraction,
    )
    tested = judge_differences({COST: values}, baseline, images=errors, level=level, margin=0.0)
    return {each.objective: each for each in tested}


def _row(name: str, costs: Sequence[Cost], difference: Difference | None, top: float) -> CostRow:
    realised = [cost.realised for cost in costs]
    row = CostRow(
        objective=name,
        realised=float(np.mean(realised)),
        spread=float(np.std(realised, ddof=1)) if len(realised) > 1 else None,
        expected=float(np.mean([cost.expected for cost in costs])),
        most_probable=float(np.mean([cost.most_probable for cost in costs])),
    )
    if difference is None:
        return row
    low = None if difference.high is None else -difference.high * top
    high = None if difference.low is None else -difference.low * top
    outcome = difference.outcome
    changes = {"difference": -difference.mean * top, "low": low, "high": high, "p": difference.p, "outcome": outcome}
    return row.model_copy(update=changes)


def check_metric(metric: str, costs: Path | None, seeds: int | None) -> Literal["balanced_accuracy", "cost"]:
    """Return the metric that a comparison recommends by; refuse one that the options do not allow."""
    if metric not in ("balanced_accuracy", COST):
        raise EvenhandError(f"--metric takes balanced_accuracy or cost, got {metric!r}.")
    if metric == COST and costs is None:
        raise EvenhandError("--metric cost needs a file of costs; give --costs.")
    if metric == COST and seeds is None:
        raise EvenhandError("--metric cost is tested once, with a fixed number of seeds; give --seeds.")
    return "cost" if metric == COST else "balanced_accuracy"
