"""Linear discriminants against numpy in double precision and against scikit-learn."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from evenhand.models import discriminants
from evenhand.models.build import build_model
from evenhand.models.discriminants import SHRINKAGE, linear_discriminants
from evenhand.models.heads import CosineHead, replace_head


def samples(counts: tuple[int, ...], size: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(len(counts)), counts)
    mixing = random.normal(size=(size, size)) / size**0.5
    features = 2 * random.normal(size=(len(counts), size))[labels] + random.normal(size=(len(labels), size)) @ mixing
    return torch.from_numpy(features).float(), torch.from_numpy(labels)


@pytest.mark.parametrize("size", [5, 200])
@pytest.mark.parametrize("counts", [(30, 30, 30), (40, 12, 1), (20, 0, 9, 3)])
def test_more_images_than_features_or_fewer(counts, size):
    features, labels = samples(counts, size)
    weight, bias = linear_discriminants(features, labels, len(counts))
    x, y = features.double().numpy(), labels.numpy()
    kept = [k for k, count in enumerate(counts) if count]
    means = np.stack([x[y == k].mean(0) for k in kept])
    deviations = x - means[np.searchsorted(kept, y)]
    degrees = len(x) - len(kept)
    covariance = deviations.T @ deviations / degrees
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * covariance.trace() / min(degrees, size) * np.eye(size)
    offsets = means - means.mean(0)
    expected = np.linalg.solve(shrunk, offsets.T).T
    expected /= np.sqrt((expected * offsets).sum(1)).mean()
    assert_allclose(weight[kept], expected, atol=1e-3 * np.abs(expected).max())
    assert_allclose(bias[kept], -expected @ means.mean(0), atol=1e-3)
    assert not weight[[k for k, count in enumerate(counts) if not count]].any()


def test_the_directions_are_those_of_scikit_learn():
    features, labels = samples((50, 50, 50), 6)
    weight, _ = linear_discriminants(features, labels, 3)
    other = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=SHRINKAGE).fit(features.numpy(), labels.numpy())
    expected = other.coef_ - other.coef_.mean(0)
    expected *= float(weight.norm()) / np.linalg.norm(expected)
    assert_allclose(weight, expected, atol=2e-3)


def test_the_covariance_of_many_images_is_that_of_some(monkeypatch):
    features, labels = samples((300, 200, 100), 8)
    expected, _ = linear_discriminants(features, labels, 3)
    monkeypatch.setattr(discriminants, "MOST_IMAGES", 300)
    found, _ = linear_discriminants(features, labels, 3)
    assert not torch.equal(found, expected)
    assert torch.cosine_similarity(found, expected).min() > 0.98


@pytest.mark.parametrize("repeats", [1, 4])
def test_images_that_do_not_vary_have_none(repeats):
    features = (torch.eye(3) / 3 + 0.1).repeat(repeats, 1)
    weight, bias = linear_discriminants(features, torch.arange(3).repeat(repeats), 3)
    assert not weight.any()
    assert not bias.any()


def test_they_are_added_in_evaluation_only():
    torch.manual_seed(0)
    head, features = CosineHead(8, 3, scale=20, lda=0.3), 5 * torch.randn(4, 8)
    plain = CosineHead(8, 3, scale=20)
    plain.load_state_dict({"weight": head.weight})
    weight, bias = torch.randn(3, 8), torch.randn(3)
    assert torch.equal(head.eval()(features), plain(features))
    head.set_discriminants(weight, bias)
    unit = features / features.norm(dim=1, keepdim=True)
    assert torch.allclose(head(features), plain(features) + 0.3 * (unit @ weight.T + bias), atol=1e-4)
    assert torch.equal(head.train()(features), plain(features))
    assert [name for name, _ in head.named_parameters()] == ["weight"]


def test_the_spec_of_a_head_has_their_weight():
    model = replace_head(build_model("resnet8", num_classes=3), "cosine:lda=0.3:scale=20")
    assert "lda=0.3" in repr(model)
    assert "network.head.lda_weight" in model.state_dict()
    old = replace_head(build_model("resnet8", num_classes=3), "cosine:scale=20")
    assert not any("lda" in name for name in old.state_dict())
