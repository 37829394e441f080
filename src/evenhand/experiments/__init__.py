"""Experiments: many runs, compared with paired statistics."""

from typing import TYPE_CHECKING

from evenhand.core.lazy import lazy_exports

if TYPE_CHECKING:
    from evenhand.experiments.api import compare as compare
    from evenhand.experiments.comparison._comparison import Comparison as Comparison
    from evenhand.experiments.comparison._comparison import compare_runs as compare_runs
    from evenhand.experiments.comparison._comparison import write_comparison as write_comparison
    from evenhand.experiments.comparison._judging import judge_differences as judge_differences
    from evenhand.experiments.grid.jobs import Job as Job
    from evenhand.experiments.grid.jobs import make_grid as make_grid
    from evenhand.experiments.grid.local import run_jobs as run_jobs
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
