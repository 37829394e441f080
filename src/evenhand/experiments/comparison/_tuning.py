"""Tuning without cheating: settings of one objective compete on validation, and only the picked one meets the test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evenhand.core.errors import EvenhandError
from evenhand.core.spec import parse
from evenhand.runs.run import Run


@dataclass(frozen=True)
class Pick:
    """One objective: all its settings, and the one that stands for it."""

    family: str
    """What its settings have in common: the objective as it was listed, or its name without settings."""
    picked: str
    validation: dict[str, float | None]
    """Of each setting: mean validation balanced accuracy over seeds; None where nothing was validated."""

    @property
    def tuned(self) -> bool:
        """Whether there was a choice."""
        return len(self.validation) > 1

    def told(self) -> str:
        """Say what was picked, and among how many."""
        return (
            f"{self.picked} was picked among {len(self.validation)} settings of {self.family} by validation balanced "
            "accuracy; the test results of the others were not read."
        )


def family_of(objective: str) -> str:
    """Return an objective's name without its settings.

    Example:
        >>> from evenhand.experiments.comparison._tuning import family_of
        >>> family_of("balanced-softmax+cce:gamma=-2")
        'balanced-softmax+cce'
    """
    return "+".join(part.name for part in parse(objective))


def families_of(objectives: Sequence[str]) -> dict[str, list[str]]:
    """Return for each name the settings that it stands there with.

    Example:
        >>> from evenhand.experiments.comparison._tuning import families_of
        >>> families_of(["ce", "cce", "cce:gamma=-2"])
        {'ce': ['ce'], 'cce': ['cce', 'cce:gamma=-2']}
    """
    families: dict[str, list[str]] = {}
    for objective in objectives:
        families.setdefault(family_of(objective), []).append(objective)
    return families


def pick(
    grouped: Mapping[str, Mapping[int, Run]], families: Mapping[str, Sequence[str]], *, frozen: Sequence[str] = ()
) -> list[Pick]:
    """Pick a setting of each objective by mean validation balanced accuracy over seeds; of equal ones the first.

    Args:
        grouped: for each setting its runs by seed.
        families: for each objective its settings.
        frozen: settings that were picked before, which stay.

    Raises:
        EvenhandError: there is a choice, but runs without validation to choose by.
    """
    picks = []
    for family, settings in families.items():
        validation = {each: _mean_validation(grouped[each]) for each in settings}
        scored = {each: score for each, score in validation.items() if score is not None}
        if len(settings) > 1 and len(scored) < len(settings):
            raise EvenhandError(
                f"Cannot pick among {', '.join(settings)}: their runs have select: last and so no validation, and "
                "picking on the test set would flatter the best; train with --select best, or compare one of them."
            )
        before = [each for each in settings if each in frozen]
        best = max(scored, key=lambda each: scored[each]) if len(settings) > 1 else settings[0]
        picked = before[0] if before else best
        picks.append(Pick(family, picked, validation))
    return picks


def _mean_validation(runs: Mapping[int, Run]) -> float | None:
    # Of the summary only this: whoever picks among settings must not see how they did on the test set.
    reached = [run.summary.selected.val_balanced_accuracy for run in runs.values()]
    scores = [score for score in reached if score is not None]
    return sum(scores) / len(scores) if len(scores) == len(runs) else None
