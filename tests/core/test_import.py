"""What `import evenhand` does to the process: one default in the environment, and nothing heavy is loaded."""

import os
import subprocess
import sys

import pytest

# Prints the setting at the moment when torch is looked for, and ends.
WATCHING = """
import os, sys

class Watching:
    def find_spec(self, name, *_):
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Watching())
"""


def run(code: str, **environment: str) -> str:
    clean = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "ONEDNN_MAX_CPU_ISA")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**clean, **environment}
    ).stdout.strip()


@pytest.mark.parametrize("first", ["import evenhand", "import evenhand.cli", "from evenhand.losses import functional"])
def test_threads_wait_asleep(first: str) -> None:
    assert run(f"{WATCHING}\n{first}\nimport torch") == "PASSIVE"


@pytest.mark.parametrize("value", ["ACTIVE", ""])
def test_what_the_user_has_set_stays(value: str) -> None:
    assert run("import evenhand, os; print(os.environ['OMP_WAIT_POLICY'])", OMP_WAIT_POLICY=value) == value


def test_nothing_is_set_after_torch_was_loaded() -> None:
    code = "import os, sys; sys.modules['torch'] = sys; import evenhand; print('OMP_WAIT_POLICY' in os.environ)"
    assert run(code) == "False"


def test_nothing_heavy_is_loaded() -> None:
    code = "import sys, evenhand; print(sorted({'torch', 'numpy', 'pydantic', 'typer'} & set(sys.modules)))"
    assert run(code) == "[]"
