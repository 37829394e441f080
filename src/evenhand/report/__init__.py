"""Report: figures, the page and the local server, from run folders alone."""

from typing import TYPE_CHECKING

from evenhand.core.lazy import lazy_exports

if TYPE_CHECKING:
    from evenhand.report.figures.style import save_figure as save_figure
    from evenhand.report.page import write_report as write_report
    from evenhand.report.serving import serve as serve
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
