"""The commands of the README and the guide run in the order of their page, on a few drawn pictures and for an epoch."""

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.test_documentation import PAGES, ROOT, commands
from tests.trained import COLOURS, config, draw, evenhand, train_run

pytestmark = pytest.mark.slow
SHOWN = [page for page in PAGES if page.parent != ROOT / "docs" / "results" and commands(page)]
NOT_RUN = {
    r"^serve|^doctor|--engine|--devices|--nodes": "run by the tests of the server, the installation and the grid",
    r"^train cifar10|^reproduce speed": "takes minutes to hours",
    r"^inspect fashion-mnist": "" if Path(os.environ.get("EVENHAND_DATA", "/"), "FashionMNIST").is_dir() else "no data",
}
"""Commands that are parsed only (`test_documentation`), and why."""
ONE_EPOCH = ("--epochs", "1", "--image-size", "16")


def arguments(line: str) -> list[str]:
    """Return the words after `evenhand`; trainings are short, and long studies are only planned."""
    verb, *words = shlex.split(line, comments=True)[1:]
    if verb == "train" and "--resume" not in words:
        words += ONE_EPOCH
    if verb == "compare":
        words += ONE_EPOCH if "--seeds" in words else (*ONE_EPOCH, "--most-seeds", "3")
    if verb == "reproduce" and "--protocol" in words:
        words += ["--dry-run"]
    return [verb, *words]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make what the pages name: pictures of cats and lynxes, finished runs, and the files that a page shows."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:  # so different that 95% of the answers can be right
        patch.setitem(COLOURS, "cat", (240, 40, 40))
        patch.setitem(COLOURS, "lynx", (40, 40, 240))
        photos = draw(home / "photos", {"cat": 600, "lynx": 150})
    for folder in ("new", "images"):
        (home / folder).mkdir()
        for number, image in enumerate(("cat/0.png", "lynx/0.png"), 1):
            shutil.copyfile(photos / image, home / folder / f"{number}.jpg")
    shutil.copytree(photos, home / "others")
    for kept in ("data/runs", "long-tailed"):  # of a clone
        shutil.copytree(ROOT / "docs" / "results" / kept, home / "docs" / "results" / kept)
    for name in ("runs/RUN", "runs/lt", "RUN"):
        train_run(config(photos, objective="ce", epochs=6, data__calibration_fraction=0.2), home / name)
    (home / "weights.csv").write_text("class,weight\ncat,1\nlynx,2\n")
    (home / "shares.csv").write_text("class,share\ncat,0.9\nlynx,0.1\n")
    (home / "costs.csv").write_text("class,cost\ncat,1\nlynx,20\n")
    return home


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(
    page: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for line in commands(page):
        line = line.replace("--out RUN", "--out RUN-2").removeprefix("evenhand ")
        if any(why and re.search(pattern, line) for pattern, why in NOT_RUN.items()):
            continue
        code, out, err = evenhand(capsys, monkeypatch, *arguments(f"evenhand {line}"))
        assert code == 0, f"{line}\n{out}\n{err}"
        assert out or "--out" in line, line


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "results").glob("*.md")), ids=lambda page: page.stem)
def test_commands_of_results_have_a_date(page: Path) -> None:
    """They take long, and their output is the page."""
    text = page.read_text(encoding="utf-8")
    assert "```" not in text or re.search(r"\b20\d\d-\d\d-\d\d\b", text)
