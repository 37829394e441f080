"""The cost of decisions with each objective."""

import numpy as np
from matplotlib.figure import Figure

from evenhand.report._report_data import ReportData
from evenhand.report.figures.page_figure import PageFigure, Shown
from evenhand.report.figures.style import PALETTE, clear_frame, heading, legend_below, literal, new_figure, widest
from evenhand.runs.comparison_schemas import CostComparison


def cost_by_objective(costs: CostComparison) -> Figure:
    """Draw what decisions cost per image with each objective: realised, expected by the model, and without costs.

    Args:
        costs: of a comparison.

    Example:
        >>> from evenhand.report.figures.costs import cost_by_objective
        >>> from evenhand.runs.comparison_schemas import CostComparison, CostRow
        >>> row = CostRow(objective="ce", realised=1.5, spread=0.1, expected=1.2, most_probable=2.0)
        >>> costs = CostComparison(prior="uniform", metric="cost", matrix=[[0, 1], [9, 0]], rows=[row], verdict="")
        >>> [text.get_text() for text in cost_by_objective(costs).axes[0].get_yticklabels()]
        ['ce']
    """
    labels = [literal(row.objective) for row in costs.rows]
    figure = new_figure(4.5 + widest(labels), 1.6 + 0.3 * len(labels))
    axes, places = figure.subplots(), np.arange(len(labels))
    kinds = {"realised": "o", "expected": "s", "most_probable": "^"}
    handles = []
    for (kind, marker), colour in zip(kinds.items(), PALETTE, strict=False):
        values = [getattr(row, kind) for row in costs.rows]
        handles.append(axes.scatter(values, places, marker=marker, s=26, color=colour, zorder=3))
    for place, row in zip(places, costs.rows, strict=True):
        if row.spread is not None:
            axes.hlines(place, row.realised - row.spread, row.realised + row.spread, color=PALETTE[0], linewidth=1.0)
    axes.set_yticks(places, labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_xlabel(
        f"cost per image for the class shares {literal(costs.prior)}; line: ± standard deviation", fontsize=9
    )
    clear_frame(axes, "x")
    heading(axes, "cost of decisions", 3.5, size=9)
    legend_below(figure, handles, ["realised on test images", "expected by the model", "most probable class instead"])
    return figure


def _on_page(data: ReportData, _: str) -> Shown:
    assert data.comparison is not None
    assert data.comparison.costs is not None
    costs = data.comparison.costs
    listed = "; ".join(f"{row.objective} {row.realised:.4g}, expected {row.expected:.4g}" for row in costs.rows)
    return Shown(cost_by_objective(costs), f"Cost of decisions per image: {listed}. {costs.verdict}")


COSTS = PageFigure(
    "costs",
    "results",
    _on_page,
    condition=lambda data: data.comparison is not None and data.comparison.costs is not None,
    caption="Decisions of least expected cost; expected by the model's probabilities, realised on test images.",
)
