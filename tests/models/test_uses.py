"""A network goes wherever torch takes networks: copies, files, compilers, other memory formats, many processes."""

import copy
import io
import pickle

import pytest
import torch
import torch.distributed
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from evenhand.models.build import build_model

from .networks import FAMILIES, images

each_family = pytest.mark.parametrize("name", FAMILIES)
each_family_traced = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "resnet8")) for name in FAMILIES],
)
"""Tracing takes long where there are many layers."""


def build(name: str, **options: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_model(name, num_classes=4, **options)


@each_family
@torch.no_grad()
def test_copies_and_pickles_compute_the_same(name):
    model = build(name).eval()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for ours, theirs in zip(model(images(), with_features=True), twin(images(), with_features=True), strict=True):
            assert_close(ours, theirs, rtol=0, atol=0)
        assert (twin.name, twin.stem, twin.num_features) == (model.name, model.stem, model.num_features)


@each_family
@torch.no_grad()
def test_weights_are_saved_and_loaded(name):
    model = build(name)
    model(images())  # moves the running averages
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    torch.manual_seed(1)
    other = build_model(name, num_classes=4)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert_close(other.eval()(images()), model.eval()(images()), rtol=0, atol=0)


@each_family
def test_no_weight_has_two_names(name):
    """Formats such as safetensors refuse shared memory."""
    places = [value.data_ptr() for value in build(name).state_dict().values()]
    assert len(places) == len(set(places))


@each_family
@torch.no_grad()
def test_channels_last_computes_the_same(name):
    model = build(name).eval()
    before = model(images(), with_features=True)
    model.to(memory_format=torch.channels_last)
    after = model(images().contiguous(memory_format=torch.channels_last), with_features=True)
    assert_close(after, before, rtol=1e-3, atol=1e-4)


@each_family
def test_bfloat16_autocast_trains(name):
    model = build(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, features = model(images(), with_features=True)
        loss = F.cross_entropy(logits.float(), torch.tensor([0, 1]))
    loss.backward()
    assert features.isfinite().all()
    for key, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


@each_family_traced
@torch.no_grad()
def test_the_compiler_sees_one_graph(name):
    torch.compiler.reset()  # it gives up on code that it has met in too many shapes, and this code is shared
    model = build(name).eval()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert_close(compiled(images()), model(images()))
    for ours, theirs in zip(compiled(images(), with_features=True), model(images(), with_features=True), strict=True):
        assert_close(ours, theirs)


@each_family_traced
def test_it_is_exported_with_any_batch_size(name):
    """`torch.onnx.export` starts from this graph."""
    model = build(name).eval()
    batch = torch.export.Dim("batch", min=1)
    exported = torch.export.export(model, (images(),), dynamic_shapes={"images": {0: batch}})
    five = images(number=5)
    with torch.no_grad():
        assert_close(exported.module()(five), model(five))


@each_family_traced
def test_onnx_computes_the_same(name, tmp_path):
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package)
    runtime = pytest.importorskip("onnxruntime")
    model = build(name).eval()
    file = tmp_path / "model.onnx"
    torch.onnx.export(model, (images(),), file, dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False)
    session = runtime.InferenceSession(file)
    five = images(number=5)
    with torch.no_grad():
        expected = model(five)
    (logits,) = session.run(None, {session.get_inputs()[0].name: five.numpy()})
    assert_close(torch.from_numpy(logits), expected, rtol=1e-3, atol=1e-4)


@pytest.fixture
def process_group(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@each_family
@pytest.mark.usefixtures("process_group")
def test_no_parameter_is_left_unused_between_processes(name):
    """Without `find_unused_parameters` a second forward fails if the first left one out."""
    model = DistributedDataParallel(build(name))
    for with_features in (False, False, True):
        out = model(images(), with_features=with_features)
        (out[0] if with_features else out).sum().backward()
