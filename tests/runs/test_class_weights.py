"""Class weights from a file: what a run records, and what they do."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.naming import run_name
from evenhand.objectives import ObjectiveSpec, build_objective
from evenhand.runs.class_weights import read_class_weights, weights_in_order
from evenhand.runs.config import load_config, make_config, save_config


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.csv"
    path.write_text("class;weight\nb;4\na;1\n")
    return path


def test_a_config_holds_the_content_and_its_name_depends_on_it(file: Path) -> None:
    config = make_config(objective=f"ce+weights:file={file}")
    assert config.class_weights == {"b": 4, "a": 1}
    save_config(config, file.parent / "config.yaml")
    name = run_name(config)
    file.write_text("a,1\nb,5\n")
    assert run_name(make_config(objective=f"ce+weights:file={file}")) != name
    file.unlink()
    again = load_config(file.parent / "config.yaml")
    assert again == config
    assert run_name(again) == name
    assert again.model_copy(update={"objective": f"cce+weights:file={file}"}).class_weights == config.class_weights
    assert again.model_copy(update={"objective": "ce"}).class_weights is None
    assert make_config(objective="ce").class_weights is None


def test_the_weights_have_a_mean_of_1_over_training_images(file: Path) -> None:
    given = weights_in_order(read_class_weights(file), ["a", "b"])
    objective = build_objective("ce+weights:file=w.csv", counts=[90, 10], class_weights=given)
    logits, target = torch.randn(8, 2), torch.tensor([0, 1] * 4)
    scaled = np.array([1, 4]) / (0.9 * 1 + 0.1 * 4)
    expected = torch.nn.functional.cross_entropy(logits, target, weight=torch.tensor(scaled, dtype=torch.float32))
    torch.testing.assert_close(objective.loss(logits, target), expected)
    prior = objective.prior()
    assert prior is not None
    np.testing.assert_allclose(prior, [0.9 / 1.3, 0.4 / 1.3], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,0\nb,1\n", "the weight of 'a' must be above 0, got 0"),
        ("a,inf\nb,1\n", "the weight of 'a' must be finite, got inf"),
        ("a,1\na,1\n", "'a' is given twice in its rows"),
        ("a\nb\n", "each row must have a class and its weight, got 'a'"),
    ],
)
def test_bad_weights_are_refused(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(EvenhandError) as refused:
        make_config(objective=f"ce+weights:file={file}")
    assert str(refused.value) == f"Cannot read class weights from {file}: {message}."


def test_weights_of_other_classes_are_refused(file: Path) -> None:
    weights = read_class_weights(file)
    for names, message in ((["a"], "has unknown classes: 'b'"), (["a", "b", "c"], "lacks 'c'")):
        with pytest.raises(EvenhandError, match=message):
            weights_in_order(weights, names)
    with pytest.raises(EvenhandError, match="give one of them"):
        ObjectiveSpec("ce+weights:file=w.csv:by=effective")
    with pytest.raises(EvenhandError, match="class_weights are the content of a file"):
        make_config(settings=["class_weights={a: 1}"])
    with pytest.raises(EvenhandError, match="weights of 0 classes, but there are 2"):
        build_objective("ce+weights:file=w.csv", counts=[3, 4])
