"""Public names of a package that are imported when they are first used, so that importing the package costs nothing."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package that imports its public names for type checkers only.

    The package says under `if TYPE_CHECKING:` which names it has and where they live, as `from module import name as
    name`, and calls this in the `else`. That block is read here, so that nothing is said twice.

    Args:
        package: its `__name__`.

    Example:
        >>> import evenhand
        >>> evenhand.EvenhandError.__module__, "train" in dir(evenhand)
        ('evenhand.core.errors', True)
    """
    homes = _homes(package)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes}), sorted(homes)


def _homes(package: str) -> dict[str, str]:
    """Read in which module each public name of a package lives."""
    spec = find_spec(package) if package not in sys.modules else sys.modules[package].__spec__
    source = spec.loader.get_source(package) if spec and hasattr(spec.loader, "get_source") else None  # type: ignore[union-attr]
    blocks = [node for node in ast.parse(source or "").body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: node.module for node in imports if node.module for alias in node.names}
