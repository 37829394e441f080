"""Figures, drawn from predictions and tables; none needs a model."""

from evenhand.report.figures.calibration import CALIBRATION, reliability
from evenhand.report.figures.confusion import CONFUSION, confusion_matrices
from evenhand.report.figures.costs import COSTS, cost_by_objective
from evenhand.report.figures.curves import CURVES, complement_entropy_curves, error_curves, history_curves
from evenhand.report.figures.distributions import (
    DISTRIBUTION,
    class_distribution,
    class_distributions,
    paper_distributions,
)
from evenhand.report.figures.embedding import EMBEDDING, draw_embeddings, embed, feature_embeddings
from evenhand.report.figures.errors import class_similarity, error_study, sort_errors
from evenhand.report.figures.overview import overview, overview_image
from evenhand.report.figures.recall import RECALL, recall_by_count
from evenhand.report.figures.recall_difference import DIFFERENCE, recall_difference
from evenhand.report.figures.style import FORMATS, GROUP_COLOURS, PALETTE, figure_bytes, save_figure
from evenhand.report.figures.unsure import UNSURE, coverage_by_class
from evenhand.report.figures.verdict import VERDICT, verdict_picture

__all__ = [
    "FORMATS",
    "GROUP_COLOURS",
    "PAGE",
    "PALETTE",
    "class_distribution",
    "class_distributions",
    "class_similarity",
    "complement_entropy_curves",
    "confusion_matrices",
    "cost_by_objective",
    "coverage_by_class",
    "draw_embeddings",
    "embed",
    "error_curves",
    "error_study",
    "feature_embeddings",
    "figure_bytes",
    "history_curves",
    "overview",
    "overview_image",
    "paper_distributions",
    "recall_by_count",
    "recall_difference",
    "reliability",
    "save_figure",
    "sort_errors",
    "verdict_picture",
]

PAGE = (VERDICT, COSTS, DISTRIBUTION, RECALL, DIFFERENCE, CONFUSION, CALIBRATION, UNSURE, *CURVES, EMBEDDING)
"""The figures of the report, in the order of the page."""
