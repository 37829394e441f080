"""Configs that are no YAML, cost too much to read, or have values out of range: one sentence each."""

from pathlib import Path

import pytest

from evenhand.runs.config import make_config
from evenhand.runs.run import Run
from tests.runs.test_damage import told

BILLION = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGED = "a: &a {k1: 1, k2: 2}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BILLION, "its aliases expand to more than 10,000 values"),
        (MERGED, "its aliases expand to more than 10,000 values"),
        ("a: &a [*a]", "its aliases expand"),
        ("&a ? *a : 1", ""),
        ("[" * 5000, "it is nested more than 20 deep"),
        ("{a: " * 5000, "it is nested more than 20 deep"),
        ("- " * 5000, "it is nested more than 20 deep"),
        ("epochs: !!int x", "invalid literal"),
        ("epochs: !!bool x", "a value does not fit its tag or type: 'x'"),
        ("epochs: !!float x", "could not convert"),
        ("epochs: !!timestamp x", ""),
        ("epochs: 2026-13-45", "month must be in 1..12"),
        ("epochs: !!binary '*'", ""),
        ("seed: " + "9" * 30, "a whole number has 100 bits"),
        ("seed: 0x" + "f" * 6000, "a value has 6,002 characters"),
        ("seed: 1" + ":1" * 1000, "a whole number has"),
        ("data: {source: '" + "x" * 70_000 + "'}", "bytes, more than the limit of 65,536"),
        ("? [1, 2]\n: 3", "unhashable"),
        ("\x00", ""),
        ("objective: *nowhere", "undefined alias"),
        ("%YAML 9.9\n---\nepochs: 1", ""),
        ("--- 1\n--- 2", "but found another document"),
    ],
)
def test_yaml_that_is_none_or_too_much(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    for read in (lambda: Run(tmp_path).config, lambda: make_config(config=path)):
        assert words in told(read)
    assert len(told(lambda: Run(tmp_path).config)) < 500


def test_a_config_may_use_a_few_aliases(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("optimizer: &o {lr: 0.2}\nschedule: {milestones: &m [1, 2]}\n")
    assert make_config(config=path).optimizer.lr == 0.2


@pytest.mark.parametrize(
    "setting",
    [
        "epochs=2026-13-45",
        "epochs=2026-01-01",
        "epochs=!!int x",
        "epochs=!!python/object:os.system x",
        "epochs=1e20",
        "epochs=" + "9" * 5000,
        "epochs=" + "[" * 5000,
        "epochs=100001",
        "batch_size=1000000000",
        "optimizer.lr=1e308",
        "optimizer.lr=1e5",
        "optimizer.weight_decay=1e9",
        "augmentation.padding=1e20",
        "augmentation.padding=513",
        "compute.accelerator=tpu",
        "compute.workers=10000",
        "compute.devices=100000",
        "compute.nodes=100000",
        "data.image_size=100000",
        "data.image_size=-1",
        "data.split_seed=" + "9" * 19,
        "seed=" + "9" * 19,
        "schedule.warmup_epochs=1e30",
        "schedule.milestones=[1000000]",
        "data.source=",
        "data.source=" + "x" * 4097,
        "objective=",
        "model.name=" + "x" * 4097,
        "a." * 5000 + "b=1",
        "x" * 60_000 + "=1",
        "epochs={a: " + "{b: " * 30 + "1" + "}" * 31,
        "data.imbalance=exp:1e400",
    ],
)
def test_every_setting_has_a_range_that_is_told(setting: str) -> None:
    text = told(lambda: make_config(settings=[setting]))
    assert len(text) < 400
