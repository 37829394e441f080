"""Imported once by the fork server of a grid; if the imports fail, the server ends, so that the grid does not wait."""

import faulthandler
import os

IMPORT_TIMEOUT = 100.0
"""Seconds. When memory is short, loading a library may never end."""

with open(os.devnull, "wb") as _nowhere:
    faulthandler.dump_traceback_later(IMPORT_TIMEOUT, exit=True, file=_nowhere)
    try:
        from PIL import Image

        import evenhand.experiments.grid.local  # noqa: F401

        Image.init()  # imports all formats once instead of in each process
    except BaseException:
        os._exit(1)  # silently: the grid reports it
    faulthandler.cancel_dump_traceback_later()
