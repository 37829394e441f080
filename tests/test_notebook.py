"""Progress and tables in a notebook: a real Jupyter kernel."""

import sys
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.notebook import NotebookBar, in_notebook

CODE = """
import evenhand
run = evenhand.train("digits", epochs=3, out={out!r} + "/run")
found = evenhand.load(run).predict(evenhand.data.load_source("digits").pixels.images[:3])
"""


def test_elsewhere_there_is_no_bar() -> None:
    assert not in_notebook()
    interactive = pytest.importorskip("IPython.core.interactiveshell", reason="needs IPython")
    shell = interactive.InteractiveShell.instance()
    try:
        assert not in_notebook()  # a terminal
        shell.config.IPKernelApp = type(shell.config)()  # as a kernel has it
        assert in_notebook()
    finally:
        interactive.InteractiveShell.clear_instance()


def test_a_bar_is_updated_in_place() -> None:
    display = pytest.importorskip("IPython.utils.capture", reason="needs IPython")
    interactive = pytest.importorskip("IPython.core.interactiveshell", reason="needs IPython")
    interactive.InteractiveShell.instance()
    try:
        with display.capture_output(display=True) as shown:
            bar = NotebookBar()
            bar.show(0, 10, "<b>begun</b>")
            bar.show(1, 10, "too soon")
            bar.show(10, 10, "done", now=True)
        first, *others = shown.outputs
        assert first.data["text/html"] == '<progress value="0" max="10"></progress> &lt;b&gt;begun&lt;/b&gt;'
        assert [each.data["text/plain"] for each in others] == ["done"]
    finally:
        interactive.InteractiveShell.clear_instance()


def run_cell(client: Any, code: str) -> list[dict[str, Any]]:
    """Run code in a kernel; return what it displays, and fail where it fails."""
    messages: list[dict[str, Any]] = []
    answer = client.execute_interactive(code, output_hook=messages.append, timeout=500)["content"]
    assert answer["status"] == "ok", answer
    return messages


@pytest.mark.slow
def test_a_notebook_shows_progress_and_tables(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel", reason="needs ipykernel")
    manager = pytest.importorskip("jupyter_client", reason="needs jupyter_client")
    kernel, client = manager.manager.start_new_kernel(startup_timeout=200, cwd=str(tmp_path))
    try:
        run_cell(client, f"import sys; sys.path[:] = {sys.path!r}")
        shown = run_cell(client, CODE.format(out=str(tmp_path)))
        bars = [each for each in shown if each["msg_type"] in ("display_data", "update_display_data")]
        assert bars[0]["msg_type"] == "display_data"
        assert {each["msg_type"] for each in bars[1:]} == {"update_display_data"}
        last = bars[-1]["content"]["data"]
        assert last["text/html"].startswith('<progress value="3" max="3"></progress> epoch 3/3, loss ')
        assert "validation balanced accuracy" in last["text/plain"]
        (table,) = [each for each in run_cell(client, "found") if each["msg_type"] == "execute_result"]
        assert table["content"]["data"]["text/html"].count("<tr>") == 4
        given = f"objectives=['ce', 'cce'], seeds=1, epochs=1, jobs=1, out={str(tmp_path / 'c')!r}"
        compared = run_cell(client, f"evenhand.compare('digits', {given})")
        texts = [each["content"]["data"]["text/plain"] for each in compared if "display_data" in each["msg_type"]]
        assert texts[0].startswith("0 of 2 runs done")
        assert texts[-1].startswith("2 of 2 runs done")
        assert any("text/markdown" in each["content"].get("data", {}) for each in compared)
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
