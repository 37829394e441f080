"""What `predict` returns: labels and probabilities that show themselves."""

import sys

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.training.prediction import MOST_ROWS, ImagePredictions

HOSTILE = "<script>alert(1)</script>"
SHARES = np.array([[0.7, 0.2, 0.1], [np.nan] * 3, [0.1, 0.3, 0.6]], np.float32)


@pytest.fixture
def found() -> ImagePredictions:
    return ImagePredictions(("a.jpg", HOSTILE, "image 2"), SHARES, np.array([0, -1, 2]), ("cat", "dog", HOSTILE))


def test_it_is_an_array_of_probabilities(found: ImagePredictions) -> None:
    np.testing.assert_array_equal(found, SHARES)
    assert np.asarray(found, np.float64).dtype == np.float64
    assert np.mean([found, found], axis=0).shape == (3, 3)
    changed = np.array(found)
    changed[:] = 0
    np.testing.assert_array_equal(found.probabilities, SHARES)
    assert len(found) == 3


def test_labels_are_names_and_none_where_unreadable(found: ImagePredictions) -> None:
    assert found.labels == ["cat", None, HOSTILE]


def test_the_table_of_a_notebook_is_escaped(found: ImagePredictions) -> None:
    html = found._repr_html_()
    assert HOSTILE not in html
    assert html.count("<tr>") == 4
    assert "<td>cat</td><td>70.0%</td><td>dog 20.0%</td>" in html
    assert "unreadable" in html
    assert repr(found).splitlines()[0].split() == ["a.jpg", "cat", "70.0%"]


def test_long_tables_are_cut() -> None:
    shares = np.full((MOST_ROWS + 5, 2), 0.5, np.float32)
    names = tuple(f"{k}.jpg" for k in range(len(shares)))
    found = ImagePredictions(names, shares, shares.argmax(1), ("cat", "dog"))
    assert found._repr_html_().count("<tr>") == 1 + MOST_ROWS
    assert "and 5 more images" in found._repr_html_()
    assert repr(found).splitlines()[-1] == "... and 5 more images"
    empty = ImagePredictions((), shares[:0], shares[:0].argmax(1), ("cat", "dog"))
    assert (repr(empty), len(empty.to_pandas())) == ("no images", 0)


def test_a_data_frame_has_a_row_per_image(found: ImagePredictions) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    table = found.to_pandas()
    assert list(table.index) == list(found.images)
    assert table.loc["a.jpg", "label"] == "cat"
    assert table.loc["a.jpg", "probability"] == pytest.approx(0.7)
    assert pandas.isna(table.loc[HOSTILE, "label"])
    np.testing.assert_array_equal(table[["p(cat)", "p(dog)", f"p({HOSTILE})"]].to_numpy(), SHARES)


def test_without_pandas_it_is_one_sentence(found: ImagePredictions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EvenhandError, match=r"^to_pandas needs pandas, which is not installed: pip install pandas\.$"):
        found.to_pandas()
