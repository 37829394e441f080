"""Class weights from a file: read once, when a config is made, and kept in the config under the classes' names."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from evenhand.core.class_tables import read_class_values, reading
from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.objectives.weights import ClassWeights


def weights_file(objective: ObjectiveSpec) -> str | None:
    """Return the file of class weights that an objective names; None: it names none.

    Example:
        >>> from evenhand.objectives import ObjectiveSpec
        >>> from evenhand.runs.class_weights import weights_file
        >>> weights_file(ObjectiveSpec("ce+weights:file=weights.csv"))
        'weights.csv'
    """
    return next((part.file for part in objective.parts if isinstance(part, ClassWeights)), None)


def read_class_weights(path: Path | str) -> dict[str, float]:
    r"""Read a weight per class: a table of two columns, separated by commas, semicolons or tabs.

    Raises:
        EvenhandError: the file cannot be read, names a class twice, or a weight is not above 0 and finite.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.runs.class_weights import read_class_weights
        >>> path = Path(tempfile.mkdtemp()) / "weights.csv"
        >>> _ = path.write_text("class,weight\ncat,1\nlynx,20\n")
        >>> read_class_weights(path)
        {'cat': 1.0, 'lynx': 20.0}
    """
    with reading(path, "class weights"):
        return read_class_values(path, "weight", positive=True)


def weights_in_order(weights: Mapping[str, float] | None, class_names: Sequence[str]) -> tuple[float, ...] | None:
    """Return the weights of these classes in their order; None: there are none.

    Raises:
        EvenhandError: the weights are of other classes.
    """
    if weights is None:
        return None
    unknown, missing = sorted(set(weights) - set(class_names)), sorted(set(class_names) - set(weights))
    if unknown or missing:
        what = f"has unknown classes: {some(unknown)}" if unknown else f"lacks {some(missing)}"
        raise EvenhandError(f"The file of class weights {what}; give a weight for each of {some(class_names)}.")
    return tuple(weights[name] for name in class_names)
