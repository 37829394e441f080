from . import figures as figures
from .figures.style import save_figure as save_figure
from .label_page import write_label_page as write_label_page
from .page import write_report as write_report
from .serving import serve as serve
