from .objective import Objective as Objective
from .objective import build_objective as build_objective
from .registry import PartInfo as PartInfo
from .registry import describe_objectives as describe_objectives
from .registry import list_objectives as list_objectives
from .registry import tuning_candidates as tuning_candidates
from .spec import ObjectiveSpec as ObjectiveSpec
from .spec import parse_stage as parse_stage
