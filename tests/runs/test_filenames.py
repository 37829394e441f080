"""The room of runs: without torch, and the only place that spells the names of a run's files."""

import re
import subprocess
import sys
from pathlib import Path

import evenhand
from evenhand.runs import filenames as names

SOURCE = Path(evenhand.__file__).parent
SPELLED = re.compile("|".join(re.escape(Path(name).name) for name in names.FILES))


def places(root: Path) -> list[str]:
    """Where the name of a run's file is spelled outside the room of runs."""
    return [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in sorted(root.rglob("*"))
        if path.suffix in (".py", ".j2", ".js", ".css", ".yaml") and path.parent.name != "runs"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if SPELLED.search(line)
    ]


def test_names_of_files_are_spelled_in_one_place() -> None:
    assert places(SOURCE) == []


def test_a_name_that_is_spelled_elsewhere_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    for name in ("config.yaml", "history.csv", "best.safetensors", "state.pt", "validation.npz", "checksums.json"):
        (tmp_path / "report" / "page.py").write_text(f'one = 1\npath = folder / "{name}"\n')
        assert places(tmp_path) == [f'report/page.py:2: path = folder / "{name}"']


def test_runs_are_read_without_torch() -> None:
    code = """if True:
        import sys
        from evenhand.runs import Run, make_config, runs_in
        from evenhand.runs import checksums, config, filenames, run, schemas
        sys.exit("torch" in sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
