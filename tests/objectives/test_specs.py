"""Objectives as text: canonical spellings, and mistakes reported in one sentence."""

import copy
import pickle
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.naming import run_name
from evenhand.objectives import ObjectiveSpec, build_objective, describe_objectives, list_objectives
from evenhand.objectives.part import KINDS, PARTS, LossPart, TrainingStats
from evenhand.runs.config import Config, load_config
from evenhand.training.run import train_run
from tests.training.runs import tiny

COUNTS = [50, 20, 5, 2]


def sentence(spec: str) -> str:
    with pytest.raises(EvenhandError) as caught:
        build_objective(spec, counts=COUNTS)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith((".", "?"))
    return str(caught.value)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_have_one_spelling_without_losing_a_digit(gamma: float) -> None:
    canonical = ObjectiveSpec(f"cce:gamma={gamma!r}")
    assert canonical == ObjectiveSpec(canonical)
    assert canonical == ObjectiveSpec(f"cce:gamma={gamma:.25e}")
    names = {-1.0: "cce", 0.0: "ce"}
    assert canonical == names[gamma] if gamma in names else float(canonical.partition("=")[2]) == gamma


@pytest.mark.parametrize(
    ("spec", "same"),
    [
        ("erm", "ce"),
        ("cce:gamma=-1", "cce"),
        ("cce:gamma=-1.0", "cce"),
        ("cce:gamma=-2", "cce:gamma=-2"),
        ("cce:gamma=released", "cce:gamma=released"),
        ("focal:gamma=2:alpha=.25", "focal:alpha=0.25"),
        ("focal:gamma=1:alpha=0.25", "focal:alpha=0.25:gamma=1"),
        ("cce:gamma=0", "ce"),
        ("balanced-softmax+cce:share=0:spare=3", "balanced-softmax"),
        ("focal:gamma=0", "ce"),
        ("focal:gamma=0:alpha=1", "ce"),
        ("focal:gamma=0:alpha=0.25", "focal:alpha=0.25:gamma=0"),
        ("cot:forwards=2", "cot"),
        ("ce+cot", "cot"),
        ("cot:forwards=1", "cot:forwards=1"),
        ("cce:share=0.3:spare=3", "cce:share=0.3:spare=3"),
        ("logit-adjust", "balanced-softmax"),
        ("logit-adjust:tau=1.5+ce", "logit-adjust:tau=1.5"),
        ("label-smoothing", "ce+label-smoothing"),
        ("cce+balanced-softmax", "balanced-softmax+cce"),
        ("drw:start=0.8+ldam:margin=0.5", "ldam+drw"),
        ("erm+weights:by=inverse", "ce+weights"),
        ("mixup:alpha=0.2+sampling:by=class+cce", "cce+sampling+mixup"),
        ("post-hoc:tau=1", "ce+post-hoc:tau=1"),
        ("drw+logit-adjust", "balanced-softmax+drw"),
    ],
)
def test_two_spellings_are_one_objective(spec: str, same: str) -> None:
    assert ObjectiveSpec(spec) == same
    assert ObjectiveSpec(same) == same


@st.composite
def specs(draw: st.DrawFn) -> tuple[list[str], dict[str, dict[str, float | str]]]:
    """Parts that go together, with and without settings."""
    number = st.floats(0.01, 0.9).map(lambda x: round(x, 3))
    choices = {
        "loss": ["ce", "erm", "focal", "cce", "focal:gamma={}", "cce:gamma={}", "cce:share={}"],
        "logits": ["", "balanced-softmax", "logit-adjust:tau={}", "ldam:margin={}"],
        "targets": ["", "label-smoothing", "label-smoothing:eps={}"],
        "step": ["", "cot"],
    }
    if draw(st.booleans()):
        choices["images"] = ["mixup:alpha={}", "cutmix", "remix:tau={}"]
        choices["loss"] = ["ce", "cce"]
    texts = [draw(st.sampled_from(options)).format(draw(number)) for options in choices.values()]
    return [text for text in texts if text], {}


@settings(derandomize=True, deadline=None, max_examples=60)
@given(specs())
def test_the_order_of_parts_says_nothing(given_specs: tuple[list[str], dict[str, dict[str, float | str]]]) -> None:
    texts, _ = given_specs
    if any(text.startswith("ldam") for text in texts) and any(text.startswith("focal") for text in texts):
        texts = [text for text in texts if not text.startswith("focal")]
    spellings = {ObjectiveSpec("+".join(order)) for order in permutations(texts)}
    assert len(spellings) == 1
    (spelling,) = spellings
    assert ObjectiveSpec(spelling) == spelling
    logits, labels = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 4
    one, other = (build_objective(spec, counts=COUNTS) for spec in (spelling, "+".join(texts)))
    assert torch.equal(one.loss(logits, labels), other.loss(logits, labels))
    assert one.head == other.head


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("ces", "There is no objective 'ces'; did you mean ce?"),
        ("balanced-softmx+cce", "There is no objective 'balanced-softmx'; did you mean balanced-softmax?"),
        ("mse", "There is no objective 'mse'; there are ce, erm, focal, cce, "),
        ("ce:gamma=1", "Cannot train with 'ce:gamma=1': ce takes no options."),
        ("ce:3", "Cannot train with 'ce:3': ce takes no options."),
        ("cce:3", "Cannot train with 'cce:3': cce takes gamma, share, spare, rivals, on."),
        ("focal:beta=1", "Cannot train with 'focal:beta=1': focal takes gamma, alpha."),
        ("focal:gamma=-1", "The gamma of focal must be a number of 0 or more, got '-1'."),
        ("focal:gamma=inf", "The gamma of focal must be a number of 0 or more, got 'inf'."),
        ("focal:alpha=much", "The alpha of focal must be a number above 0, got 'much'."),
        ("cce:gamma=nan", "The gamma of cce must be a number or released, got 'nan'."),
        ("cce:gamma=Released", "The gamma of cce must be a number or released, got 'Released'."),
        ("cce:share=1.5", "The share of cce must be a number from 0 to 1, got '1.5'."),
        ("cce:share=0.3:gamma=-1", "both set the weight of C, got gamma=-1 and share=0.3; give one of them."),
        ("cce:spare=1.5", "The spare of cce must be a whole number of 0 or more, got '1.5'."),
        ("cce:spare=2", "cce:spare=2 leaves too few classes for C, of 4; use at most 1."),
        ("cce:rivals=frequent+mixup", "cce:rivals=frequent cannot be combined with mixup; leave one out."),
        ("cce:rivals=frequent:spare=1", "cce:rivals=frequent cannot be combined with spare=1; leave one out."),
        ("cce:on=adjusted", "cce:on=adjusted needs a part that adds an offset to logits"),
        ("ldam+cce:on=adjusted", "cce:on=adjusted needs a part that adds an offset to logits"),
        ("ce+post-hoc:tau=-5", "The tau of post-hoc must be a number from 0 to 10 or auto, got '-5'."),
        ("ce+post-hoc:tau=11", "The tau of post-hoc must be a number from 0 to 10 or auto, got '11'."),
        ("ce+post-hoc:tau=much", "from 0 to 10 or auto, got 'much'."),
        ("mixup:alpha=1e-320", "alpha"),
        ("cutmix:alpha=1e308", "alpha"),
        ("cot:forwards=3", "The forwards of cot must be 1 or 2, got '3'."),
        ("ce+cce", "Cannot train with 'ce+cce': ce and cce are both of kind loss; leave one out."),
        ("sampling+sampling:by=sqrt", "sampling is given twice"),
        ("mixup+cutmix", "mixup and cutmix are both of kind images"),
        ("randaugment+trivialaugment", "randaugment and trivialaugment are both of kind augmentation"),
        ("randaugment:ops=1.5", "The ops of randaugment must be a whole number from 1 to 10, got '1.5'."),
        (
            "randaugment:magnitude=31",
            "The magnitude of randaugment must be a whole number from 0 to 30, got '31'.",
        ),
        ("trivialaugment:ops=2", "trivialaugment takes no options"),
        ("erasing:p=0", "The p of erasing must be a number above 0 and up to 1, got '0'."),
        ("weights:by=equal", "The by of weights must be inverse or effective, got 'equal'."),
        ("weights:beta=0.9", "beta of weights is for by=effective"),
        ("logit-adjust:tau=0", "The tau of logit-adjust must be a number above 0 and up to 10, got '0'."),
        ("balanced-softmax+post-hoc", "balanced-softmax and post-hoc both correct for the class counts"),
        ("balanced-softmax+weights", "balanced-softmax and weights both correct for the class counts"),
        ("balanced-softmax+drw+post-hoc", "balanced-softmax and post-hoc both correct for the class counts"),
        ("ldam+drw+sampling", "drw and sampling both correct for the class counts"),
        ("ce+weights+sampling", "weights and sampling both correct for the class counts"),
        ("ldam+post-hoc", "whose margins correct for the class counts already; leave one out."),
        ("ldam:scale=1e10", "The scale of ldam must be a number from 0.001 to 10000, got '1e10'."),
        ("cosine:scale=1e-300", "The scale of cosine must be a number from 0.001 to 10000, got '1e-300'."),
        ("ldam+cosine", "ldam has a cosine classifier of its own"),
        ("ldam+focal+mixup", "focal cannot combine the margins of ldam with soft targets"),
        ("", "Cannot read ''"),
        ("cce:gamma=1:gamma=2", "gamma is given twice"),
    ],
)
def test_mistakes_are_one_sentence(spec: str, told: str) -> None:
    assert told in sentence(spec)


def test_every_part_says_what_it_is() -> None:
    parts = describe_objectives()
    assert {part.name for part in parts} == set(list_objectives()) == set(PARTS)
    for part in parts:
        assert part.kind in KINDS
        assert 10 < len(part.help) < 120 or part.name == "ce"
        assert all(text.split(": ", 1)[1] not in ("", "None") for text in part.settings.values())


def test_what_training_costs_and_shares() -> None:
    specs = ("ce", "balanced-softmax+cce", "cot", "cot:forwards=1")
    assert [ObjectiveSpec(spec).cost for spec in specs] == [1, 1, 2, 5 / 3]
    assert ObjectiveSpec("ce+post-hoc:tau=auto").training == ObjectiveSpec("erm+post-hoc:tau=2").training == "ce"
    assert ObjectiveSpec("cce+mixup").training == "cce+mixup"


def test_a_spec_is_text_that_is_parsed_once() -> None:
    spec = ObjectiveSpec("erm+mixup")
    assert ObjectiveSpec("erm+mixup") is spec
    assert ObjectiveSpec(spec) is spec
    assert isinstance(spec, str)
    assert {spec: 1}["ce+mixup"] == 1
    for copied in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)):
        assert (copied, copied.parts) == (spec, spec.parts)
        assert isinstance(copied, ObjectiveSpec)


def test_a_config_holds_a_checked_objective() -> None:
    for text in ("nonsense+blah", "ce+cce", ""):
        with pytest.raises((EvenhandError, ValidationError)):
            Config(objective=text)
        with pytest.raises(EvenhandError):
            Config().model_copy(update={"objective": text})
    config = Config(objective="erm+drw:start=0.8")
    assert config.objective == "ce+drw"
    copied = config.model_copy(update={"objective": "erm+post-hoc", "epochs": 2})
    assert (copied.objective.training, copied.epochs) == ("ce", 2)
    assert yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json")))["objective"] == "ce+drw"
    assert pickle.loads(pickle.dumps(config)).objective.parts == config.objective.parts


def test_an_old_config_with_an_alias_is_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for text, same in (("erm", "ce"), ("cce:gamma=-1.0", "cce"), ("drw+ldam", "ldam+drw")):
        path.write_text(f"objective: {text}\n")
        old = load_config(path)
        assert old.objective == same
        assert run_name(old) == run_name(old.model_copy(update={"objective": same}))


def test_deferred_weights_on_top_of_a_logit_adjustment() -> None:
    logits, labels = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4
    both = build_objective("balanced-softmax+drw", counts=COUNTS, epochs=10)
    plain = build_objective("balanced-softmax", counts=COUNTS)
    torch.testing.assert_close(both.loss(logits, labels, 0), plain.loss(logits, labels))
    weighted = build_objective("ce+drw", counts=COUNTS, epochs=10)
    assert plain.offset is not None
    torch.testing.assert_close(both.loss(logits, labels, 9), weighted.loss(logits + plain.offset, labels, 9))
    assert both.prior() is None


def test_a_new_loss_is_one_class(tmp_path: Path) -> None:
    """Defining the class is all it takes; it is removed again, since other tests enumerate all parts."""

    class Inverted(LossPart):
        """A loss with weights from the counts, for this test."""

        name = "inverted"
        power: float = Field(1.0, ge=0, description="of the counts")

        def build(self, stats: TrainingStats) -> Any:
            weights = torch.tensor(stats.counts, dtype=torch.float32) ** -self.power
            return lambda logits, target, **_: torch.nn.functional.cross_entropy(logits, target, weights)

    try:
        assert "inverted" in list_objectives()
        assert "power" in next(part for part in describe_objectives() if part.name == "inverted").settings
        assert ObjectiveSpec("mixup+inverted:power=1") == "inverted+mixup"
        assert train_run(tiny(objective="inverted:power=0.5", epochs=1), tmp_path / "run").finished
    finally:
        del PARTS[Inverted.name]
