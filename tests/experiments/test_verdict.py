"""What is claimed, in which words, and that nothing more is."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from evenhand.experiments.comparison.verdict import Difference, conclusion, in_points, judge_differences

CE = [0.80, 0.81, 0.79, 0.82, 0.80]


def plus(*gains: float) -> list[float]:
    """Cross entropy's values with these points added."""
    return [value + gain / 100 for value, gain in zip(CE, gains, strict=False)]


def sentences(**objectives: list[float]) -> list[str]:
    n = min(map(len, objectives.values()))
    values = {"ce": CE[:n], **objectives}
    return [each.sentence() for each in judge_differences({"balanced_accuracy": values}, "ce")]


def test_better() -> None:
    assert sentences(cce=plus(0.5, 0.8, 1.1, 0.9, 0.7)) == ["balanced accuracy: cce +0.8 [0.5, 1.1] over ce, 5 seeds"]


def test_worse() -> None:
    expected = "balanced accuracy: cot worse, -0.8 [-1.1, -0.5] against ce, 5 seeds"
    assert sentences(cot=plus(-0.5, -0.8, -1.1, -0.9, -0.7)) == [expected]


def test_cannot_tell_says_what_would_show() -> None:
    [found] = sentences(focal=plus(0.5, -0.4, 0.6))
    assert found == (
        "balanced accuracy: focal +0.2 [-1.1, 1.6] against ce: cannot tell with 3 seeds; only differences above about "
        "1.8 points would show"
    )


def test_what_would_show_grows_with_the_number_of_tests() -> None:
    noisy = plus(0.5, -0.4, 0.6)
    alone, *_ = judge_differences({"balanced_accuracy": {"ce": CE[:3], "a": noisy}}, "ce")
    among, *_ = judge_differences({"balanced_accuracy": {"ce": CE[:3], "a": noisy, "b": noisy, "c": noisy}}, "ce")
    assert alone.detectable == alone.detectable_in_family == among.detectable
    assert among.detectable_in_family > 1.5 * among.detectable


def test_a_difference_that_only_the_plain_test_finds_is_not_claimed() -> None:
    noisy = plus(2, -2, 1, -3, 2)
    close = plus(0.9, 0.1, 1.2, 0.2, 1.0)
    first, *_ = sentences(cce=close, a=noisy, b=noisy)
    assert 0.0166 < ttest_rel(close, CE).pvalue < 0.05
    assert "cannot tell with 5 seeds; too little after Holm's correction (p = 0.11)" in first
    assert "over" not in first
    assert sentences(cce=close)[0].endswith("over ce, 5 seeds"), "as the only test it is claimed"


def test_no_difference_and_no_spread() -> None:
    same, shifted = sentences(erm=CE, cce=plus(1, 1, 1, 1, 1))
    assert same == "balanced accuracy: erm 0.0 [0.0, 0.0] against ce: no difference in any of 5 seeds"
    assert shifted == (
        "balanced accuracy: cce +1.0 against ce: cannot tell, as all 5 seeds differ by the same amount, to within one "
        "test image, and so show no spread to test with"
    )


def test_one_image_more_in_every_seed_is_no_claim() -> None:
    values = {"ce": CE[:3], "cce": plus(100 / 350, 100 / 360, 100 / 370)}
    [plain] = judge_differences({"balanced_accuracy": values}, "ce")
    [found] = judge_differences({"balanced_accuracy": values}, "ce", resolutions={"balanced_accuracy": 1 / 370})
    assert (plain.outcome, found.outcome, found.p) == ("better", "cannot tell", None)
    assert "to within one test image" in found.sentence()
    [other] = judge_differences({"few": values}, "ce", resolutions={"balanced_accuracy": 1 / 370})
    assert other.outcome == "better", "each metric has its own"


def test_two_seeds_that_could_show_nothing_say_so() -> None:
    noisy = {name: plus(4, -3) for name in "abcdef"}
    assert sentences(**noisy)[0].endswith(
        "cannot tell with 2 seeds; no difference can be counted on to show with so few"
    )


@given(
    values=st.lists(
        st.lists(st.integers(0, 1000).map(lambda v: v / 1000), min_size=4, max_size=4), min_size=2, max_size=4
    )
)
@settings(deadline=None, derandomize=True)
def test_a_claim_always_has_holm_s_p_below_5_percent(values: list[list[float]]) -> None:
    named = {f"o{place}": own for place, own in enumerate(values)}
    for each in judge_differences({"balanced_accuracy": named, "few": named}, "o0"):
        claimed = " over " in each.sentence() or " worse, " in each.sentence()
        assert claimed == (each.holm_p is not None and each.holm_p < 0.05) == (each.outcome != "cannot tell")
        assert each.holm_p is None or each.p is None or each.holm_p >= each.p
        if claimed:
            assert each.low is not None
            assert each.high is not None
            assert (each.low > 0) == (each.mean > 0) == (each.high > 0), "the interval agrees with the claim"


def test_the_family_is_all_objectives_times_both_metrics() -> None:
    cce, cot = plus(0.5, 0.8, 1.1, 0.9, 0.7), plus(0.5, -0.4, 0.6, 0.1, 0)
    values = {"ce": CE, "cce": cce, "cot": cot}
    found = judge_differences({"balanced_accuracy": values, "few": values}, "ce")
    assert [(each.metric, each.objective) for each in found] == [
        ("balanced_accuracy", "cce"),
        ("balanced_accuracy", "cot"),
        ("few", "cce"),
        ("few", "cot"),
    ]
    assert found[0].holm_p == pytest.approx(4 * ttest_rel(cce, CE).pvalue)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0.008, 0.002, 0.014), "+0.8 [0.2, 1.4]"),
        ((-0.25, -0.3, -0.2), "-25.0 [-30.0, -20.0]"),
        ((0.01, -0.0004, 0.02), "+1.00 [-0.04, 2.00]"),
        ((0.0, 0.0, 0.0), "0.0 [0.0, 0.0]"),
        ((-0.000001, None, None), "0.000"),
        ((0.000001, None, None), "0.000"),
    ],
)
def test_points(numbers: tuple[float, float | None, float | None], text: str) -> None:
    assert in_points(*numbers) == text


def claim(objective: str, metric: str, mean: float, *, sure: bool = True, seeds: int = 5) -> Difference:
    p = 0.01 if sure else 0.5
    return Difference(objective, "ce", metric, "paired t over seeds", seeds, mean, mean, mean, 0.01, p, p)


BALANCED, FEW = "balanced_accuracy", "few"


@pytest.mark.parametrize(
    ("differences", "text"),
    [
        ([claim("cce", BALANCED, 1)], "Use cce: better than ce in balanced accuracy."),
        (
            [claim("cce", BALANCED, 1), claim("cce", FEW, 1)],
            "Use cce: better than ce in balanced accuracy, for few-shot classes too.",
        ),
        (
            [claim("cce", BALANCED, 1), claim("cce", FEW, -1)],
            "Use cce: better than ce in balanced accuracy; its few-shot classes pay.",
        ),
        (
            [claim("cce", BALANCED, 1), claim("cot", BALANCED, 2), claim("focal", BALANCED, 3, sure=False)],
            "Use cce or cot: each is better than ce in balanced accuracy; which of them is best was not tested.",
        ),
        (
            [claim("cce", BALANCED, 1), claim("cot", BALANCED, 2), claim("cce", FEW, 1), claim("cot", FEW, -1)],
            "Use cce or cot: each is better than ce in balanced accuracy (cot at the price of few-shot classes); which "
            "of them is best was not tested.",
        ),
        (
            [claim("cce", BALANCED, 1, sure=False), claim("cce", FEW, 2)],
            "No winner in balanced accuracy; where only few-shot classes matter, cce is better than ce.",
        ),
        (
            [claim("cce", BALANCED, -1), claim("cce", FEW, 2)],
            "No winner in balanced accuracy; where only few-shot classes matter, cce is better than ce (cce at the "
            "price of balanced accuracy).",
        ),
        (
            [claim("cce", BALANCED, -1), claim("cot", BALANCED, -1)],
            "Use ce: cce and cot are worse in balanced accuracy.",
        ),
        (
            [claim("cce", BALANCED, -1), claim("cot", BALANCED, 5, sure=False)],
            "No winner: nothing here is shown to be better than ce; stay with ce, or add seeds.",
        ),
        (
            [claim("cce", BALANCED, 9, seeds=1)],
            "No winner: one seed cannot tell a better objective from training noise; run 3 seeds or more.",
        ),
        ([], "No winner: there is nothing to compare ce with."),
    ],
)
def test_conclusion(differences: list[Difference], text: str) -> None:
    assert conclusion(differences, "ce") == text


def test_one_value_each_claims_nothing() -> None:
    [found] = judge_differences({"balanced_accuracy": {"ce": [0.5], "cce": [0.9]}}, "ce")
    assert (found.outcome, found.p) == ("cannot tell", None)
    assert math.isclose(found.mean, 0.4)
    assert found.sentence() == "balanced accuracy: cce +40.0 against ce: cannot tell with 1 seed"
