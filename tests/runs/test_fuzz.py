"""Whatever lies in a file of a run, its reader returns a value or says in one sentence what is wrong, and soon."""

import hashlib
import io
import json
import os
import resource
import shutil
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
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
from evenhand.experiments.comparison._alpha_spending import analyses_note, keep_decided
from evenhand.experiments.comparison.verdict import difference_sentence
from evenhand.report._listing import Listing
from evenhand.report._report_data import read_report_data
from evenhand.runs.comparison import read_recommended
from evenhand.runs.comparison_schemas import Difference
from evenhand.runs.filenames import CHECKED, CHECKSUMS
from evenhand.runs.interim_analyses import InterimAnalysis, read_interim_analyses
from evenhand.runs.run import Run
from evenhand.runs.weights_card import card_of
from evenhand.training.checkpoint import Card, load_classifier, load_state
from evenhand.training.predict import load
from tests.runs.test_old import OLD
from tests.training.runs import trainer_of

REAL = {path.relative_to(OLD).as_posix(): path.read_bytes() for path in OLD.rglob("*") if path.is_file()}
REAL["validation.npz"] = REAL["predictions.npz"]
REAL["checksums.json"] = json.dumps({"predictions.npz": ["0" * 64]}).encode()
REAL["adjustment.json"] = json.dumps(
    {"kind": "post-hoc", "chosen": "validation", "tau": 0.8, "prior": None, "added_to_logits": [0.1] * 10}
).encode()
DIFFERENCE = Difference(
    objective="cce",
    baseline="ce",
    metric="balanced_accuracy",
    seeds=3,
    mean=0.02,
    low=0.01,
    high=0.03,
    level=0.01,
    claimed=True,
    p=0.001,
)
ANALYSIS = InterimAnalysis(seeds=3, level=0.01, margin=0.01, picked=["ce", "cce"], differences=[DIFFERENCE])
REAL["looks.json"] = json.dumps({"it": [ANALYSIS.model_dump(mode="json")]}).encode()
REAL["comparison.json"] = json.dumps(
    {
        "source": "digits",
        "imbalance": "exp:20",
        "model": "resnet8",
        "baseline": "ce",
        "objectives": ["cce"],
        "seeds": [0],
        "recommended": "cce",
        "shot_rule": "by thirds",
        "runs": [{"objective": "cce", "seed": 0, "folder": "."}],
        "table": [{"objective": "cce", "seconds_per_epoch": 1.5, "balanced_accuracy": 0.6, "few": 0.2}],
        "differences": [DIFFERENCE.model_dump(mode="json")],
        "verdicts": ["Use cce."],
        "method": "none",
        "notes": [],
    }
).encode()

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
    "adjustment.json": (lambda run: run.adjustment, lambda run: load(run)),
    "looks.json": (lambda run: said_of(run),),
    "comparison.json": (
        lambda run: read_recommended(run),
        lambda run: read_report_data([run.path / "comparison.json"]),
        lambda run: (Listing(run.path).comparisons(), Listing(run.path).runs()),
    ),
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
        (run / name).unlink(missing_ok=True)
        (run / name).write_bytes(content)
        yield run


def assert_told(name: str, content: bytes) -> None:
    """As it is, and with a checksum that says it is what was written."""
    with holding(name, content) as folder:
        for checked in (False, True) if name in CHECKED else (False,):
            if checked:
                (folder / CHECKSUMS).write_text(json.dumps({name: [hashlib.sha256(content).hexdigest()]}))
            for read in READERS[name]:
                began, before = time.process_time(), memory()
                text = _told(read, Run(folder))
                assert "\n" not in text
                assert len(text) < 1000
                assert time.process_time() - began < 5
                assert memory() - before < 2**20 + len(content) // 2**10


def memory() -> int:
    """The most that this process has had, in kB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def said_of(run: Run) -> list[str]:
    """The sentences about the interim analyses of a comparison."""
    analyses = read_interim_analyses(run.path, "it")
    sentences = [difference_sentence(each) for each in keep_decided([DIFFERENCE], analyses)]
    return sentences + ([analyses_note(analyses, [3, 5])] if analyses else [])


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


JSON = [name for name in READERS if name.endswith(".json")]


def replaced(content: Any, data: st.DataObject) -> Any:
    """Put any value in some place of a structure."""
    if isinstance(content, dict) and content and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(content, key=str)))
        return {**content, key: replaced(content[key], data)}
    if isinstance(content, list) and content and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(content) - 1))
        return [*content[:place], replaced(content[place], data), *content[place + 1 :]]
    return data.draw(values)


@pytest.mark.parametrize("name", JSON)
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
    changed = data.draw(st.sampled_from(["epoch", "history", "rng", "optimizers", "model", "config"]))
    content[changed] = replaced(content.get(changed), data) if changed not in ("rng", "model") else data.draw(values)
    file = io.BytesIO()
    torch.save(content, file)
    assert_told("state/state.pt", file.getvalue())


@given(data=st.data())
@short
def test_any_card(data: st.DataObject) -> None:
    size = int.from_bytes(REAL["weights/best.safetensors"][:8], "little")
    head = json.loads(REAL["weights/best.safetensors"][8 : 8 + size])
    card = json.loads(head["__metadata__"]["evenhand"])
    card = {**card, "preprocessing": card.pop("view"), "head": "linear", "backbone": None, "interpolation": "bilinear"}
    changed = replaced(card, data) if data.draw(st.booleans()) else {**card, data.draw(keys): data.draw(values)}
    if data.draw(st.integers(0, 4)):
        head["__metadata__"]["evenhand"] = _json(changed)
    else:
        head = replaced(head, data)
    new = _json(head).encode("utf-8", "surrogatepass")
    content = len(new).to_bytes(8, "little") + new + REAL["weights/best.safetensors"][8 + size :]
    assert_told("weights/best.safetensors", content)


keys = st.sampled_from([field.name for field in fields(Card)])


def _json(content: object) -> str:
    try:
        return json.dumps(content)
    except ValueError:  # a number of more digits than Python writes
        return "{}"


@given(data=st.data())
@short
def test_any_state_is_refused_or_continued(data: st.DataObject) -> None:
    """What the reader lets through, the trainer can take up, or says that it cannot."""
    state = torch.load(io.BytesIO(REAL["state/state.pt"]), weights_only=True)
    where = data.draw(st.sampled_from(["model", "optimizers", "rng", "history"]))
    state[where] = replaced(state[where], data)
    file = io.BytesIO()
    torch.save(state, file)
    with holding("state/state.pt", file.getvalue()) as folder:
        trainer = trainer_of(Run(folder).config, folder)
        text = _told(lambda _: trainer.resume(), Run(folder))
        assert "\n" not in text


@pytest.mark.parametrize("name", ["predictions.npz", "validation.npz", "features.npz", "thumbnails.npz"])
@given(data=st.data())
@short
def test_any_heads_of_arrays(name: str, data: st.DataObject) -> None:
    """Members that say of themselves what is not so: shapes, kinds, lengths, names that come twice."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(io.BytesIO(REAL[name])) as real:
            members = {each: real.read(each) for each in real.namelist()}
        for each in data.draw(st.lists(st.sampled_from(sorted(members)), min_size=1, max_size=3)):
            shape = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 359, 2**20, 2**33, 2**62]), max_size=5))
            head = io.BytesIO()
            kind = data.draw(st.sampled_from(["<f4", "<f2", "|u1", "<i8", "<U3", "<U0", "|V0", "|b1", "<U100000"]))
            np.lib.format.write_array_header_1_0(
                head, {"descr": kind, "fortran_order": data.draw(st.booleans()), "shape": tuple(shape)}
            )
            length = data.draw(st.sampled_from([0, 1, 100, 4 * 359, 2**22]))
            members[each] = head.getvalue() + bytes(length)
            archive.writestr(each, members[each])
        for each, content in members.items():
            if data.draw(st.integers(0, 9)):
                archive.writestr(each, content)
    assert_told(name, file.getvalue())
