"""The computation behind "why plain C costs so much with the counts" in the guide, against plain formulas."""

import importlib.util
import io
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

RESULTS = Path(__file__).parents[1] / "docs" / "results"


@pytest.fixture
def bias(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("complement_bias", RESULTS / "complement_bias.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "POINTS", 60)
    return module


def expected_loss(
    z: NDArray[np.float64], eta: NDArray[np.float64], counts: NDArray[np.float64], share: float, *, frequent: bool
) -> float:
    """H of the logits with the counts, minus share times the entropy of the wrong classes of the raw logits."""
    total = 0.0
    for own, probability in enumerate(eta):
        wrong = np.array([k for k in range(len(z)) if k != own and (not frequent or counts[k] >= counts[own])], int)
        entropy = 0.0
        if len(wrong):
            log_q = log_softmax(z[wrong])
            entropy = -float((np.exp(log_q) * log_q).sum())
        total += probability * (-log_softmax(z + np.log(counts))[own] - share * entropy)
    return total


@pytest.mark.parametrize(("share", "frequent"), [(0.0, False), (1 / 9, False), (0.3, True)])
def test_the_minimiser_is_that_of_the_plain_formula(bias: ModuleType, share: float, *, frequent: bool) -> None:
    eta = bias.posterior(2.0, 0)[::12]
    counts = bias.COUNTS.numpy().astype(float)
    found = bias.minimiser(eta, share=share, frequent=frequent).numpy()
    for z, own in zip(found, eta.numpy(), strict=True):
        least = minimize(lambda v, p=own: expected_loss(v, p, counts, share, frequent=frequent), np.zeros(10)).fun
        assert expected_loss(z, own, counts, share, frequent=frequent) <= least + 1e-4


def test_c_decides_against_the_balanced_bayes_rule_and_c_over_frequent_rivals_hardly(bias: ModuleType) -> None:
    eta = bias.posterior(2.0, 0)
    bayes = (eta / bias.COUNTS).argmax(dim=1)

    def decided_otherwise(share: float, *, frequent: bool) -> float:
        return float((bias.minimiser(eta, share=share, frequent=frequent).argmax(dim=1) != bayes).double().mean())

    assert decided_otherwise(0.0, frequent=False) == 0
    assert 0.05 < decided_otherwise(1 / 9, frequent=False) < 0.3
    assert decided_otherwise(0.3, frequent=True) < 0.05
    logits = bias.minimiser(eta, share=1 / 9, frequent=False)
    torch.testing.assert_close(bias.inverted(logits, 1 / 9), eta, atol=2e-3, rtol=0)


@pytest.mark.slow
def test_the_kept_table_is_what_the_script_prints(bias: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bias, "POINTS", 500)
    printed = io.StringIO()
    with redirect_stdout(printed):
        bias.main()
    assert printed.getvalue() == (RESULTS / "data" / "complement-bias.md").read_text("utf-8")
