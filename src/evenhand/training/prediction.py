"""The predictions of a model for new images: what `TrainedModel.predict` returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.text import visible

if TYPE_CHECKING:
    import pandas

MOST_ROWS = 20
"""Of a table in a notebook."""


@dataclass(frozen=True, eq=False, repr=False)
class ImagePredictions:
    """Labels and probabilities of images; in a notebook it shows itself as a table.

    `np.asarray` of it gives the probabilities, so that it can be used as an array of them.

    Attributes:
        images: the path of each image, or `image 0`, `image 1`, ... for images in memory.
        probabilities: (N, K); NaN in the row of an unreadable image.
        predicted: (N,), the number of the predicted class; -1 for an unreadable image.
        class_names: the K classes.

    Example:
        >>> import numpy as np
        >>> from evenhand.training.prediction import ImagePredictions
        >>> shares = np.array([[0.9, 0.1], [0.3, 0.7]], np.float32)
        >>> found = ImagePredictions(("a.jpg", "b.jpg"), shares, shares.argmax(1), ("cat", "dog"))
        >>> found.labels, len(found)
        (['cat', 'dog'], 2)
        >>> found
        a.jpg  cat  90.0%
        b.jpg  dog  70.0%
        >>> np.asarray(found).shape
        (2, 2)
    """

    images: tuple[str, ...]
    probabilities: NDArray[np.float32]
    predicted: NDArray[np.int64]
    class_names: tuple[str, ...]

    @property
    def labels(self) -> list[str | None]:
        """The name of the predicted class of each image; None for an unreadable one."""
        return [self.class_names[k] if k >= 0 else None for k in self.predicted.tolist()]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a table with a row per image: `label`, `probability` and the probability of each class, `p(NAME)`.

        Raises:
            EvenhandError: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise EvenhandError("to_pandas needs pandas, which is not installed: pip install pandas.") from error
        content: dict[str, Any] = {"label": self.labels, "probability": self._of_predicted()}
        content |= {f"p({name})": self.probabilities[:, k] for k, name in enumerate(self.class_names)}
        return pandas.DataFrame(content, index=pandas.Index(self.images, name="image"))

    def __len__(self) -> int:
        return len(self.images)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        given = self.probabilities if dtype is None else self.probabilities.astype(dtype, copy=False)
        return given.copy() if copy else given

    def __repr__(self) -> str:
        shown = self._rows()
        widths = [max((len(row[column]) for row in shown), default=0) for column in range(3)]
        lines = [f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}" for row in shown]
        return "\n".join([*lines, *self._left_out()]) or "no images"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("image", "class", "probability", "next"))
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._rows())
        more = "".join(f"<p>{line}</p>" for line in self._left_out())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def _rows(self) -> list[Sequence[str]]:
        """Return image, class, probability and the next most probable class of the first images, as texts."""
        rows: list[Sequence[str]] = []
        for name, label, probability, shares in zip(
            self.images[:MOST_ROWS], self.labels, self._of_predicted().tolist(), self.probabilities, strict=False
        ):
            if label is None:
                rows.append((visible(name), "unreadable", "", ""))
                continue
            others = [k for k in np.argsort(-shares, kind="stable")[:2].tolist() if self.class_names[k] != label]
            runner = f"{visible(self.class_names[others[0]])} {shares[others[0]]:.1%}" if others else ""
            rows.append((visible(name), visible(label), f"{probability:.1%}", runner))
        return rows

    def _left_out(self) -> list[str]:
        more = len(self) - MOST_ROWS
        return [f"... and {more:,} more images"] if more > 0 else []

    def _of_predicted(self) -> NDArray[np.float32]:
        """Return the probability of the predicted class of each image, (N,)."""
        found = self.probabilities[np.arange(len(self)), self.predicted]
        return np.where(self.predicted >= 0, found, np.float32(np.nan))
