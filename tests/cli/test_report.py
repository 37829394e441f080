"""`evenhand report`: where the page is, and what is told when there can be none."""

from pathlib import Path

import pytest

from tests.fabricated import write_comparison_folder, write_pictured_run
from tests.trained import Trained, assert_one_sentence, evenhand

NAMES = ("cat", "dog", "owl")


def test_a_trained_run_gets_a_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, photos_run: Trained, tmp_path: Path
) -> None:
    target = tmp_path / "page.html"
    assert evenhand(capsys, monkeypatch, "report", photos_run.run, "--out", target) == (0, f"report: {target}\n", "")
    page = target.read_text()
    assert "öwl [bold]" in page
    assert "features.npz" not in page  # nothing is missing


def test_a_comparison_gets_a_page_in_its_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = write_comparison_folder(tmp_path, names=NAMES, seeds=1)
    code, out, _ = evenhand(capsys, monkeypatch, "report", folder)
    assert (code, out) == (0, f"report: {folder / 'report.html'}\n")


def test_what_cannot_be_reported_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert_one_sentence(evenhand(capsys, monkeypatch, "report", tmp_path), "is neither a run nor a comparison")
    run = write_pictured_run(tmp_path / "run", names=NAMES)
    (run / "predictions.npz").write_bytes(b"damaged")
    assert_one_sentence(evenhand(capsys, monkeypatch, "report", run), f"Cannot read {run / 'predictions.npz'}")
    other = write_pictured_run(tmp_path / "other", names=NAMES)
    assert_one_sentence(evenhand(capsys, monkeypatch, "report", other, run), "choose a file with --out")
    assert not list(tmp_path.rglob("report.html"))
