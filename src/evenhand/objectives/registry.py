"""The registry of parts: their names, help and settings, and what `compare --tune` tries."""

from dataclasses import dataclass

from evenhand.core.errors import EvenhandError
from evenhand.objectives.part import PARTS, Part, TrainingStats, spelled
from evenhand.objectives.spec import ObjectiveSpec, all_parts, allowed_values


@dataclass(frozen=True)
class PartInfo:
    """The description of a part of objectives."""

    name: str
    kind: str
    """A key of `evenhand.objectives.part.KINDS`."""
    help: str
    """One line."""
    settings: dict[str, str]
    """Allowed values, default and help of each setting."""
    tuning_grid: list[str]
    """Specs that `compare --tune` tries next to the defaults."""


def list_objectives() -> list[str]:
    """Return the names of all parts of objectives: losses first, then by kind.

    An objective is one loss (`ce` if none is named) and any number of other parts, joined by `+`, each with its
    settings: `cce`, `balanced-softmax+cce:share=0.3`, `ldam+drw`. :func:`describe_objectives` has help for each.

    Example:
        >>> from evenhand import list_objectives
        >>> list_objectives()[:3]
        ['ce', 'focal', 'cce']
    """
    return [part.name for part in all_parts()]


def describe_objectives() -> list[PartInfo]:
    """Return every part of objectives with its help and settings: losses first, then by kind.

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
            settings=describe_settings(part),
            tuning_grid=[tuned.model_validate(settings).spec() for settings in tuned.tuning_grid],
        )
        for part, tuned in ((each, PARTS[each.tuned_as or each.name]) for each in all_parts())
    ]


def describe_settings(part: type[Part]) -> dict[str, str]:
    """Return the allowed values, the default and the help of each setting of a part.

    Example:
        >>> from evenhand.objectives.losses import Focal
        >>> from evenhand.objectives.registry import describe_settings
        >>> describe_settings(Focal)["alpha"]
        'a number above 0: factor for all classes'
    """
    texts = {}
    for key, field in part.model_fields.items():
        default = "" if field.default is None else f" (default {spelled(field.default)})"
        texts[key] = f"{allowed_values(field)}{default}: {field.description}"
    return texts


def tuning_candidates(spec: str, num_classes: int | None = None) -> list[ObjectiveSpec]:
    """Return what `compare --tune` trains for an objective: itself, and the settings in its parts' tuning grids.

    One part is changed at a time, so that there are few. A part whose settings differ from the defaults is not changed.

    Args:
        spec: an objective.
        num_classes: K, to leave out settings that need more classes; None: unknown.

    Raises:
        EvenhandError: there is no such objective.

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
        for settings in () if part.changed_settings() else tuned.tuning_grid:
            changed = (*parts[:place], tuned.model_validate(settings), *parts[place + 1 :])
            if _can_be_combined(changed, num_classes):
                found.append(ObjectiveSpec.of(changed))
    return found


def _can_be_combined(parts: tuple[Part, ...], num_classes: int | None) -> bool:
    try:
        for part in parts:
            part.check(parts)
            if num_classes is not None:
                part.check_stats(TrainingStats((1,) * num_classes))
    except EvenhandError:
        return False
    return True
