"""What runs are called: what matters is hashed, and nothing that comes later renames a run that is there."""

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.jobs import Status, make_grid, status
from evenhand.experiments.grid.local import run_jobs
from evenhand.experiments.grid.naming import UNNAMED, run_folder, run_name
from evenhand.objectives import ObjectiveSpec
from evenhand.runs.config import Config, load_config, make_config, save_config
from evenhand.runs.config_sections import DataConfig, ScheduleConfig, StartConfig
from evenhand.runs.name_defaults import FROZEN
from tests.experiments.grids import Heard, times_of

OLD = Path(__file__).parents[1] / "runs" / "old"


def test_names_can_be_read() -> None:
    config = make_config(objective="cce:gamma=-2", data__imbalance="exp:20", seed=3)
    assert re.fullmatch(r"digits_exp-20_resnet8_cce-gamma-2_seed3-[0-9a-f]{10}", run_name(config))
    positive = make_config(objective="cce:gamma=2")
    assert re.fullmatch(r"digits_resnet8_cce-gamma2_seed0-[0-9a-f]{10}", run_name(positive))


def test_names_stay_as_they_are() -> None:
    """Else finished runs would be done again."""
    assert run_name(make_config(objective="cce")) == "digits_resnet8_cce_seed0-739e3e615f"
    paper = make_config("paper", objective="focal:gamma=1", data__imbalance="step:10", model__name="resnet32", seed=3)
    assert run_name(paper) == "digits_step-10_resnet32_focal-gamma1_seed3-4f4b099af1"


class SamplingLater(BaseModel):
    """A section that a later version might have."""

    by: str = "image"


class DataLater(DataConfig):
    colour: bool = True


class ScheduleLater(ScheduleConfig):
    warmup_epochs: float = 1
    kind: Any = "cosine"


class ConfigLater(Config):
    """A version with a new section, a new setting and new defaults."""

    data: DataLater = DataLater()
    schedule: ScheduleLater = ScheduleLater()
    sampling: SamplingLater = SamplingLater()
    objective: ObjectiveSpec = ObjectiveSpec("ce")
    batch_size: int = 128


@pytest.mark.parametrize("recipe", ["small", "paper", "road-marking"])
def test_neither_a_new_setting_nor_a_new_default_renames_a_run(recipe: str) -> None:
    now = make_config(recipe)
    later = ConfigLater.model_validate(now.model_dump())
    assert run_name(later) == run_name(now)
    plain = Config(batch_size=128, objective="ce", schedule=ScheduleConfig(kind="cosine", warmup_epochs=1.0))
    assert run_name(ConfigLater()) == run_name(plain)
    for changed in ({"sampling": {"by": "class"}}, {"data": {"colour": False}}):
        assert run_name(ConfigLater.model_validate(changed)) != run_name(ConfigLater())


def test_the_frozen_table_holds_settings_that_name_runs() -> None:
    known = {key for key in FLAT if not key.startswith("compute.")} - set(UNNAMED) | {"compute.precision"}
    assert set(FROZEN) <= known


def test_a_config_that_lacks_a_setting_means_what_it_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written before the setting came, and the live default may be another."""
    path = tmp_path / "config.yaml"
    path.write_text("objective: ce\n")
    assert (load_config(path).schedule.kind, load_config(path).epochs) == ("step", 30)
    monkeypatch.setitem(FROZEN, "epochs", 31)
    monkeypatch.setitem(FROZEN, "data.fraction", 0.5)
    found = load_config(path)
    assert (found.epochs, found.data.fraction, found.objective) == (31, 0.5, "ce")
    path.write_text("data: 3\n")
    with pytest.raises(EvenhandError, match=r"^Cannot use the config .*: data cannot be 3: "):
        load_config(path)


def test_a_run_of_the_old_naming_is_taken_as_done(tmp_path: Path) -> None:
    """A real run, made and named by an earlier version."""
    (old,) = OLD.iterdir()
    folder = tmp_path / old.name
    shutil.copytree(old, folder)
    config = load_config(folder / "config.yaml")
    assert run_name(config) != old.name
    assert run_folder(tmp_path, config) == folder
    jobs = make_grid(tmp_path, config, objectives=["cce"], seeds=[0])
    assert [(job.folder, status(job)) for job in jobs] == [(folder, Status.DONE)]
    before, heard = times_of(folder), Heard()
    assert run_jobs(jobs, callback=heard) == []
    assert not heard.starts
    assert times_of(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == [old.name]
    others = make_grid(tmp_path, make_config(config=folder / "config.yaml", epochs=3), objectives=["cce"], seeds=[0, 1])
    assert [status(job) for job in others] == 2 * [Status.MISSING]


def test_a_run_of_the_old_naming_may_be_damaged(tmp_path: Path) -> None:
    config = make_config()
    other = tmp_path / f"{run_name(config)[:-10]}{'0' * 10}"
    other.mkdir()
    assert run_folder(tmp_path, config).name == run_name(config)
    (other / "config.yaml").write_text("[")
    assert run_folder(tmp_path, config).name == run_name(config)
    save_config(config, other / "config.yaml")
    assert run_folder(tmp_path, config) == other
    (tmp_path / run_name(config)).mkdir()
    assert run_folder(tmp_path, config).name == run_name(config)


def second_stage(weights: Path | str, **more: Any) -> Config:
    return Config(start=StartConfig(weights=str(weights), **more))


def test_a_second_stage_is_named_by_the_content_of_its_weights(tmp_path: Path) -> None:
    (old,) = OLD.iterdir()
    run = tmp_path / "first"
    shutil.copytree(old, run)
    chosen = run / "weights" / "best.safetensors"
    copy = tmp_path / "copy.safetensors"
    shutil.copy(chosen, copy)
    name = run_name(second_stage(run))
    assert run_name(second_stage(chosen)) == run_name(second_stage(copy)) == name != run_name(Config())
    digest = hashlib.sha256(copy.read_bytes()).hexdigest()
    assert run_name(second_stage("/gone", sha256=digest)) == run_name(second_stage(run, sha256=digest)) == name
    copy.write_bytes(copy.read_bytes()[:-1] + b"x")
    assert run_name(second_stage(copy)) != name
    (run / "summary.json").unlink()  # it is still trained: the name of the run says what its weights will be
    other = tmp_path / "moved" / "first"
    assert run_name(second_stage(run)) == run_name(second_stage(other)) != name


FLAT = [
    f"{section}.{key}" if isinstance(value, dict) else section
    for section, value in Config().model_dump().items()
    for key in (value if isinstance(value, dict) else [""])
]
MATTERS = (
    "data.source=cifar10",
    "data.imbalance=exp:20",
    "data.class_order=reversed",
    "data.fraction=0.5",
    "data.image_size=16",
    "data.test_fraction=0.3",
    "data.val_fraction=0.2",
    "data.calibration_fraction=0.2",
    "data.split_seed=1",
    "data.rotate=true",
    "data.drop_small=true",
    "data.skip_bad=true",
    "head.most_steps=32",
    "head.refit_below=5000",
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
    "optimizer.layer_decay=0.7",
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
WITH_WEIGHTS = ("start.load=body", "start.train=head", f"start.sha256={'a' * 64}")
DOES_NOT = (
    "compute.accelerator=cpu",
    "compute.devices=2",
    "compute.nodes=2",
    "compute.compile=true",
    "compute.sync_batchnorm=true",
    "compute.workers=3",
    "data.root=/data",
    "data.allow_outside=true",
    "objective=cce:gamma=-1",
    "data.imbalance=none",
    "class_weights=null",  # those of a file are in tests/runs/test_class_weights.py
)


@pytest.mark.parametrize("setting", MATTERS)
def test_a_setting_that_matters_makes_another_name(setting: str) -> None:
    assert run_name(make_config(settings=[setting])) != run_name(make_config())


@pytest.mark.parametrize("setting", WITH_WEIGHTS)
def test_a_setting_of_a_second_stage_makes_another_name(setting: str) -> None:
    start = "start.weights=runs/first"
    assert run_name(make_config(settings=[start, setting])) != run_name(make_config(settings=[start]))


@pytest.mark.parametrize("setting", DOES_NOT)
def test_a_setting_that_does_not_matter_leaves_the_name(setting: str) -> None:
    assert run_name(make_config(settings=["objective=cce", setting])) == run_name(make_config(objective="cce"))


def test_every_setting_was_considered() -> None:
    """The lists above name all but those of `compute`: who adds a setting decides whether it matters."""
    known = {key for key in FLAT if not key.startswith("compute.")}
    assert known <= {setting.split("=")[0] for setting in (*MATTERS, *DOES_NOT, *WITH_WEIGHTS)}


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
