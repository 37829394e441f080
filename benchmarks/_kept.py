"""Files in which measurements of speed are kept, and where and how they were made."""

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def keep(path: Path, part: str, values: Mapping[str, Any]) -> None:
    """Add values to a part of a file, in place of those with the same names."""
    content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    content[part] = {**content.get(part, {}), **values}
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def how_measured() -> dict[str, Any]:
    """Return date, command, machine and load of this process."""
    import torch

    from evenhand.training.environment import processor_name

    script = Path(sys.argv[0])
    return {
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", f"{script.parent.name}/{script.name}", *sys.argv[1:]]),
        "machine": f"{os.cpu_count()} processors ({processor_name()}, {torch.backends.cpu.get_cpu_capability()})",
        "versions": f"torch {torch.__version__}, Python {platform.python_version()}",
        "load": os.getloadavg()[0],
    }
