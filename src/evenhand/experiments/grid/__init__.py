"""Many runs: jobs, the engines that run them, their locks and progress."""

from typing import TYPE_CHECKING

from evenhand.core.lazy import lazy_exports

if TYPE_CHECKING:
    from evenhand.experiments.grid._on_ray import run_on_ray as run_on_ray
    from evenhand.experiments.grid.jobs import Failure as Failure
    from evenhand.experiments.grid.jobs import Job as Job
    from evenhand.experiments.grid.jobs import Status as Status
    from evenhand.experiments.grid.jobs import make_grid as make_grid
    from evenhand.experiments.grid.jobs import status as status
    from evenhand.experiments.grid.local import default_workers as default_workers
    from evenhand.experiments.grid.local import run_jobs as run_jobs
    from evenhand.experiments.grid.progress import GridProgress as GridProgress
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
