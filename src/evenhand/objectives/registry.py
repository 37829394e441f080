"""Every part of which objectives are made, described for people and for tuning."""

from dataclasses import dataclass

from evenhand.core.errors import EvenhandError
from evenhand.objectives.part import PARTS, Part, TrainingStats, spelled
from evenhand.objectives.spec import ObjectiveSpec, all_parts, wanted


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
    tuning_grid: list[str]
    """Specs that `compare --tune` tries next to the defaults."""


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
        >>> from evenhand.objectives import describe_objectives
        >>> [(part.name, part.help) for part in describe_objectives() if part.kind == "loss"][0]
        ('ce', 'Cross entropy')
    """
    return [
        PartInfo(
            part.name,
            part.kind,
            help=(part.__doc__ or "").splitlines()[0].rstrip("."),
            settings=settings_of(part),
            tuning_grid=[tuned.model_validate(settings).spec() for settings in tuned.tuning_grid],
        )
        for part, tuned in ((each, PARTS[each.tuned_as or each.name]) for each in all_parts())
    ]


def settings_of(part: type[Part]) -> dict[str, str]:
    """Return what each setting of a part may be, its default and what it does, in words.

    Example:
        >>> from evenhand.objectives.losses import Focal
        >>> from evenhand.objectives.registry import settings_of
        >>> settings_of(Focal)["gamma"]
        'a number of 0 or more (2): how fast it fades'
    """
    texts = {}
    for key, field in part.model_fields.items():
        default = "" if field.default is None else f" ({spelled(field.default)})"
        texts[key] = f"{wanted(field)}{default}: {field.description}"
    return texts


def tuning_candidates(spec: str, num_classes: int | None = None) -> list[ObjectiveSpec]:
    """Return what `compare --tune` trains for an objective: itself, and each setting that one of its parts declares.

    One part is changed at a time, so that there are few. A part that is given with settings stays as it is given.

    Args:
        spec: an objective.
        num_classes: K, to leave out settings that do not go with so few classes; None: not stats.

    Raises:
        EvenhandError: there is no such objective, in one sentence.

    Example:
        >>> from evenhand.objectives import tuning_candidates
        >>> tuning_candidates("label-smoothing")
        ['ce+label-smoothing', 'ce+label-smoothing:eps=0.05', 'ce+label-smoothing:eps=0.2']
        >>> tuning_candidates("cce:share=0.3")
        ['cce:share=0.3']
    """
    own = ObjectiveSpec(spec)
    parts, found = own.parts, [own]
    for place, part in enumerate(parts):
        tuned = PARTS[part.tuned_as or part.name]
        for settings in () if part.model_fields_set else tuned.tuning_grid:
            changed = (*parts[:place], tuned.model_validate(settings), *parts[place + 1 :])
            if _goes_together(changed, num_classes):
                found.append(ObjectiveSpec.of(changed))
    return found


def _goes_together(parts: tuple[Part, ...], num_classes: int | None) -> bool:
    try:
        for part in parts:
            part.check(parts)
            if num_classes is not None:
                part.check_stats(TrainingStats((1,) * num_classes))
    except EvenhandError:
        return False
    return True
