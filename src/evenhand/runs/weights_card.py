"""The card of a file of weights: what its header says about the model."""

import json
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.opening import open_regular


def card_of(path: Path, *, within: Path | None = None) -> dict[str, Any]:
    """Read the card of a file of weights from its header: class names, sizes, normalisation.

    Raises:
        EvenhandError: the file is missing, damaged or not of evenhand.
    """
    try:
        with open_regular(path, within=within) as file:
            size = int.from_bytes(file.read(8), "little")
            if size > 2**24:
                raise ValueError("its header is too long")
            card: Any = json.loads(json.loads(file.read(size))["__metadata__"]["evenhand"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise EvenhandError(f"The weights in {path} are damaged or not of evenhand: {reason(error)}.") from error
    if not isinstance(card, dict) or not isinstance(card.get("class_names"), list):
        raise EvenhandError(f"The weights in {path} are damaged or not of evenhand: they name no classes.")
    return card
