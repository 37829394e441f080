"""The paper: its numbers, its studies as plans, its tables, figures and claims, measured against published."""

from typing import TYPE_CHECKING

from evenhand.core.lazy import lazy_exports

if TYPE_CHECKING:
    from evenhand.paper._claims import check_claims as check_claims
    from evenhand.paper._figures import draw_paper_figure as draw_paper_figure
    from evenhand.paper._published import published_tables as published_tables
    from evenhand.paper._speed import measure_speed as measure_speed
    from evenhand.paper.api import ReproductionResult as ReproductionResult
    from evenhand.paper.api import reproduce as reproduce
    from evenhand.paper.planning import StudyOptions as StudyOptions
    from evenhand.paper.planning import jobs_of as jobs_of
    from evenhand.paper.planning import plan as plan
    from evenhand.paper.render import write_reproduction as write_reproduction
    from evenhand.paper.results import Reproduction as Reproduction
    from evenhand.paper.results import read_reproduction as read_reproduction
    from evenhand.paper.studies import Study as Study
    from evenhand.paper.studies import find_study as find_study
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
