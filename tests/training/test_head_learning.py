"""Every objective learns a last layer on frozen features with the recipe for photos."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.models.discriminants import linear_discriminants
from evenhand.models.heads import CosineHead
from evenhand.objectives.part import PARTS
from evenhand.runs.config import Config, make_config
from evenhand.training import prepare
from evenhand.training.checkpoint import load_weights
from evenhand.training.features import ExtractedFeatures
from evenhand.training.loop import Callback
from evenhand.training.run import train_run
from evenhand.training.second_stage import second_stage
from tests.data.pictures import encode, write
from tests.real_data import DATA, needs
from tests.training.runs import trainer_of

COUNTS = (60, 40, 28, 20, 14, 10)
"""Images per class, of which a fifth is tested."""
COMBINED = (
    "ldam+drw",
    "balanced-softmax+cosine",
    "cce+cosine:scale=16",
    "ce+cosine:scale=100",
    "ce+cosine:lda=0.3:scale=20+post-hoc:tau=1",
    "ce+cosine+sampling",
    "focal+cosine+mixup",
    "ldam:scale=60",
)

REAL = ("ketch", "schooner", "crab", "lobster", "lotus")
"""Classes of the shared photos, some alike."""


def every_objective() -> list[str]:
    """Each part that a comparison on features takes, alone or with ce, and combinations with normalised heads."""
    pixels = ("cutmix", "erasing", "randaugment", "trivialaugment")
    parts = [part for part in PARTS.values() if part.kind != "stage" and part.name not in pixels]
    alone = [part.name if part.kind in ("loss", "logits") else f"ce+{part.name}" for part in parts]
    return [*alone, *COMBINED]


def features_like_real_ones(labels: NDArray[np.int64]) -> NDArray[np.float16]:
    """Non-negative, of length 14 or so, with a cosine of 0.3 between most images, as lite0's of photos."""
    random = np.random.default_rng(0)
    means = 0.35 * random.normal(size=(labels.max() + 1, 1280)) - 0.1
    return np.maximum(means[labels] + 0.5 * random.normal(size=(len(labels), 1280)), 0).astype(np.float16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    picture = encode(np.zeros((100, 100, 3), np.uint8))
    write(root, {f"{k}/{i}.png": picture for k, number in enumerate(COUNTS) for i in range(number)})
    return root


@pytest.fixture
def config(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    labels = np.repeat(np.arange(len(COUNTS)), COUNTS)
    found = ExtractedFeatures(features_like_real_ones(labels)[:, None], {})
    monkeypatch.setattr(prepare, "extract_features", lambda *_, **__: found)
    return config_of(folder)


def config_of(source: Path) -> Config:
    settings = ["compute.precision=float32", "compute.accelerator=cpu"]
    return make_config("photos", settings=settings, data__source=str(source))


@pytest.mark.parametrize("objective", every_objective())
def test_every_objective_learns(objective, config, tmp_path):
    run = train_run(config.model_copy(update={"objective": objective}), tmp_path / "run")
    assert run.summary.balanced_accuracy > 0.8  # guessing gives a sixth


@pytest.mark.parametrize(
    ("objective", "stage"),
    [("ce", "crt"), ("ce", "lws"), ("cce+mixup", "crt"), ("ce+cosine:lda=0.3", "crt"), ("ldam", "crt")],
)
def test_second_stages_learn(objective, stage, config, tmp_path):
    first = train_run(config.model_copy(update={"objective": objective}), tmp_path / "first")
    run = train_run(second_stage(first.path, stage), tmp_path / "second")
    assert run.summary.objective == f"{objective}+{stage}"
    assert run.summary.balanced_accuracy > 0.8


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("real")
    for name in REAL:
        files = sorted((DATA / "photos" / name).iterdir())[:40]
        write(root, {f"{name}/{file.name}": file.read_bytes() for file in files})
    return root


@pytest.mark.slow
@needs("photos")
@pytest.mark.parametrize("objective", every_objective())
def test_every_objective_learns_real_photos(objective, real, tmp_path):
    run = train_run(config_of(real).model_copy(update={"objective": objective}), tmp_path / "run")
    assert run.summary.balanced_accuracy > 0.7  # guessing gives a fifth


@pytest.mark.parametrize("scale", [0.5, 16, 30, 90])
def test_a_cosine_head_starts_at_the_class_means(scale, config, tmp_path):
    trainer = trainer_of(config.model_copy(update={"objective": f"ce+cosine:scale={scale}"}), tmp_path / "run")
    head = next(module for module in trainer.model.modules() if isinstance(module, CosineHead))
    prepared, weights = trainer.prepared, np.asarray(head.weight.detach(), np.float64)
    rows, labels = prepared.rows[prepared.splits.train], prepared.table.labels[prepared.splits.train]
    features = np.asarray(prepared.images.features[:, 0], np.float64)[rows]
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    for k in range(len(COUNTS)):
        mean = features[labels == k].mean(0)
        assert weights[k] @ mean / np.linalg.norm(weights[k]) / np.linalg.norm(mean) == pytest.approx(1, abs=1e-5)
    assert np.linalg.norm(weights, axis=1) == pytest.approx(max(1, scale / 30), rel=1e-5)


def test_discriminants_are_fitted_to_the_training_images_and_kept(config, tmp_path):
    objective = "ce+cosine:lda=0.3:scale=20"
    trainer = trainer_of(config.model_copy(update={"objective": objective}), tmp_path / "run")
    head = next(module for module in trainer.model.modules() if isinstance(module, CosineHead))
    prepared = trainer.prepared
    rows, labels = prepared.rows[prepared.splits.train], prepared.table.labels[prepared.splits.train]
    features = F.normalize(prepared.images.features[rows, 0].float())
    weight, bias = linear_discriminants(features, torch.from_numpy(labels), len(COUNTS))
    before = 0.3 * weight
    assert torch.equal(head.lda_weight, before)
    assert torch.equal(head.lda_bias, 0.3 * bias)
    trainer.train(0, Callback())
    assert torch.equal(head.lda_weight, before)


@pytest.mark.parametrize(("first", "second"), [("", ":lda=0.3"), (":lda=0.3", ""), (":lda=0.3", ":lda=0.5")])
def test_discriminants_of_another_run_are_not_taken(first, second, config, tmp_path):
    def trained(name, lda, **update):
        update["objective"] = f"ce+cosine{lda}:scale=20"
        return train_run(config.model_copy(update=update), tmp_path / name)

    start = config.start.model_copy(update={"weights": str(trained("first", first, epochs=1).path)})
    run = trained("second", second, start=start)
    fresh = trained("fresh", second, epochs=1)
    found, expected = (load_weights(each.best_weights)[0].get("network.head.lda_weight") for each in (run, fresh))
    assert found is expected is None if second == "" else torch.equal(found, expected)
    assert run.summary.balanced_accuracy > 0.8


def test_discriminants_need_features(tmp_path):
    config = make_config(objective="ce+cosine:lda=0.3", data__source="digits", epochs=1)
    with pytest.raises(EvenhandError, match="lda of cosine needs the features of a frozen network, but all layers"):
        train_run(config, tmp_path / "run")


def test_a_class_without_images_has_a_direction():
    head = CosineHead(8, 3, scale=30)
    head.start_at(torch.cat([torch.eye(8)[:2], 1e-6 * torch.ones(1, 8)]))
    assert torch.allclose(head.weight.norm(dim=1), torch.ones(3))


def test_logits_and_gradients_are_those_of_normalised_vectors():
    head = CosineHead(8, 3, scale=20).double()
    features = torch.cat([torch.randn(4, 8), torch.zeros(1, 8)]).double().requires_grad_()
    expected = 20 * F.linear(F.normalize(features), F.normalize(head.weight))
    inputs = [features, head.weight]
    assert torch.allclose(head(features), expected)
    found, wanted = (
        torch.autograd.grad(logits[:4].logsumexp(1).sum(), inputs) for logits in (head(features), expected)
    )
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other)
