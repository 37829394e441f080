"""A grid's runs: their names, what is refused, and how far they are."""

import sys
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.core.locks import claimed
from evenhand.experiments.grid.jobs import (
    Failure,
    Job,
    Status,
    make_grid,
    read_failure,
    status,
    write_failure,
)
from evenhand.experiments.grid.naming import run_name
from evenhand.runs.config import make_config


def test_all_entries_are_crossed(tmp_path: Path) -> None:
    jobs = make_grid(
        tmp_path,
        make_config(),
        objectives=["ce", "cce"],
        seeds=range(3),
        imbalances=["none", "exp:20"],
        models=["resnet8", "squeezenet"],
        sources=["digits", "fashion-mnist"],
    )
    assert len({job.folder for job in jobs}) == len(jobs) == 48
    assert {job.folder.parent for job in jobs} == {tmp_path}
    assert all(job.folder.name == run_name(job.config) for job in jobs)
    assert not any(tmp_path.iterdir())


BAD: list[tuple[dict[str, Any], str]] = [
    ({"objectives": ["ce", "xent"]}, "There is no objective 'xent'; there are ce, erm, focal, cce, "),
    (
        {"objectives": ["cce:gama=2"]},
        "Cannot train with 'cce:gama=2': cce takes gamma, share, spare, rivals, on; did you mean gamma?",
    ),
    ({"objectives": []}, "A grid needs at least one objective, got none."),
    ({"objectives": ["ce", "cce", "ce"]}, "The objective 'ce' is given twice; leave one out."),
    ({"objectives": ["ce", "erm"]}, "The objective 'erm' is given twice, first as 'ce'; leave one out."),
    (
        {"objectives": ["cce", "cce:gamma=-1.0"]},
        "The objective 'cce:gamma=-1.0' is given twice, first as 'cce'; leave one out.",
    ),
    ({"seeds": []}, "A grid needs at least one seed, got none."),
    ({"seeds": [0, 1, 0]}, "The seed 0 is given twice; leave one out."),
    ({"seeds": [-1]}, "seed cannot be -1: input should be greater than or equal to 0."),
    (
        {"imbalances": ["exp:10", "exp:10.0"]},
        "The imbalance 'exp:10.0' is given twice, first as 'exp:10'; leave one out.",
    ),
    (
        {"imbalances": ["exp"]},
        "The imbalance ratio must be a number: expected exp:RATIO, step:RATIO or none, got 'exp'.",
    ),
    ({"models": ["resnet9"]}, "There is no network 'resnet9'; did you mean resnet8"),
    ({"sources": ["digit"]}, "'digit' is neither a known data set nor a file or folder; did you mean digits?"),
    ({"sources": ["no/such/photos"]}, "There is no file or folder no/such/photos."),
    ({"sources": ["digits:classes=3"]}, "Cannot read 'digits:classes=3': digits takes no options."),
    ({"sources": ["digits:3"]}, "Cannot read 'digits:3': digits takes no options."),
    ({"sources": [" "]}, "' ' is neither a known data set nor a file or folder"),
]


@pytest.mark.parametrize(("entries", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_a_bad_entry_is_one_sentence(tmp_path: Path, entries: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EvenhandError) as refused:
        make_grid(tmp_path / "runs", make_config(), **{"objectives": ["ce"], "seeds": [0], **entries})
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "runs").exists()


def test_runs_of_several_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match=r"^Each run of a grid takes one device; .* got 1 x 2\.$"):
        make_grid(tmp_path, make_config(compute__devices=2), objectives=["ce"], seeds=[0])


def test_timm_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(EvenhandError, match=r"need one more package: pip install 'timm"):
        make_grid(tmp_path, make_config(), objectives=["ce"], seeds=[0], models=["timm:resnet18"])


def test_status_is_what_lies_on_disk(tmp_path: Path) -> None:
    job = Job(make_config(), tmp_path / "runs" / "a")
    assert status(job) is Status.MISSING
    with claimed(job.folder):
        assert status(job) is Status.RUNNING
    assert status(job) is Status.MISSING
    job.folder.mkdir(parents=True)
    (job.folder / "config.yaml").touch()
    assert status(job) is Status.INTERRUPTED
    failure = Failure(job, "The loss became nan — at step 3.")
    write_failure(failure)
    assert status(job) is Status.FAILED
    assert read_failure(job) == failure
    (job.folder / "summary.json").touch()
    assert status(job) is Status.DONE


def test_a_damaged_note_of_a_failure_is_still_a_failure(tmp_path: Path) -> None:
    job = Job(make_config(), tmp_path / "a")
    assert read_failure(job) is None
    job.failure.parent.mkdir()
    job.failure.write_text("{")
    found = read_failure(job)
    assert found is not None
    assert "cannot be read" in found.reason
