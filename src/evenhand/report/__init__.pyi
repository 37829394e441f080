from . import figures as figures
from .figures.style import save_figure as save_figure
from .page import write_report as write_report
from .serving import serve as serve
