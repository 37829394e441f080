"""A run is a folder: its config, and the one reader and writer of each of its files; no torch."""

from typing import TYPE_CHECKING

from evenhand.core.lazy import lazy_exports

if TYPE_CHECKING:
    from evenhand.runs.config import Config as Config
    from evenhand.runs.config import load_config as load_config
    from evenhand.runs.config import make_config as make_config
    from evenhand.runs.config import read_recipe as read_recipe
    from evenhand.runs.config import save_config as save_config
    from evenhand.runs.folder import Run as Run
    from evenhand.runs.folder import runs_in as runs_in
    from evenhand.runs.record import RunRecord as RunRecord
    from evenhand.runs.record import make_record as make_record
    from evenhand.runs.record import read_record as read_record
    from evenhand.runs.record import records_in as records_in
    from evenhand.runs.record import write_record as write_record
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
