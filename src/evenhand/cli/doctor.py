"""`evenhand doctor`: show the installation and what is missing."""

from typing import Annotated

import typer

from evenhand.cli.output import echo, echo_json


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False) -> None:
    """Check the installation.

    Shows versions, devices, loss backends and folders, and how to install what is missing.
    """
    from dataclasses import asdict

    from evenhand.training.doctor import examine

    found = examine()
    if as_json:
        echo_json(asdict(found), indent=2)
        return
    versions = [f"{name} {version}" for name, version in found.versions.items()]
    loss = [f"backend {found.backend!r}"]
    for backend in found.backends:
        use = f"used for {' and '.join(backend.used_for)}" if backend.used_for else "not used"
        why = "" if backend.used_for or not backend.why_not else f": {backend.why_not}"
        loss.append(f"{backend.name}: {use}{why}{f' ({backend.detail})' if backend.detail else ''}")
    folders = []
    for folder in found.folders:
        state = "" if folder.exists else ", does not exist yet"
        state += "" if folder.writable else ", not writable"
        folders.append(f"{folder.use}: {folder.path}{state}, {folder.free_bytes / 1e9:,.0f} GB free")
    topics = {
        "versions": [", ".join(versions[:4]), ", ".join(versions[4:])],
        "devices": [f"{name}: {text}" for name, text in found.devices.items()],
        "loss": loss,
        "folders": folders,
        "optional": [f"{each.name}, for {each.use}: {each.how}" for each in found.missing],
    }
    for topic, lines in topics.items():
        for number, line in enumerate(lines):
            echo(f"{topic if number == 0 else '':<9} {line}")
    echo("What is listed as optional is not installed. To begin: evenhand guide start")
