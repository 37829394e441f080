"""The losses under torch.func, torch.compile, torch.jit.trace and autocast."""

import io
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close

from evenhand import ComplementCrossEntropyLoss, FocalLoss
from evenhand.losses import LDAMLoss
from evenhand.losses.functional import complement_cross_entropy, complement_entropy, focal_loss

LOSSES = {
    "complement entropy": complement_entropy,
    "cce": complement_cross_entropy,
    "smoothed": lambda z, t, **kwargs: complement_cross_entropy(z, t, label_smoothing=0.1, **kwargs),
    "weighted": lambda z, t, **kwargs: complement_cross_entropy(z, t, torch.arange(1.0, 6).double(), **kwargs),
    "focal": focal_loss,
}
losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
kinds = pytest.mark.parametrize("kind", ["indices", "probabilities"])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def _subnormals():
    """Code that torch 2.5 compiles with -ffast-math makes 0 of subnormal numbers from then on, in all that follows."""
    yield
    torch.set_flush_denormal(False)


def batch(*shape: int, kind: str = "indices") -> tuple[Tensor, Tensor]:
    """Return logits (..., N, K) and targets; five classes."""
    logits = torch.randn(shape, dtype=torch.float64)
    target = torch.randint(5, shape[:-1])
    if kind == "probabilities":
        target = 0.7 * F.one_hot(target, 5).double() + 0.3 * F.one_hot(target.flip(0), 5)
    return logits, target


def gradient(loss, logits: Tensor, target: Tensor, **settings) -> Tensor:
    """Return what backward, compared with the equations elsewhere, gives."""
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad(loss(logits, target, **settings).sum(), logits)[0]


@losses
@kinds
def test_grad(loss, kind):
    logits, target = batch(4, 5, kind=kind)
    assert_close(grad(loss)(logits, target), gradient(loss, logits, target))


@losses
@kinds
def test_vmap(loss, kind):
    logits, target = batch(3, 4, 5, kind=kind)
    expected = torch.stack([loss(z, t) for z, t in zip(logits, target, strict=True)])
    assert_close(vmap(loss)(logits, target), expected)
    assert_close(vmap(loss, in_dims=(1, 0))(logits.movedim(0, 1), target), expected)
    one_target = torch.stack([loss(z, target[0]) for z in logits])
    assert_close(vmap(loss, in_dims=(0, None))(logits, target[0]), one_target)
    if kind == "indices" and loss is LOSSES["smoothed"]:
        return  # where only targets are mapped, F.cross_entropy with label smoothing fails by itself
    one_input = torch.stack([loss(logits[0], t) for t in target])
    assert_close(vmap(loss, in_dims=(None, 0))(logits[0], target), one_input)


def test_vmap_of_vmap_and_of_empty_batches():
    logits, target = batch(3, 4, 5)
    expected = complement_cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(3, 4)
    assert_close(vmap(vmap(complement_cross_entropy))(logits, target), expected)
    assert vmap(complement_cross_entropy)(logits[:, :0], target[:, :0]).isnan().all()


@losses
@kinds
def test_per_sample_gradients(loss, kind):
    logits, target = batch(6, 5, kind=kind)
    expected = torch.stack([gradient(loss, z, t) for z, t in zip(logits, target, strict=True)])
    assert_close(vmap(grad(loss))(logits, target), expected)


@losses
@kinds
def test_gradient_of_a_vmap(loss, kind):
    logits, target = batch(3, 4, 5, kind=kind)
    expected = torch.stack([gradient(loss, z, t) for z, t in zip(logits, target, strict=True)])
    assert_close(grad(lambda z: vmap(loss)(z, target).sum())(logits), expected)


@losses
@kinds
def test_a_vmap_inside_an_ordinary_backward(loss, kind):
    logits, target = batch(3, 4, 5, kind=kind)
    logits.requires_grad_()
    vmap(loss)(logits, target).sum().backward()
    expected = torch.stack([gradient(loss, z, t) for z, t in zip(logits.detach(), target, strict=True)])
    assert_close(logits.grad, expected)


@losses
@kinds
def test_hessian(loss, kind):
    logits, target = batch(2, 5, kind=kind)
    expected = torch.autograd.functional.hessian(lambda z: loss(z, target), logits)
    assert expected.abs().max() > 1e-3
    assert_close(hessian(loss)(logits, target), expected)
    assert_close(jacrev(jacrev(loss))(logits, target), expected)


@losses
@kinds
def test_forward_mode(loss, kind):
    logits, target = batch(4, 5, kind=kind)
    tangent = torch.randn_like(logits)
    value, slope = jvp(lambda z: loss(z, target), (logits,), (tangent,))
    assert_close(value, loss(logits, target))
    assert_close(slope, (gradient(loss, logits, target) * tangent).sum())
    assert_close(jacfwd(loss)(logits, target), gradient(loss, logits, target))


def test_per_sample_gradients_of_a_network():
    network, criterion = torch.nn.Linear(3, 5).double(), ComplementCrossEntropyLoss()
    images, target = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 4, 2, 2])
    weights = dict(network.named_parameters())

    def one(weights: dict[str, Tensor], image: Tensor, wanted: Tensor) -> Tensor:
        return criterion(functional_call(network, weights, (image,)), wanted)

    each = vmap(grad(one), in_dims=(None, 0, 0))(weights, images, target)
    criterion(network(images), target).backward()
    assert_close(each["weight"].mean(0), network.weight.grad)


def test_ignored_rows_under_transforms():
    logits, target = batch(4, 5)
    target[1] = -100
    assert_close(grad(complement_cross_entropy)(logits, target), gradient(complement_cross_entropy, logits, target))
    each = vmap(grad(lambda z, t: complement_cross_entropy(z, t, reduction="sum")))(logits, target)
    assert (each[1] == 0).all()
    assert (each[0] != 0).all()


@pytest.fixture(scope="module")
def backend() -> str:
    """Give torch's own compiler, or the one that only traces: where the machine cannot build native code at all, or has
    no vector instructions, for which torch 2.x writes code that no compiler takes."""
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        return "aot_eager"
    try:
        torch.compile(torch.sin)(torch.zeros(2))
    except Exception:
        return "aot_eager"
    return "inductor"


@pytest.fixture(params=["traced", pytest.param("native code", marks=pytest.mark.slow)])
def each_backend(request) -> str:
    return "aot_eager" if request.param == "traced" else request.getfixturevalue("backend")


def check_compiled(loss, logits: Tensor, target: Tensor, compiled) -> None:
    results = []
    for function in (loss, compiled):
        leaf = logits.clone().requires_grad_()
        value = function(leaf, target)
        value.sum().backward()
        results.append((value.detach(), leaf.grad))
    assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def cce_of_rows(logits: Tensor, target: Tensor) -> Tensor:
    return complement_cross_entropy(logits, target, torch.arange(1.0, 6), reduction="none")


def test_compiled_with_ignored_and_masked_rows(backend):
    compiled = torch.compile(cce_of_rows, fullgraph=True, backend=backend)
    logits, target = torch.randn(6, 5), torch.tensor([0, -100, 3, 4, -100, 1])
    logits[0, 1] = logits[3, 0] = -torch.inf
    logits[5] = torch.tensor([-torch.inf, 3.0, -torch.inf, -torch.inf, -torch.inf])
    logits[2, 3] = 1e4
    check_compiled(cce_of_rows, logits, target, compiled)


def test_compiled_with_probabilities(each_backend):
    compiled = torch.compile(complement_cross_entropy, fullgraph=True, backend=each_backend)
    logits, target = batch(6, 5, kind="probabilities")
    target[0] = 0.2
    check_compiled(complement_cross_entropy, logits.float(), target.float(), compiled)


def test_compiled_complement_entropy_of_images_in_half_precision(each_backend):
    compiled = torch.compile(complement_entropy, fullgraph=True, backend=each_backend)
    logits, target = torch.randn(2, 5, 3, dtype=torch.bfloat16), torch.randint(5, (2, 3))
    check_compiled(complement_entropy, logits, target, compiled)


def test_compiled_with_a_gamma_and_a_batch_that_change():
    """After the first change torch traces with unknown numbers; no native code is needed to see that this works."""
    compiled = torch.compile(complement_cross_entropy, fullgraph=True, backend="aot_eager")
    for n, gamma in [(3, -1.0), (7, -0.5), (8, 0.25)]:
        check_compiled(
            partial(complement_cross_entropy, gamma=gamma),
            torch.randn(n, 5),
            torch.randint(5, (n,)),
            partial(compiled, gamma=gamma),
        )


@pytest.mark.parametrize(
    "module",
    [
        ComplementCrossEntropyLoss(),
        ComplementCrossEntropyLoss(gamma="released", spare=1),
        ComplementCrossEntropyLoss(share=[0.1, 0.2, 0.3, 0.4, 0.5], label_smoothing=0.1),
        ComplementCrossEntropyLoss(counts=[50, 30, 10, 5, 5]),
        ComplementCrossEntropyLoss(counts=[50, 30, 10, 5, 5], complement_on="adjusted"),
        FocalLoss(),
        LDAMLoss([50, 30, 10, 5, 5]),
    ],
    ids=str,
)
@kinds
@pytest.mark.filterwarnings("ignore")  # tracing is deprecated, and says that it keeps the sizes it saw
def test_traced_and_saved(module, kind):
    example, other = (tuple(x.float() if x.is_floating_point() else x for x in batch(n, 5, kind=kind)) for n in (6, 9))
    traced = torch.jit.trace(module, (example[0].requires_grad_(), example[1]))
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    check_compiled(module, *other, torch.jit.load(file))


@losses
@kinds
def test_no_value_is_read_back_from_the_device(loss, kind):
    """On the meta device there are no values, so whatever waits for one fails."""
    logits, target = (x.to("meta") for x in batch(4, 5, kind=kind))
    logits.requires_grad_()
    if loss is LOSSES["weighted"]:
        loss = partial(complement_cross_entropy, weight=torch.ones(5, device="meta", dtype=torch.float64))
    loss(logits, target).backward()
    assert logits.grad.shape == (4, 5)


@losses
@kinds
def test_inference_mode(loss, kind):
    logits, target = batch(4, 5, kind=kind)
    expected = loss(logits, target)
    with torch.inference_mode():
        assert_close(loss(logits, target), expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@kinds
def test_training_step_under_autocast(dtype, kind):
    network = torch.nn.Linear(3, 5)
    images, (_, target) = torch.randn(8, 3), batch(8, 5, kind=kind)
    if kind == "probabilities":
        target = target.float()
    with torch.autocast("cpu", dtype):
        logits = network(images)
        loss = ComplementCrossEntropyLoss()(logits, target)
    assert logits.dtype == dtype
    assert loss.dtype == torch.float32
    loss.backward()
    # Only the logits were rounded: the loss itself is computed in full.
    assert_close(loss, complement_cross_entropy(logits.float(), target), rtol=1e-5, atol=1e-6)
    expected = gradient(complement_cross_entropy, logits.detach().float(), target)
    assert_close(network.weight.grad, expected.T @ images, rtol=0.02, atol=2e-3)
