"""A grid's runs: their names, what is refused, and how far they are."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.jobs import (
    ALIASES,
    DEFAULTS,
    Failure,
    Job,
    Status,
    canonical_objective,
    make_grid,
    read_failure,
    run_name,
    status,
    write_failure,
)
from evenhand.experiments.grid.locks import take_lock
from evenhand.runs.config import Config, make_config
from evenhand.training.objectives import SingleLoss, build_objective


def test_names_can_be_read() -> None:
    config = make_config(objective="cce:gamma=-2", data__imbalance="exp:20", seed=3)
    assert re.fullmatch(r"digits_exp-20_resnet8_cce-gamma-2_seed3-[0-9a-f]{10}", run_name(config))
    positive = make_config(objective="cce:gamma=2")
    assert re.fullmatch(r"digits_resnet8_cce-gamma2_seed0-[0-9a-f]{10}", run_name(positive))


def test_names_stay_as_they_are() -> None:
    """Else finished runs would be done again; a new setting changes this on purpose."""
    assert run_name(make_config()) == "digits_resnet8_cce_seed0-f569c47dab"


MATTERS = (
    "data.source=cifar10",
    "data.imbalance=exp:20",
    "data.class_order=reversed",
    "data.fraction=0.5",
    "data.image_size=16",
    "data.test_fraction=0.3",
    "data.val_fraction=0.2",
    "data.split_seed=1",
    "data.drop_small=true",
    "data.skip_bad=true",
    "model.name=resnet32",
    "model.stem=small",
    "model.pretrained=true",
    "objective=ce",
    "epochs=31",
    "batch_size=32",
    "select=last",
    "optimizer.lr=0.05",
    "optimizer.momentum=0.8",
    "optimizer.weight_decay=0",
    "optimizer.nesterov=false",
    "schedule.kind=step",
    "schedule.milestones=[3]",
    "schedule.factor=0.1",
    "schedule.warmup_epochs=3",
    "augmentation.padding=2",
    "augmentation.flip=true",
    "start.weights=first/weights/best.safetensors",
    "compute.precision=float32",
    "seed=1",
    "track_test=true",
)
DOES_NOT = (
    "compute.accelerator=cpu",
    "compute.devices=2",
    "compute.nodes=2",
    "compute.compile=true",
    "compute.sync_batchnorm=true",
    "compute.workers=3",
    "data.root=/data",
    "objective=cce:gamma=-1",
    "data.imbalance=none",
)


@pytest.mark.parametrize("setting", MATTERS)
def test_a_setting_that_matters_makes_another_name(setting: str) -> None:
    assert run_name(make_config(settings=[setting])) != run_name(make_config())


@pytest.mark.parametrize("setting", DOES_NOT)
def test_a_setting_that_does_not_matter_leaves_the_name(setting: str) -> None:
    assert run_name(make_config(settings=[setting])) == run_name(make_config())


def test_every_setting_was_considered() -> None:
    """The lists above name all but those of `compute`: who adds a setting decides whether it matters."""
    known = set()
    for section, value in Config().model_dump(exclude={"compute"}).items():
        known |= {f"{section}.{key}" for key in value} if isinstance(value, dict) else {section}
    assert known <= {setting.split("=")[0] for setting in (*MATTERS, *DOES_NOT, *WITH_WEIGHTS)}


WITH_WEIGHTS = ("start.load=body", "start.train=head", f"start.sha256={'a' * 64}")


def test_a_second_stage_is_named_by_its_weights_and_not_by_their_path() -> None:
    start = "start.weights=runs/first"
    names = {run_name(make_config(settings=[start, *more])) for more in ([], *([each] for each in WITH_WEIGHTS))}
    assert len(names) == 4
    content = WITH_WEIGHTS[2]
    assert run_name(make_config(settings=[start, content])) == run_name(
        make_config(settings=["start.weights=/elsewhere/copy.safetensors", content])
    )
    assert run_name(make_config(settings=["start.weights=/elsewhere/first"])) in names


@settings(derandomize=True, deadline=None, max_examples=50)
@given(source=st.text(min_size=1, max_size=80), objective=st.sampled_from(["ce", "focal:gamma=0.5:alpha=0.25", "cot"]))
def test_names_are_safe_whatever_a_folder_is_called(source: str, objective: str) -> None:
    if "\0" in source:
        source = source.replace("\0", "0")
    name = run_name(make_config(data__source=f"./{source}", objective=objective))
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*-[0-9a-f]{10}", name)
    assert len(name) < 200


def test_a_folder_by_another_path_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    names = {run_name(make_config(data__source=path)) for path in ("photos/", "./photos", str(tmp_path / "photos"))}
    assert len(names) == 1
    monkeypatch.chdir(tmp_path / "photos")
    assert run_name(make_config(data__source=".")) in names
    (job,) = make_grid("runs", make_config(data__source="."), objectives=["ce"], seeds=[0])
    assert job.config.data.source == str(tmp_path / "photos")
    assert job.folder.name.startswith("photos_resnet8_ce_seed0-")


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_have_one_spelling_without_losing_a_digit(gamma: float) -> None:
    canonical = canonical_objective(f"cce:gamma={gamma!r}")
    assert canonical == canonical_objective(canonical)
    assert canonical == canonical_objective(f"cce:gamma={gamma:.25e}")
    assert canonical == "cce" if gamma == -1 else float(canonical.partition("=")[2]) == gamma


@pytest.mark.parametrize(
    ("spec", "same"),
    [(alias, name) for alias, name in ALIASES.items()]
    + [(name, ":".join([name, *(f"{k}={v}" for k, v in options.items())])) for name, options in DEFAULTS.items()],
)
def test_two_spellings_of_one_objective_train_the_same(spec: str, same: str) -> None:
    assert canonical_objective(spec) == canonical_objective(same)
    one, other = build_objective(spec, 5), build_objective(same, 5)
    if isinstance(one, SingleLoss) and isinstance(other, SingleLoss):
        generator = torch.Generator().manual_seed(0)
        logits, labels = torch.randn(7, 5, generator=generator), torch.arange(7) % 5
        assert torch.equal(one.loss(logits, labels), other.loss(logits, labels))
    else:
        assert one == other


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
    ({"objectives": ["ce", "xent"]}, "There is no objective 'xent'; there are ce, erm, focal, cce, cot."),
    ({"objectives": ["cce:gama=2"]}, "Cannot train with 'cce:gama=2': cce takes gamma."),
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
    monkeypatch.setattr("evenhand.experiments.grid.jobs.find_spec", lambda _: None)
    with pytest.raises(EvenhandError, match=r"pip install 'evenhand\[timm\]'"):
        make_grid(tmp_path, make_config(), objectives=["ce"], seeds=[0], models=["timm:resnet18"])


def test_status_is_what_lies_on_disk(tmp_path: Path) -> None:
    job = Job(make_config(), tmp_path / "runs" / "a")
    assert status(job) is Status.MISSING
    lock = take_lock(job.lock)
    assert lock is not None
    assert status(job) is Status.RUNNING
    lock.release()
    assert status(job) is Status.MISSING
    job.folder.mkdir()
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the holder of the lock is forked")
def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        take_lock(path)
        os.write(tell, b"x")
        signal.pause()
        os._exit(0)
    os.read(told, 1)
    assert take_lock(path) is None
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    lock = take_lock(path)
    assert lock is not None
    lock.release()
    lock.release()
    os.close(told)
    os.close(tell)
