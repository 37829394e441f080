"""Optional packages."""

import re
import shlex
from importlib.metadata import PackageNotFoundError, requires, version


def installed_version(package: str) -> str | None:
    """Return the version of a package; None: it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def how_to_install(extra: str) -> str:
    """Return the command that installs the packages of an extra.

    Example:
        >>> from evenhand.core.extras import how_to_install
        >>> how_to_install("timm")
        "pip install 'timm>=1.0.3'"
    """
    try:
        known = requires("evenhand") or []
    except PackageNotFoundError:  # run from its sources
        known = []
    wanted = [line.split(";")[0].strip() for line in known if re.search(rf"extra\s*==\s*['\"]{extra}['\"]", line)]
    # Not evenhand[...]: the package index may not have evenhand.
    return f"pip install {shlex.join(wanted)}" if wanted else f"pip install '.[{extra}]' in a clone of evenhand"
