"""Finished runs set side by side: paired statistics, verdict, tables."""

from typing import TYPE_CHECKING

from evenhand.core.lazy import lazy_exports

if TYPE_CHECKING:
    from evenhand.experiments.comparison._comparison import Comparison as Comparison
    from evenhand.experiments.comparison._comparison import compare_runs as compare_runs
    from evenhand.experiments.comparison._comparison import write_comparison as write_comparison
    from evenhand.experiments.comparison._judging import judge_differences as judge_differences
    from evenhand.experiments.comparison.verdict import Difference as Difference
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
