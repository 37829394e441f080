"""Whatever lies in a file of a run, its reader returns a value or says in one sentence what is wrong, and soon."""

import io
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evenhand.core.errors import EvenhandError
from evenhand.runs.folder import Run, card_of
from evenhand.training._checkpoint import load_classifier, load_state
from tests.runs.test_old import OLD

REAL = {path.relative_to(OLD).as_posix(): path.read_bytes() for path in OLD.rglob("*") if path.is_file()}
REAL["validation.npz"] = REAL["predictions.npz"]
REAL["checksums.json"] = json.dumps({"predictions.npz": ["0" * 64]}).encode()

READERS: dict[str, tuple[Callable[[Run], object], ...]] = {
    "config.yaml": (lambda run: run.config, lambda run: run.command, lambda run: run.history),
    "environment.json": (lambda run: run.environment,),
    "splits.json": (lambda run: run.splits, lambda run: run.predictions),
    "history.csv": (lambda run: run.history,),
    "predictions.npz": (lambda run: run.predictions, lambda run: run.summary, lambda run: run.features),
    "validation.npz": (lambda run: run.validation_predictions,),
    "features.npz": (lambda run: run.features,),
    "thumbnails.npz": (lambda run: run.thumbnails,),
    "summary.json": (lambda run: run.summary,),
    "checksums.json": (lambda run: run.predictions,),
    "weights/best.safetensors": (
        lambda run: card_of(run.best_weights),
        lambda run: load_classifier(run.best_weights),
        lambda run: run.predictions,
    ),
    "state/state.pt": (lambda run: load_state(run.state, run.config),),
}
short = settings(
    deadline=None,
    derandomize=True,
    max_examples=int(os.environ.get("EVENHAND_FUZZ", "12")),  # more of them search longer
    database=None,
    suppress_health_check=list(HealthCheck),
)


@contextmanager
def holding(name: str, content: bytes) -> Iterator[Path]:
    """A copy of the real run in which one file holds this."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(shutil.copytree(OLD, Path(folder) / "run"))
        (run / name).write_bytes(content)
        yield run


def assert_told(name: str, content: bytes) -> None:
    with holding(name, content) as folder:
        for read in READERS[name]:
            began = time.process_time()
            text = _told(read, Run(folder))
            assert "\n" not in text
            assert len(text) < 1000
            assert time.process_time() - began < 5


def _told(read: Callable[[Run], object], run: Run) -> str:
    try:
        read(run)
    except EvenhandError as error:
        return str(error)
    return ""


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["nan", "1e999", "=1+1", "\x1b[31m", "\u202e", "", "\ud800", "0"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("name", READERS)
@given(content=st.binary(max_size=400))
@short
def test_random_bytes(name: str, content: bytes) -> None:
    assert_told(name, content)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@short
def test_random_edits_of_real_files(name: str, data: st.DataObject) -> None:
    content = bytearray(REAL[name])
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, max(len(content) - 1, 0)))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "repeat", "zero"]))
        if kind == "flip" and content:
            content[place] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del content[place : place + data.draw(st.integers(1, 400))]
        elif kind == "insert":
            content[place:place] = data.draw(st.binary(max_size=40))
        elif kind == "repeat":
            content += content[place : place + 1000]
        else:
            content[place : place + 100] = bytes(100)
    assert_told(name, bytes(content))


def replaced(content: Any, data: st.DataObject) -> Any:
    """Put any value in some place of a structure."""
    if isinstance(content, dict) and content and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(content, key=str)))
        return {**content, key: replaced(content[key], data)}
    if isinstance(content, list) and content and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(content) - 1))
        return [*content[:place], replaced(content[place], data), *content[place + 1 :]]
    return data.draw(values)


@pytest.mark.parametrize("name", ["environment.json", "splits.json", "summary.json", "checksums.json"])
@given(data=st.data())
@short
def test_json_with_any_value_in_any_place(name: str, data: st.DataObject) -> None:
    content = replaced(json.loads(REAL[name]), data)
    try:
        text = json.dumps(content)
    except ValueError:  # a number of more digits than Python writes
        return
    assert_told(name, text.encode())


@given(data=st.data())
@short
def test_yaml_with_any_value_in_any_place(data: st.DataObject) -> None:
    content = replaced(yaml.safe_load(REAL["config.yaml"]), data)
    try:
        text = yaml.safe_dump(content)
    except (ValueError, yaml.YAMLError):
        return
    assert_told("config.yaml", text.encode("utf-8", "surrogatepass"))


@given(text=st.text("ab:-[]{}&*!?|>'\"%@`#, \n\t0123456789.x<", max_size=120))
@short
def test_text_that_looks_like_yaml(text: str) -> None:
    assert_told("config.yaml", text.encode())


@given(
    rows=st.lists(
        st.lists(st.sampled_from(["1", "2", "nan", "inf", "-1", "x", "", '"', "1e400"]), max_size=4), max_size=4
    ),
    head=st.lists(st.sampled_from(["epoch", "seconds", "val_accuracy", "", "x"]), max_size=4),
)
@short
def test_any_table_as_a_history(rows: list[list[str]], head: list[str]) -> None:
    assert_told("history.csv", "\n".join(",".join(row) for row in [head, *rows]).encode())


kinds = st.sampled_from(
    ["float32", "float16", "int64", "uint8", "U3", "S3", "bool", "complex64", ">f4", "M8[s]", "object"]
)


@pytest.mark.parametrize("name", ["predictions.npz", "validation.npz", "features.npz", "thumbnails.npz"])
@given(data=st.data())
@short
def test_any_arrays(name: str, data: st.DataObject) -> None:
    with np.load(io.BytesIO(REAL[name])) as stored:
        arrays: dict[str, Any] = dict(stored)
    for key in data.draw(st.lists(st.sampled_from(sorted(arrays)), min_size=1, unique=True)):
        kind = data.draw(kinds)
        shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
        arrays[key] = np.zeros(shape, kind) if data.draw(st.booleans()) else arrays[key][:5]
    file = io.BytesIO()
    data.draw(st.sampled_from([np.savez, np.savez_compressed]))(file, **arrays)
    assert_told(name, file.getvalue())


@given(data=st.data())
@short
def test_any_state(data: st.DataObject) -> None:
    state = torch.load(io.BytesIO(REAL["state/state.pt"]), weights_only=True)
    content = {key: value for key, value in state.items() if data.draw(st.integers(0, 9))}
    changed = data.draw(st.sampled_from(["epoch", "history", "best", "rng", "optimizers", "model", "config"]))
    content[changed] = replaced(content.get(changed), data) if changed not in ("rng", "model") else data.draw(values)
    file = io.BytesIO()
    torch.save(content, file)
    assert_told("state/state.pt", file.getvalue())
