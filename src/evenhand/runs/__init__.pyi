from .config import Config as Config
from .config import load_config as load_config
from .config import make_config as make_config
from .config import read_recipe as read_recipe
from .config import save_config as save_config
from .run import Run as Run
from .run import runs_in as runs_in
from .summary import summarise as summarise
