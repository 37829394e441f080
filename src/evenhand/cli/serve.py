"""`evenhand serve`: a local page of all runs in a folder."""

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.output import echo, remark


def serve(
    runs: Annotated[Path, typer.Argument(help="A folder with runs and comparisons in it.")] = Path("runs"),
    host: Annotated[str, typer.Option(help="The address to listen on; others can read along on any but this.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="8765 or the next free one if not given.")] = None,
) -> None:
    """List all runs and comparisons in RUNS on a local page, with live curves; Ctrl-C ends it."""
    from evenhand.core.errors import EvenhandError
    from evenhand.core.extras import how_to_install

    try:
        from evenhand.report import serving
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise EvenhandError(f"`evenhand serve` needs an extra: {how_to_install('serve')}.") from error

    def tell(address: str) -> None:
        echo(f"{runs} is shown at {address} (Ctrl-C ends it)")
        if host not in ("127.0.0.1", "localhost", "::1"):
            remark(f"whoever reaches {host} can read these runs and reports.")

    serving.serve(runs, host=host, port=port, ready=tell)
