"""Imported once by the fork server of a grid; if the imports fail, the server ends, so that the grid does not wait."""

import faulthandler
import os
import sys

IMPORT_TIMEOUT = 100.0
"""Seconds. When memory is short, loading a library may never end."""

_stderr = os.dup(2) if sys.stderr else None  # it may be closed
with open(os.devnull, "wb") as _nowhere:
    os.dup2(_nowhere.fileno(), 2)  # libraries that abort write to it; the grid reports that the server ended
    faulthandler.dump_traceback_later(IMPORT_TIMEOUT, exit=True, file=_nowhere)
    try:
        from PIL import Image

        import evenhand.experiments.grid.local  # noqa: F401

        Image.init()  # imports all formats once instead of in each process
    except BaseException:
        os._exit(1)
    faulthandler.cancel_dump_traceback_later()
if _stderr is not None:
    os.dup2(_stderr, 2)
    os.close(_stderr)
