"""`evenhand serve`: show all runs of a folder in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.output import echo, remark


def serve(
    runs: Annotated[Path, typer.Argument(help="Folder with runs and comparisons.")] = Path("runs"),
    host: Annotated[str, typer.Option(help="Address; others than 127.0.0.1 are public.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port to listen on; default: 8765 or the next.")
    ] = None,
) -> None:
    """Browse runs on a local web page.

    Shows all runs and comparisons in RUNS with live curves; stop with Ctrl-C.
    """
    from evenhand.core.errors import EvenhandError
    from evenhand.core.extras import how_to_install

    try:
        from evenhand.report import serving
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise EvenhandError(f"`evenhand serve` needs an extra: {how_to_install('serve')}.") from error

    def ready(address: str) -> None:
        echo(f"{runs} is served at {address} (stop with Ctrl-C)")
        if host not in ("127.0.0.1", "localhost", "::1"):
            remark(
                f"anyone who can reach {host} can read these runs and reports, and classify pictures with their models."
            )

    serving.serve(runs, host=host, port=port, ready=ready)
