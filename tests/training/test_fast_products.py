"""In a run in bfloat16 on a CPU, float32 products are computed by the faster library; the setting is restored."""

import pytest
import torch
from lightning_fabric import Fabric

from evenhand.models.heads import CosineHead
from evenhand.training.fabric import fast_products


def gradient(head: CosineHead, features: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a weighted sum of logits."""
    logits = head(features)
    (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
    assert head.weight.grad is not None
    found, head.weight.grad = head.weight.grad, None
    return found


@pytest.mark.parametrize(("precision", "expected"), [("bf16-mixed", "medium"), ("32-true", "highest")])
def test_only_a_run_in_bfloat16_computes_products_faster(precision: str, expected: str) -> None:
    before = torch.get_float32_matmul_precision()
    products = fast_products(Fabric(accelerator="cpu", precision=precision))  # type: ignore[arg-type]
    with products:
        assert torch.get_float32_matmul_precision() == expected
    assert torch.get_float32_matmul_precision() == before == "highest"


def test_logits_and_gradients_are_those_of_float64() -> None:
    torch.manual_seed(0)
    head, features = CosineHead(1280, 101, scale=20), torch.randn(252, 1280).relu()
    exact = CosineHead(1280, 101, scale=20).double()
    exact.load_state_dict(head.state_dict())
    with fast_products(Fabric(accelerator="cpu", precision="bf16-mixed")):
        assert torch.allclose(head(features).double(), exact(features.double()), atol=5e-3)  # 5e-6 but for AMX
        found, expected = gradient(head, features).double(), gradient(exact, features.double())
        assert (found - expected).norm() < 5e-3 * expected.norm()
