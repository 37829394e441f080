"""The file in which the measurements of speed on photos are kept."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def keep(path: Path, part: str, values: Mapping[str, Any]) -> None:
    """Add values to a part of a file, in place of those with the same names."""
    content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    content[part] = {**content.get(part, {}), **values}
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
