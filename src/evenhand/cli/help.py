"""Help of commands with many options: grouped by panel, in plain text."""

from itertools import groupby
from typing import Any

from typer.core import TyperCommand

SECTIONS = {
    "data": "Data",
    "augmentation": "Data",
    "model": "Network",
    "start": "Network",
    "compute": "Machine",
}
"""The panel of an option, by the section of the setting that it sets; settings outside sections are of the training."""
TRAINING = "Training"
OWN = "Options"
"""The panel of the options that set nothing of a run."""


def panel(key: str) -> str:
    """Return the panel of the option that sets a setting.

    Example:
        >>> from evenhand.cli.help import panel
        >>> panel("data.imbalance"), panel("epochs")
        ('Data', 'Training')
    """
    section, dot, _ = key.partition(".")
    return SECTIONS.get(section, TRAINING) if dot else TRAINING


class GroupedCommand(TyperCommand):
    """A command whose help lists arguments, then its own options, then those of a run by panel."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one list per panel."""
        order = [OWN, TRAINING, *dict.fromkeys(SECTIONS.values())]

        def place(parameter: Any) -> int:
            if parameter.param_type_name == "argument":
                return -1
            return order.index(getattr(parameter, "rich_help_panel", None) or OWN)

        for where, parameters in groupby(sorted(self.get_params(ctx), key=place), key=place):
            rows = [row for parameter in parameters if (row := parameter.get_help_record(ctx))]
            if rows:
                with formatter.section("Arguments" if where < 0 else order[where]):
                    formatter.write_dl(rows)
