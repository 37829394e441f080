"""What the server of a grid's processes imports once: if that cannot be done, it ends, so that nobody waits for it."""

import faulthandler
import os

PATIENCE = 100.0
"""Seconds that the imports may take. With too little memory the loading of a library may never end."""

with open(os.devnull, "wb") as _nowhere:
    faulthandler.dump_traceback_later(PATIENCE, exit=True, file=_nowhere)
    try:
        from PIL import Image

        import evenhand.experiments.grid.local  # noqa: F401

        Image.init()  # imports all formats, which each process would do for itself
    except BaseException:
        os._exit(1)  # without a word: the grid tells it
    faulthandler.cancel_dump_traceback_later()
