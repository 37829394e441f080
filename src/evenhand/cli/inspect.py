"""`evenhand inspect`: check the data before training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli.output import COLOURS, GUIDE, begin, cell, class_table, echo, echo_json, named

if TYPE_CHECKING:
    from rich.console import RenderableType

    from evenhand.data.audit import Audit

BAR, NARROW_BAR = 16, 6
MOST_LABELS = 10
"""Labels that are listed."""
NARROW = 100
"""Terminal columns below which the bars are shortened for the class names."""


def inspect(
    source: Annotated[str, typer.Argument(help="Data set, folder, .csv, .npz, .parquet or hf:NAME.")] = "digits",
    imbalance: Annotated[str, typer.Option(help="Subsample: exp:RATIO, step:RATIO or none.")] = "none",
    class_order: Annotated[str, typer.Option(help="Most to fewest images: identity, shuffle or names.")] = "identity",
    data_root: Annotated[Path | None, typer.Option(help="Folder of data sets; default: $EVENHAND_DATA.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Shorter side of images after resizing.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of subset and validation.")] = 0,
    split_seed: Annotated[int, typer.Option(min=0, help="Random seed of the test split.")] = 0,
    drop_small: Annotated[bool, typer.Option("--drop-small", help="Drop classes too small to split.")] = False,
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="Follow links that lead outside the source.")
    ] = False,
    labels: Annotated[
        Path | None, typer.Option(metavar="COMPARISON", help="Rank labels that its out-of-fold predictions contradict.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the page of --labels; default: the comparison.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Save the class distribution as .png, .svg or .pdf.")] = None,
    groups: Annotated[Path | None, typer.Option(help="Save a CSV with groups by TRACK_FRAME file names.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check a data set before training.

    Shows classes, sizes, corrupt files, duplicates and leaks between splits, with advice. With --labels, writes a
    page of the images that are most likely labelled wrong instead.
    """
    if labels is not None:
        show_labels(source, labels, out, data_root=data_root, allow_outside=allow_outside, as_json=as_json)
        return
    if not as_json:
        begin(f"inspecting {named(source)}")
    from evenhand.data.inspection import inspect_source

    result = inspect_source(
        source,
        imbalance=imbalance,
        class_order=class_order,
        data_root=data_root,
        image_size=image_size,
        seed=seed,
        split_seed=split_seed,
        drop_small=drop_small,
        allow_outside=allow_outside,
        groups=groups,
    )
    if figure is not None:
        from evenhand.report.figures import class_distribution, save_figure

        names, counts, shots = zip(*((row.name, row.train, row.group) for row in result.classes), strict=True)
        variant = "" if result.imbalance == "none" else f", {result.imbalance}"
        title = f"{result.source}{variant}: {sum(counts):,} training images, ratio {result.imbalance_ratio:.3g}"
        save_figure(class_distribution(counts, names, shots, title=title), figure)
    if as_json:
        echo_json(result.as_dict(), indent=2)
    else:
        show(result)
        if figure is not None:
            echo(f"Figure: {figure}")
        if groups is not None:
            echo(f"With groups: {groups}; evenhand train {groups} keeps each in one split.")


def show_labels(
    source: str, comparison: Path, out: Path | None, *, data_root: Path | None, allow_outside: bool, as_json: bool
) -> None:
    """Rank the labels of a source, write the page, and print the first ones."""
    if not as_json:
        begin(f"checking the labels of {named(source)} by {named(comparison)}")
    from evenhand.core.files import refuse_linked
    from evenhand.core.text import text_table
    from evenhand.experiments.wrong_labels import find_wrong_labels
    from evenhand.report.label_page import write_label_page
    from evenhand.runs.comparison import comparison_file

    folder = comparison_file(comparison).parent
    if out is not None:
        refuse_linked(out, [folder])
    found = find_wrong_labels(source, comparison, data_root=data_root, allow_outside=allow_outside)
    ranked, groups = found.ranked(), found.flagged_by_group()
    page, table = write_label_page(found, out or folder)
    if as_json:
        flagged = [vars(each) for each in ranked if each.flagged]
        by_group = {name: {"flagged": wrong, "images": of} for name, (wrong, of) in groups.items()}
        echo_json(
            {"images": len(ranked), "by_group": by_group, "flagged": flagged, "notes": list(found.notes)}, indent=2
        )
        return
    echo(
        f"{sum(each.flagged for each in ranked):,} of {len(ranked):,} labels are flagged as wrong by {found.objective}:"
    )
    for name, (wrong, of) in groups.items():
        echo(f"  {name}-shot classes: {wrong:,} of {of:,} images ({wrong / of:.1%})")
    for note in found.notes:
        echo(f"  {note}")
    rows = [["image", "label", "", "more likely", ""]]
    rows += [
        [each.id, each.label, f"{each.label_probability:.1%}", each.suggested, f"{each.suggested_probability:.1%}"]
        for each in ranked[:MOST_LABELS]
    ]
    echo("\n" + "\n".join(text_table(rows, left=(0, 1, 3))))
    echo(f"\npage: {page}\ntable: {table}")


def show(result: "Audit") -> None:
    """Print an audit as text."""
    from rich.console import Console

    console = Console(highlight=False)
    variant = "" if result.imbalance == "none" else f" with {result.imbalance}"
    trained, val, test = (sum(getattr(row, split) for row in result.classes) for split in ("train", "val", "test"))
    heading = (
        f"{result.source}{variant}: {len(result.classes)} classes, {trained:,} training images ({val:,} of them for "
        f"validation) and {test:,} test images, imbalance ratio {result.imbalance_ratio:.3g}{_rounded(result)}"
    )
    console.print(cell(heading, "bold"), soft_wrap=True)
    console.print(_class_table(result, NARROW_BAR if console.width < NARROW else BAR))
    console.print()
    console.print(cell(_pixels(result)), soft_wrap=True)
    for title, lines, style in (
        ("Prevents training", result.problems, "bold red"),
        ("Damaged", _unreadable(result), "red"),
        ("Duplicates", _duplicates(result), "yellow"),
        ("Near duplicates", _near(result), "yellow"),
        ("Notes", result.notes, ""),
        ("Advice", result.advice, ""),
    ):
        if lines:
            console.print()
            console.print(cell(title, "bold"))
            for line in lines:
                console.print(cell(f"  {line}", style), soft_wrap=True)
    if result.resembles != "none":
        console.print()
        console.print(cell(GUIDE), soft_wrap=True)


def _rounded(result: "Audit") -> str:
    """Say why the ratio of subsampled classes is not the one asked for, where it is not."""
    asked = float(result.imbalance.partition(":")[2] or result.imbalance_ratio)
    if abs(result.imbalance_ratio / asked - 1) < 0.05:
        return ""
    return f" (asked for: {asked:g}; the images of each class are rounded down)"


def _class_table(result: "Audit", bar: int) -> "RenderableType":
    grouped = any(row.groups is not None for row in result.classes)
    classes = sorted(result.classes, key=lambda row: -row.train)
    most = max(classes[0].train, 1)
    rows: list[list[RenderableType]] = [
        [
            cell(row.name),
            f"{row.train:,}",
            f"{row.share:.1%}",
            cell(_bar(row.train / most, bar), COLOURS[row.group]),
            f"{row.effective_number:.0f}",
            *([f"{row.groups:,}"] if grouped else []),
            f"{row.val:,}",
            f"{row.test:,}",
            cell(row.group, COLOURS[row.group]),
        ]
        for row in classes
    ]
    groups = ["groups"] if grouped else []
    table = class_table(["training", "share", "", "effective", *groups, "val", "test", "shots"], rows)
    table.caption = "effective: effective number of images (Cui et al. 2019, beta 0.999)"
    table.caption_justify = "left"
    return table


def _bar(share: float, width: int) -> str:
    """Return a bar in eighths of a character, at least one eighth if above 0."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _pixels(result: "Audit") -> str:
    sizes = ", ".join(f"{width}x{height} ({number:,})" for width, height, number in result.sizes[:3])
    if len(result.sizes) > 3:
        sizes += f" and {len(result.sizes) - 3:,} more sizes"
    modes = ", ".join(f"{mode} ({number:,})" for mode, number in result.modes.items())
    return f"Images: {sizes}; {modes}"


def _unreadable(result: "Audit") -> list[str]:
    lines = [f"{name}: {reason}" for name, reason in list(result.unreadable.items())[:10]]
    more = len(result.unreadable) - len(lines)
    if more > 0:
        lines.append(f"... {more:,} more (--json lists all)")
    return [*lines, "They are skipped here; training skips them with --skip-bad."] if lines else []


def _duplicates(result: "Audit") -> list[str]:
    lines = []
    for duplicate in result.duplicates[:10]:
        places = " = ".join(
            f"{name} ({split}, {label})"
            for name, split, label in zip(duplicate.ids, duplicate.splits, duplicate.labels, strict=True)
        )
        lines.append(f"{'LEAK ' if duplicate.leaks else ''}{places}")
    more = len(result.duplicates) - len(lines)
    if more > 0:
        lines.append(f"... {more:,} more groups of identical images (--json lists all)")
    return lines


def _near(result: "Audit") -> list[str]:
    near = result.near_duplicates
    if near is None:
        return []
    lines = [" ~ ".join(names) for names in near.examples]
    more = near.groups - len(lines)
    return [*lines, f"... {more:,} more groups"] if more > 0 else lines
