"""Print the lowest versions of dependencies that the installed package allows, as constraints for pip.

Usage:
    python tools/lowest_versions.py [EXTRA ...] > constraints.txt

Without arguments these are the dependencies of the package itself; `make test-lowest` runs the tests with them.
"""

import re
import sys
from collections.abc import Sequence
from importlib.metadata import requires

REQUIREMENT = re.compile(r"([\w.-]+)>=([\w.]+)(?:; extra == [\"'](\w+)[\"'])?")


def lowest_versions(extras: Sequence[str] = ()) -> list[str]:
    """Return `name==version` for each dependency of the installed package and of some extras."""
    found = [REQUIREMENT.fullmatch(line) for line in requires("evenhand") or ()]
    return sorted({f"{each[1]}=={each[2]}" for each in found if each and each[3] in (None, *extras)})


if __name__ == "__main__":
    print("\n".join(lowest_versions(sys.argv[1:])))
