from .api import compare as compare
from .comparison._comparison import Comparison as Comparison
from .comparison._comparison import compare_runs as compare_runs
from .comparison._comparison import write_comparison as write_comparison
from .comparison._hypothesis_tests import judge_differences as judge_differences
from .grid.jobs import Job as Job
from .grid.jobs import make_grid as make_grid
from .grid.local import run_jobs as run_jobs
