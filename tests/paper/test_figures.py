"""The paper's figures from the runs of a study."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.paper._figures import DRAWN, draw_paper_figure
from evenhand.runs.config import make_config
from evenhand.runs.run import Run
from evenhand.runs.schemas import Features
from evenhand.training.run import train_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("study")
    flags = {"data__imbalance": "exp:20", "epochs": 2, "track_test": True}
    return [
        train_run(make_config(objective=objective, seed=seed, **flags), root / f"{objective}-{seed}").path
        for objective in ("ce", "cce")
        for seed in (0, 1)
    ]


@pytest.mark.parametrize("name", DRAWN)
def test_each_figure_is_drawn_from_runs_in_three_formats(
    name: str, runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where t-SNE puts the points is tested with the figures of reports.
    monkeypatch.setattr("evenhand.report.figures.embedding.embed", lambda features, **_: features[:, :2])
    written = draw_paper_figure(name, runs, tmp_path)
    stem = f"{name}_digits_exp-20_resnet8"
    assert [path.name for path in written] == [f"{stem}.png", f"{stem}.svg", f"{stem}.pdf"]
    with Image.open(written[0]) as picture:
        assert picture.width > 300
        assert len(np.unique(np.asarray(picture.convert("L")))) > 20  # not blank


def test_runs_of_other_conditions_get_pictures_of_their_own(runs: list[Path], tmp_path: Path) -> None:
    other = train_run(make_config(objective="ce", epochs=1, track_test=True), tmp_path / "other").path
    written = draw_paper_figure("figure-convergence", [*runs, other], tmp_path)
    assert {path.stem for path in written} == {
        "figure-convergence_digits_exp-20_resnet8",
        "figure-convergence_digits_resnet8",
    }


def test_images_of_another_order_keep_their_targets(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may keep the features of other images, and in another order."""
    folders = [Path(shutil.copytree(run, tmp_path / run.name)) for run in (runs[0], runs[2])]
    other = Run(folders[1])
    kept = other.features
    order = np.random.default_rng(0).permutation(len(kept.ids))[10:]
    other.write_features(Features(kept.features[order], kept.targets[order], kept.ids[order]))
    drawn: dict[str, Any] = {}

    def draw(features: dict[str, Any], targets: Any, *_: object) -> Figure:
        drawn.update(features=features, targets=targets)
        return Figure()

    monkeypatch.setattr("evenhand.report.figures.feature_embeddings", draw)
    draw_paper_figure("figure-tsne", folders, tmp_path)
    assert len(drawn["targets"]) == len(kept.ids) - 10
    for run, own in zip(map(Run, folders), drawn["features"].values(), strict=True):
        target_of = {row.tobytes(): k for row, k in zip(run.features.features, run.features.targets, strict=True)}
        assert [target_of[row.tobytes()] for row in own] == drawn["targets"].tolist()


def test_without_a_run_there_is_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match="no finished run to draw figure-errors from"):
        draw_paper_figure("figure-errors", [], tmp_path)


def test_a_run_without_its_thumbnails_is_reported(runs: list[Path], tmp_path: Path) -> None:
    copy = shutil.copytree(runs[0], tmp_path / "copy")
    (copy / "thumbnails.npz").unlink()
    with pytest.raises(EvenhandError, match=r"thumbnails\.npz is missing"):
        draw_paper_figure("figure-errors", [copy], tmp_path)
