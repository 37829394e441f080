"""A wheel and a source distribution bring the kernel; without a compiler the package installs and works too."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest
import torch

from evenhand.losses.kernels import native

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="the tests run without the source of the package"),
]
needs_kernel = pytest.mark.skipif(native.level == 0, reason=f"no native kernel: {native.why_not}")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Copy what a fresh clone has, and nothing that was built."""
    folder = tmp_path_factory.mktemp("clone") / "evenhand"
    folder.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "docs" / "guide", folder / "docs" / "guide")
    (folder / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "test_api.py", folder / "tests")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    return folder


def without_compiler() -> dict[str, str]:
    """Return an environment in which no compiler is found."""
    return os.environ | {"CC": "/nowhere/cc", "PATH": str(Path(sys.executable).parent)}


def pip(*arguments: object, environment: dict[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "pip", *(str(argument) for argument in arguments)]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--no-index", "--no-deps"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def make_sdist(source: Path, folder: Path) -> Path:
    code = f"import setuptools.build_meta as b; print(b.build_sdist({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    return next(folder.glob("*.tar.gz"))


class Environment:
    """An empty environment that borrows the packages evenhand needs, but not evenhand."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        self.packages = next(folder.glob("lib/python*/site-packages"))
        # A folder named in a .pth is searched, but the .pth files in it, as that of an editable evenhand, are not read.
        (self.packages / "borrowed.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")

    def install(self, *what: object, environment: dict[str, str] | None = None) -> None:
        # pip also sees the evenhand of the borrowed packages, and of PYTHONPATH.
        options = ("--no-build-isolation", "--ignore-installed")
        pip("--python", self.python, "install", *options, *what, environment=environment)

    def ask(self, code: str) -> str:
        environment = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "EVENHAND_BACKEND")
        }
        done = subprocess.run(
            [self.python, "-c", code], env=environment, cwd=self.packages, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def guide(self) -> set[str]:
        """Return the pages that `evenhand guide` finds in the package."""
        found = self.ask(
            "from evenhand.cli.guide import guide_folder as f; print(f()); print(*(p.stem for p in f().glob('*.md')))"
        )
        folder, _, pages = found.partition("\n")
        assert Path(folder) == self.packages / "evenhand" / "guide"
        return set(pages.split())

    def backend(self) -> str:
        """Return what computes the loss there, and check that it computes."""
        return self.ask(
            "import evenhand, torch;"
            "from evenhand.losses.kernels.backend import chosen;"
            f"assert evenhand.__file__.startswith({str(self.packages)!r}), evenhand.__file__;"
            "z = torch.zeros(3, 5, requires_grad=True);"
            "loss = evenhand.ComplementCrossEntropyLoss()(z, torch.tensor([0, 1, 4])); loss.backward();"
            "assert abs(loss.item() - 1.2628643) < 1e-6 and abs(z.grad[0, 0].item() + 0.8 / 3) < 1e-6;"
            "print(chosen.cpu)"
        )


@needs_kernel
def test_a_wheel_brings_the_kernel(source, tmp_path):
    pip("wheel", "--no-build-isolation", "--wheel-dir", tmp_path, source)
    environment = Environment(tmp_path / "env")
    wheel = next(tmp_path.glob("*.whl"))
    assert wheel.name.split("-")[2:4] == ["py3", "none"]  # one for all Pythons of the platform
    assert not wheel.name.endswith("-any.whl")
    environment.install(wheel)
    assert environment.backend() == "native"
    assert environment.guide() == {page.stem for page in (ROOT / "docs" / "guide").glob("*.md")}


@needs_kernel
def test_a_source_distribution_brings_the_kernel(source, tmp_path):
    environment = Environment(tmp_path / "env")
    sdist = make_sdist(source, tmp_path)
    with tarfile.open(sdist) as file:
        assert not [name for name in file.getnames() if "/tests/" in name]  # setuptools would add some of them
    environment.install(sdist)
    assert environment.backend() == "native"
    assert environment.guide() == {page.stem for page in (ROOT / "docs" / "guide").glob("*.md")}


def test_without_a_compiler_everything_works_on_eager(source, tmp_path):
    environment = Environment(tmp_path / "env")
    environment.install(make_sdist(source, tmp_path), environment=without_compiler())
    assert not list(environment.packages.glob("evenhand/losses/kernels/*.so"))
    assert environment.backend() == "eager"
    why = environment.ask("from evenhand.losses.kernels.backend import why_not; print(why_not('native'))")
    assert "compiler" in why
    # The tests of the losses themselves, on what was installed.
    done = subprocess.run(
        [environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "tests/losses/test_values.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONNOUSERSITE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_an_editable_install_without_a_compiler(source, tmp_path):
    environment = Environment(tmp_path / "env")
    environment.install("--editable", source, environment=without_compiler())
    assert environment.ask("from evenhand.losses.kernels.backend import chosen; print(chosen.cpu)") == "eager"
