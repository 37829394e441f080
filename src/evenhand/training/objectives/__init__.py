"""Objectives: one loss and any number of parts, joined by `+`, from one registry.

A new part is one class in the file of its kind (`part.py` says what each kind can do). What it is called, its settings
with their defaults, what it costs and what to say about it stand there and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from evenhand.core.errors import EvenhandError
from evenhand.training.objectives import after, heads, images, logits, losses, sampling, stages, steps, weights  # noqa: F401
from evenhand.training.objectives.objective import Objective
from evenhand.training.objectives.part import PARTS, Known
from evenhand.training.objectives.spec import all_parts, read_parts, settings_of, settings_to_try, spell
from evenhand.training.objectives.stages import StagePart
from evenhand.training.objectives.steps import Backward, Forward

__all__ = [
    "Backward",
    "Forward",
    "Objective",
    "PartInfo",
    "build_objective",
    "canonical_objective",
    "cost",
    "describe_objectives",
    "first_stage",
    "list_objectives",
    "needs_validation",
    "require_validation",
    "settings_to_try",
    "stage_named",
    "stage_of",
    "training_objective",
]


@dataclass(frozen=True)
class PartInfo:
    """A part of objectives, for people."""

    name: str
    kind: str
    """What it changes: a key of `KINDS`."""
    help: str
    """One line."""
    settings: dict[str, str]
    """What each may be, its default, and what it does."""
    tried: list[str]
    """Specs that `compare --tune` tries beside the defaults."""


def list_objectives() -> list[str]:
    """Return the names of all parts of which objectives are made: losses first, then by kind.

    An objective is one loss (`ce` where none is named) and any number of other parts, joined by `+`, each with its
    settings: `cce`, `balanced-softmax+cce:share=0.3`, `ldam+drw`. :func:`describe_objectives` says more of each.

    Example:
        >>> from evenhand import list_objectives
        >>> list_objectives()[:3]
        ['ce', 'focal', 'cce']
    """
    return [part.name for part in all_parts()]


def describe_objectives() -> list[PartInfo]:
    """Return every part of which objectives are made, with its settings: losses first, then by kind.

    Example:
        >>> from evenhand.training.objectives import describe_objectives
        >>> [(part.name, part.help) for part in describe_objectives() if part.kind == "loss"][0]
        ('ce', 'Cross entropy')
    """
    return [
        PartInfo(
            part.name,
            part.kind,
            help=(part.__doc__ or "").splitlines()[0].rstrip("."),
            settings=settings_of(part),
            tried=[tuned.model_validate(settings).spec() for settings in tuned.tried],
        )
        for part, tuned in ((each, PARTS[each.tuned_as or each.name]) for each in all_parts())
    ]


def canonical_objective(spec: str) -> str:
    """Return the one spelling of an objective: no alias, no setting that changes nothing, all in their order.

    Raises:
        EvenhandError: there is no such objective, in one sentence.

    Example:
        >>> from evenhand.training.objectives import canonical_objective
        >>> [canonical_objective(spec) for spec in ("erm", "cce:gamma=-1.0", "focal:gamma=1:alpha=.25")]
        ['ce', 'cce', 'focal:alpha=0.25:gamma=1']
        >>> [canonical_objective(spec) for spec in ("cce+logit-adjust", "mixup", "drw:start=.8+ldam+ce")]
        ['balanced-softmax+cce', 'ce+mixup', 'ldam+drw']
    """
    return spell(read_parts(spec))


def training_objective(spec: str) -> str:
    """Return an objective without what happens after training: runs that have this in common share their training.

    Example:
        >>> from evenhand.training.objectives import training_objective
        >>> training_objective("cce+post-hoc:tau=1")
        'cce'
    """
    return spell(tuple(part for part in read_parts(spec) if part.kind != "after"))


def stage_of(spec: str) -> StagePart | None:
    """Return the second stage that an objective is, if it is one.

    Example:
        >>> from evenhand.training.objectives import stage_of
        >>> stage_of("ce+crt").epochs, stage_of("ce")
        (10, None)
    """
    return next((part for part in read_parts(spec) if isinstance(part, StagePart)), None)


def stage_named(text: str, epochs: int | None = None) -> str:
    """Return the one spelling of a second stage alone, as `--stage` takes it.

    Args:
        text: `crt` or `lws`, with its settings.
        epochs: of the stage, where its settings do not say.

    Raises:
        EvenhandError: this is no stage, or its epochs are said twice or are too few; in one sentence.

    Example:
        >>> from evenhand.training.objectives import stage_named
        >>> stage_named("crt"), stage_named("lws", epochs=5)
        ('crt', 'lws:epochs=5')
    """
    names = [part.name for part in all_parts() if issubclass(part, StagePart)]
    if text.partition(":")[0] not in names or "+" in text:
        raise EvenhandError(f"A second stage is {' or '.join(names)}, with its settings, got {text!r}.")
    stage = stage_of(text)
    assert stage is not None
    if epochs is not None:
        if "epochs" in stage.model_fields_set and stage.epochs != epochs:
            raise EvenhandError(f"{text} and --epochs {epochs} both say how long the second stage is; give one.")
        stage = stage_of(f"{stage.name}:epochs={epochs}")
        assert stage is not None
    return stage.spec()


def first_stage(spec: str) -> str:
    """Return the objective of the run that a second stage starts from.

    Example:
        >>> from evenhand.training.objectives import first_stage
        >>> first_stage("cce+mixup+crt")
        'cce+mixup'
    """
    return spell(tuple(part for part in read_parts(spec) if part.kind not in ("stage", "after")))


def needs_validation(spec: str) -> bool:
    """Return whether something is chosen on validation images after training."""
    return any(isinstance(part, after.PostHoc) and part.tau == "auto" for part in read_parts(spec))


def require_validation(spec: str, select: str) -> None:
    """Refuse an objective that chooses on validation images where none are kept.

    Raises:
        EvenhandError: in one sentence.
    """
    if needs_validation(spec) and select == "last":
        raise EvenhandError(
            f"{spec} chooses its tau on validation images, which --select last does without; give tau a number, such "
            "as post-hoc:tau=1."
        )


def cost(spec: str) -> float:
    """Return how long training takes beside plain cross entropy, by operation count.

    Example:
        >>> from evenhand.training.objectives import cost
        >>> cost("cce"), cost("cot")
        (1.0, 2.0)
    """
    return prod(part.cost for part in read_parts(spec))


def build_objective(
    spec: str,
    *,
    counts: Sequence[int],
    epochs: int = 1,
    device: torch.device | str = "cpu",
    until: int | None = None,
) -> Objective:
    """Build an objective from what is known before training.

    Args:
        spec: one loss and any number of parts joined by `+`; :func:`list_objectives` names them.
        counts: of each class, the images really trained on.
        epochs: of the training.
        device: where batches are.
        until: leave out parts that set in after this epoch, counted from 1: weights of that epoch do not know them.

    Raises:
        EvenhandError: there is no such objective, or it does not go with these data; in one sentence.

    Example:
        >>> from evenhand.training.objectives import build_objective
        >>> build_objective("cot", counts=[90, 10]).num_optimizers
        2
        >>> build_objective("balanced-softmax+cce", counts=[90, 10]).offset
        tensor([-0.1054, -2.3026])
    """
    known = Known(tuple(int(count) for count in counts), epochs)
    parts = read_parts(spec)
    if until is not None:
        parts = tuple(part for part in parts if part.first_epoch(known) <= until)
    return Objective(parts, known, device)
