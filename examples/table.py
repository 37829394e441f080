"""Set finished runs side by side.

python examples/table.py RUN RUN ...
"""

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from evenhand.training.run import RunFolder


def main() -> None:
    """Print a row a run."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in (
        "objective",
        "balanced accuracy",
        "95% interval",
        "accuracy",
        "many",
        "medium",
        "few",
        "worst class",
    ):
        table.add_column(column, justify="left" if column in ("objective", "worst class") else "right")
    for name in sys.argv[1:]:
        summary = RunFolder(Path(name)).summary()
        low, high = summary["balanced_accuracy_interval"]
        groups = (summary["groups"][group] for group in ("many", "medium", "few"))
        table.add_row(
            summary["objective"],
            f"{summary['balanced_accuracy']:.1%}",
            f"{low:.1%} to {high:.1%}",
            f"{summary['accuracy']:.1%}",
            *("-" if group is None else f"{group['recall']:.1%}" for group in groups),
            f"{summary['worst_class']['name']} ({summary['worst_class']['recall']:.1%})",
        )
    console = Console(width=100)
    console.print(table)
    console.print(
        "\nmany, medium, few: mean recall of the classes with so many training images. The interval speaks of the "
        "test images only: another seed would train another model, so one run of each does not say which is better."
    )


if __name__ == "__main__":
    main()
