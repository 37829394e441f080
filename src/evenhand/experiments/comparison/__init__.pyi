from ._comparison import Comparison as Comparison
from ._comparison import ComparisonResult as ComparisonResult
from ._comparison import Difference as Difference
from ._comparison import compare_runs as compare_runs
from ._comparison import write_comparison as write_comparison
from ._hypothesis_tests import judge_differences as judge_differences
from ._sequential import cost_alpha as cost_alpha
