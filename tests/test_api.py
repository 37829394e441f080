"""What `import evenhand` offers, and that asking for nothing costs nothing."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import evenhand

ROOMS = (
    "losses", "metrics", "statistics", "data", "models", "objectives", "runs", "training", "experiments",
    "experiments.grid", "experiments.comparison", "report", "paper",
)  # fmt: skip


LISTED = ("evenhand.objectives", "evenhand.training")
"""Rooms whose files are public by design: one for each kind of part, and one for each step of training."""


def room(name: str) -> ModuleType:
    return importlib.import_module(f"evenhand.{name}")


@pytest.mark.parametrize("name", ROOMS)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    exported = room(name).__all__
    assert exported
    for each in exported:
        value = getattr(room(name), each)
        assert value.__doc__, each
        assert not each.startswith("_")
    assert set(exported) <= set(dir(room(name)))


@pytest.mark.parametrize("name", ["", *ROOMS])
def test_no_public_name_is_hidden_by_a_module(name: str) -> None:
    package = room(name) if name else evenhand
    modules = {module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg}
    assert not modules & set(package.__all__)


def test_the_names_at_the_top() -> None:
    wanted = {"train", "compare", "load", "list_objectives", "list_models", "list_datasets", "EvenhandError"}
    losses = {name for name in room("losses").__all__ if name.endswith("Loss")}
    assert set(evenhand.__all__) == wanted | losses | {name for name in ROOMS if "." not in name}
    assert set(dir(evenhand)) == set(evenhand.__all__)
    assert "ComplementCrossEntropyLoss" in losses
    assert {"resnet8", "digits", "cce"} <= {
        *evenhand.list_models(),
        *evenhand.list_datasets(),
        *evenhand.list_objectives(),
    }


@pytest.mark.parametrize("name", ["nonsense", "_homes", "Train"])
def test_what_is_not_there_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"No evenhand attribute {name}"):
        getattr(evenhand, name)
    with pytest.raises(ImportError):
        exec(f"from evenhand.losses import {name}")


# Each room in a copy of a process that has imported others' packages, which are slow, and nothing of this one.
FRESH = """
import os, sys
import lightning_fabric, numpy, scipy.stats, torch, torchvision
for name, first in {firsts!r}.items():
    if os.fork() == 0:
        assert "evenhand" not in sys.modules
        import evenhand
        room = eval("evenhand." + name)
        assert getattr(room, first) is not None
        print(name, sorted(dir(room)), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, name
"""


def test_a_room_is_there_in_a_fresh_process() -> None:
    """Lazily: `import evenhand` alone is enough, and each public name of the room can be used."""
    code = FRESH.format(firsts={name: room(name).__all__[0] for name in ROOMS})
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} {sorted(room(name).__all__)}" for name in ROOMS]


def test_importing_every_room_needs_neither_torch_nor_numpy() -> None:
    code = f"import sys, evenhand\nfor name in {ROOMS!r}: __import__('evenhand.' + name)\n"
    code += "evenhand.EvenhandError, evenhand.__version__\n"
    code += "print([name for name in ('torch', 'numpy', 'matplotlib', 'rich') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_names_of_the_public_api_have_types(tmp_path: Path) -> None:
    """Type checkers see what is exported, and refuse what is not."""
    (tmp_path / "right.py").write_text(
        "from evenhand import ComplementCrossEntropyLoss, load\n"
        "from evenhand.experiments.comparison import compare_runs, judge_differences\n"
        "reveal_type(ComplementCrossEntropyLoss)\n"
    )
    (tmp_path / "wrong.py").write_text("from evenhand.losses import nonsense\n")
    source = Path(evenhand.__file__).parent.parent
    command = [sys.executable, "-m", "mypy", "--no-incremental", "--follow-imports=silent", "--config-file="]
    done = subprocess.run(
        [*command, str(tmp_path)], capture_output=True, text=True, check=False, env={"MYPYPATH": str(source)}
    )
    assert "def (" in done.stdout
    assert 'wrong.py:1: error: Module "evenhand.losses" has no attribute "nonsense"' in done.stdout
    assert "right.py" not in done.stdout.replace("right.py:3: note", "")


def test_training_and_using_a_model_from_python(tmp_path: Path) -> None:
    run = evenhand.train(
        "digits", imbalance="exp:5", epochs=1, seed=3, out=tmp_path / "run", settings=["batch_size=64"]
    )
    config = importlib.import_module("evenhand.runs").load_config(tmp_path / "run" / "config.yaml")
    assert (config.data.imbalance, config.epochs, config.seed, config.batch_size) == ("exp:5", 1, 3, 64)
    model = evenhand.load(run)
    answers = model.predict(np.zeros((2, 8, 8, 1), np.uint8)).probabilities
    assert answers.shape == (2, 10)
    np.testing.assert_allclose(answers.sum(axis=1), 1, rtol=1e-5)
    with pytest.raises(evenhand.EvenhandError, match="run"):
        evenhand.train("digits", epochs=1, out=tmp_path / "run")


def test_a_loss_is_a_module() -> None:
    loss = evenhand.ComplementCrossEntropyLoss()(torch.zeros(2, 3, requires_grad=True), torch.tensor([0, 2]))
    assert loss.shape == ()


def _imports() -> list[tuple[str, str]]:
    """Return who imports which module of the package: pairs of module names."""
    root = Path(evenhand.__file__).parent
    names = {".".join(path.relative_to(root.parent).with_suffix("").parts): path for path in root.rglob("*.py")}
    found = []
    for name, path in names.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("evenhand"):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    found.append((name, whole if whole in names else node.module))
    return found


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def test_what_only_its_room_uses_begins_with_an_underscore() -> None:
    """Of modules right in a room, or in a part of `experiments`; what a room keeps deeper is its own affair anyway."""
    users: dict[str, set[str]] = {}
    for user, used in _imports():
        users.setdefault(used, set()).add(_room(user))
    gates = [f"evenhand.{name}" for name in ROOMS]
    wrong = []
    for gate in gates:
        for found in pkgutil.iter_modules(importlib.import_module(gate).__path__):
            module = f"{gate}.{found.name}"
            exported = f"from .{found.name} import" in Path(room(gate[9:]).__path__[0], "__init__.pyi").read_text()
            inside = users.get(module, set()) <= {_room(gate)} and not exported
            if not found.ispkg and inside and not found.name.startswith("_") and gate not in LISTED:
                wrong.append(module)
    assert wrong == []


def test_no_room_reaches_into_what_another_keeps_to_itself() -> None:
    reached = [
        (user, used)
        for user, used in _imports()
        if any(part.startswith("_") and part != "__init__" for part in used.split(".")) and _room(user) != _room(used)
    ]
    assert reached == []
