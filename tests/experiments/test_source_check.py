"""Images that were added, removed or relabelled since runs were trained on them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.experiments.grid._source_check import refuse_changed_source
from evenhand.experiments.grid.jobs import Job, make_grid
from evenhand.runs.run import Run
from evenhand.training.prepare import prepare
from evenhand.training.run import split_ids
from tests.trained import config, draw

COUNTS = {"cat, tabby": 9, "dog": 6, "öwl": 5}


def grid(root: Path, source: str = "photos", *, seeds: int = 1, **flags: Any) -> list[Job]:
    """A grid whose first runs count as finished, split as training splits."""
    if not (root / source).exists():
        draw(root / source, COUNTS)
    jobs = make_grid(root / "runs", config(root / source, **flags), objectives=["ce", "cce"], seeds=range(seeds))
    for job in jobs[:seeds]:
        prepared = prepare(job.config, progress=False)
        Run(job.folder).write_splits(split_ids(prepared))
        (job.folder / "summary.json").touch()
    return jobs


def check(jobs: list[Job]) -> None:
    refuse_changed_source(jobs, load_source(jobs[0].config.data.source))


SETTINGS: list[dict[str, Any]] = [
    {},
    {"data__imbalance": "exp:3"},
    {"select": "last"},
    {"data__drop_small": True},
    {"data__skip_bad": True},
    {"data__split_seed": 1, "data__class_order": "shuffle", "data__fraction": 0.8},
]


@pytest.mark.parametrize("flags", SETTINGS, ids=str)
def test_an_unchanged_source_is_accepted_and_one_with_an_image_less_refused(
    tmp_path: Path, flags: dict[str, Any]
) -> None:
    jobs = grid(tmp_path, **flags)
    check(jobs)
    content = json.loads((jobs[0].folder / "splits.json").read_text())
    (tmp_path / "photos" / content["test"][0]).unlink()
    photos = tmp_path / "photos"
    sentence = f"{photos} has changed since {jobs[0].folder} was trained; use another --out, or remove that folder."
    with pytest.raises(EvenhandError, match=f"^{re.escape(sentence)}$"):
        check(jobs)


def test_a_new_image_is_refused_unless_it_may_be_unreadable(tmp_path: Path) -> None:
    jobs, lenient = grid(tmp_path), grid(tmp_path, data__skip_bad=True)
    (tmp_path / "photos" / "dog" / "new.png").write_bytes(b"no picture")
    check(lenient)
    with pytest.raises(EvenhandError, match="has changed since"):
        check(jobs)


def test_a_class_left_out_as_too_small_is_no_change(tmp_path: Path) -> None:
    draw(tmp_path / "photos", {**COUNTS, "emu": 1})
    check(grid(tmp_path, data__drop_small=True))


def test_a_changed_label_in_a_csv_is_refused(tmp_path: Path) -> None:
    draw(tmp_path / "pictures", COUNTS)
    rows = [f'"pictures/{name}/{k}.png","{name}"' for name, count in COUNTS.items() for k in range(count)]
    path = tmp_path / "photos.csv"
    path.write_text("\n".join(["path,label", *rows]), "utf-8")
    jobs = grid(tmp_path, "photos.csv")
    check(jobs)
    rows[0] = rows[0].replace(',"cat, tabby"', ',"dog"')
    path.write_text("\n".join(["path,label", *rows]), "utf-8")
    with pytest.raises(EvenhandError, match="has changed since"):
        check(jobs)


def test_several_finished_runs_are_counted(tmp_path: Path) -> None:
    jobs = grid(tmp_path, seeds=2)
    (tmp_path / "photos" / "dog" / "0.png").unlink()
    with pytest.raises(EvenhandError, match=r"and 1 more were trained; use another --out, or remove those folders\.$"):
        check(jobs)


def test_nothing_is_checked_without_a_finished_run_nor_of_a_benchmark(tmp_path: Path) -> None:
    jobs = make_grid(tmp_path / "runs", config(draw(tmp_path / "photos", COUNTS)), objectives=["ce"], seeds=[0])
    digits = load_source("digits")
    refuse_changed_source(jobs, digits)
    known = make_grid(tmp_path, config(Path("cifar10"), data__root=str(tmp_path)), objectives=["ce"], seeds=[0])
    known[0].folder.mkdir()
    (known[0].folder / "summary.json").touch()
    refuse_changed_source(known, digits)


def test_a_run_without_splits_is_accepted(tmp_path: Path) -> None:
    jobs = grid(tmp_path)
    (jobs[0].folder / "splits.json").unlink()
    (tmp_path / "photos" / "dog" / "0.png").unlink()
    check(jobs)
