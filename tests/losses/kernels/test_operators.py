"""The kernels as an operator of torch: compiled, differentiated twice, under autocast and in several processes."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.testing import assert_close

from evenhand import ComplementCrossEntropyLoss
from evenhand.losses import set_backend
from evenhand.losses.functional import complement_cross_entropy, complement_entropy
from evenhand.losses.kernels import native
from evenhand.losses.kernels.operators import complement_cross_entropy as operator

needs_kernel = pytest.mark.skipif(native.level == 0, reason=f"no native kernel: {native.why_not}")
VECTOR = torch.linspace(0.1, 1, 5)
SETTINGS = {
    "usual": (None, None, None, None, -0.25, True, -100, "mean", True),
    "everything": (VECTOR, VECTOR, VECTOR, VECTOR, 0.0, True, 2, "none", True),
    "entropy": (None, None, None, None, 1.0, False, -100, "sum", True),
    "no gradient": (None, None, None, None, 1.0, True, -100, "sum", False),
}


@pytest.fixture(autouse=True)
def _start():
    torch.manual_seed(0)
    set_backend("auto")


def batch(n: int = 6, k: int = 5, dtype=torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(n, k, dtype=dtype).requires_grad_(), torch.randint(k, (n,))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_opcheck(name, dtype):
    logits, target = batch(dtype=dtype)
    if name == "no gradient":
        logits = logits.detach()
    torch.library.opcheck(operator, (logits, target, *SETTINGS[name]))


def compiled_graphs(**settings) -> tuple[list[torch.fx.GraphModule], list[torch.fx.GraphModule]]:
    """Compile the loss and return its forward and backward graphs."""
    forward, backward = [], []

    def keep(graphs):
        return lambda graph, _: graphs.append(graph) or make_boxed_func(graph.forward)

    torch._dynamo.reset()
    tracing = aot_autograd(fw_compiler=keep(forward), bw_compiler=keep(backward))
    compiled = torch.compile(complement_cross_entropy, fullgraph=True, backend=tracing)
    logits, target = batch()
    compiled(logits, target, **settings).sum().backward()
    again = logits.detach().requires_grad_()
    complement_cross_entropy(again, target, **settings).sum().backward()
    assert_close(logits.grad, again.grad)
    return forward, backward


@needs_kernel
@pytest.mark.parametrize(
    "settings",
    [{}, {"reduction": "none"}, {"offset": VECTOR, "weight": VECTOR}],
    ids=["mean", "none", "offset and weight"],
)
def test_compiling_keeps_the_kernel_and_its_gradient(settings):
    forward, backward = compiled_graphs(**settings)
    assert "evenhand.complement_cross_entropy" in forward[0].code
    assert "exp" not in forward[0].code
    assert "mul" in backward[0].code  # the gradient was kept, and is only scaled
    assert "exp" not in backward[0].code


@needs_kernel
def test_the_eager_backend_is_compiled_from_torch_operations():
    set_backend("eager")
    forward, _ = compiled_graphs()
    assert "evenhand" not in forward[0].code
    assert "exp" in forward[0].code


@needs_kernel
def test_a_compiled_loss_refuses_a_target_that_is_no_class():
    compiled = torch.compile(complement_cross_entropy, fullgraph=True, backend="aot_eager")
    logits, target = batch()
    compiled(logits, target)
    with pytest.raises(IndexError, match="target 9"):
        compiled(logits, torch.full_like(target, 9))


@pytest.mark.parametrize(
    "settings", [{}, {"reduction": "sum", "offset": VECTOR, "margin": VECTOR}], ids=["mean", "offset and margin"]
)
def test_second_derivatives(settings):
    logits, target = batch()
    wide = {name: x.double() if isinstance(x, Tensor) else x for name, x in settings.items()}
    expected = torch.autograd.functional.hessian(
        lambda z: complement_cross_entropy(z, target, **wide), logits.detach().double()
    )
    got = torch.autograd.functional.hessian(lambda z: complement_cross_entropy(z, target, **settings), logits.detach())
    assert_close(got.double(), expected, rtol=1e-4, atol=1e-6)

    def by_operator(z: Tensor) -> Tensor:
        vectors = (None, settings.get("offset"), settings.get("margin"), None)
        return operator(z, target, *vectors, -0.25, True, -100, settings.get("reduction", "mean"), True)[0]

    assert_close(
        torch.autograd.functional.hessian(by_operator, logits.detach()).double(), expected, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
    "offset", [torch.linspace(0, 80, 5), torch.tensor([0, math.inf, 0, 0, 0])], ids=["wide", "inf"]
)
def test_an_offset_no_kernel_takes_is_left_to_torch(offset):
    logits, target = batch()
    results = []
    for name in ("auto", "eager"):
        set_backend(name)
        loss = complement_cross_entropy(logits, target, offset=offset, reduction="none")
        results.append((loss.detach(), *torch.autograd.grad(loss.sum(), logits)))
    assert_close(results[0], results[1], equal_nan=True)


@needs_kernel
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-40, -1e-45], ids=str)
@pytest.mark.parametrize("loss", [complement_cross_entropy, complement_entropy])
def test_odd_logits_agree_with_eager(loss, odd):
    for reduction, place in itertools.product(("none", "mean", "sum"), (0, 1, slice(1, None), slice(None))):
        logits, target = batch(20, 20)
        target[3] = 0
        with torch.no_grad():
            logits[3, place] = odd
        results = []
        for name in ("native", "eager"):
            set_backend(name)
            value = loss(logits, target, reduction=reduction)
            results.append((value.detach(), *torch.autograd.grad(value.sum(), logits)))
        assert_close(results[0], results[1], rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_half_precision_under_autocast_and_without(reduction):
    logits, target = batch(40, 30, torch.bfloat16)
    criterion = ComplementCrossEntropyLoss(reduction=reduction)
    alone = criterion(logits, target)
    with torch.autocast("cpu", torch.bfloat16):
        inside = criterion(logits, target)
    assert (alone.dtype, inside.dtype) == (torch.bfloat16, torch.float32)
    assert_close(
        inside, complement_cross_entropy(logits.double(), target, reduction=reduction).float(), rtol=1e-5, atol=1e-6
    )
    (gradient,) = torch.autograd.grad(inside.sum(), logits)
    wide = logits.detach().double().requires_grad_()
    complement_cross_entropy(wide, target, reduction=reduction).sum().backward()
    assert gradient.dtype == torch.bfloat16
    assert_close(gradient.double(), wide.grad, rtol=2**-8, atol=1e-7)


def _in_one_process(rank: int, folder: str) -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.manual_seed(0)
    network, images, target = torch.nn.Linear(3, 5), torch.randn(8, 3), torch.randint(5, (8,))
    own = slice(4 * rank, 4 * rank + 4)
    parallel = DistributedDataParallel(network)
    ComplementCrossEntropyLoss()(parallel(images[own]), target[own]).backward()
    expected = torch.nn.Linear(3, 5)
    expected.load_state_dict(network.state_dict())
    ComplementCrossEntropyLoss()(expected(images), target).backward()
    assert_close(network.weight.grad, expected.weight.grad)
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_average_their_gradients(tmp_path):
    torch.multiprocessing.spawn(_in_one_process, (str(tmp_path),), nprocs=2)


@needs_kernel
def test_fifty_steps_of_a_training_agree_with_eager():
    """The same weights and batch at each step, for both."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target).long()
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(50):
        rows = torch.randperm(len(images))[:64]
        results = []
        for name in ("native", "eager"):
            set_backend(name)
            optimizer.zero_grad()
            loss = complement_cross_entropy(network(images[rows]), labels[rows])
            loss.backward()
            results.append((loss.item(), [p.grad.clone() for p in network.parameters()]))
        (one, gradients), (other, expected) = results
        assert abs(one - other) <= 1e-6 * max(1.0, abs(other)), step
        for mine, theirs in zip(gradients, expected, strict=True):
            assert (mine - theirs).norm() <= 1e-5 * theirs.norm(), step
        optimizer.step()
    assert F.cross_entropy(network(images), labels) < 0.5  # it has learned
