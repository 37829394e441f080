"""Every extra of the package has a use in the script that installs each alone."""

from importlib.metadata import metadata

import check_extras


def test_every_extra_has_a_use() -> None:
    assert set(check_extras.USES) == set(metadata("evenhand").get_all("Provides-Extra", ())) - {"dev"}
