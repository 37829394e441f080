"""What is claimed, in which words, and that nothing more is."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.experiments.comparison import judge_differences
from evenhand.experiments.comparison.verdict import conclusion, difference_sentence, in_points, verdict_sentences
from evenhand.runs.comparison import Difference
from evenhand.statistics.image_sampling import ImageError

CE = [0.80, 0.81, 0.79, 0.82, 0.80]


def plus(*gains: float) -> list[float]:
    """Cross entropy's values with these points added."""
    return [value + gain / 100 for value, gain in zip(CE, gains, strict=False)]


def differences_of(**objectives: list[float]) -> list[Difference]:
    n = min(map(len, objectives.values()))
    return judge_differences({"balanced_accuracy": {"ce": CE[:n], **objectives}}, "ce")


def sentences(**objectives: list[float]) -> list[str]:
    return [difference_sentence(each) for each in differences_of(**objectives)]


def test_better() -> None:
    assert sentences(cce=plus(1.5, 1.8, 2.1, 1.9, 1.7)) == ["balanced accuracy: cce +1.8 [1.5, 2.1] over ce, 5 seeds"]


def test_worse() -> None:
    expected = "balanced accuracy: cot worse, -0.8 [-1.1, -0.5] against ce, 5 seeds"
    assert sentences(cot=plus(-0.5, -0.8, -1.1, -0.9, -0.7)) == [expected]


def test_by_less_than_the_margin() -> None:
    up, down = (
        differences_of(cce=plus(0.5, 0.6, 0.55, 0.6, 0.5)),
        differences_of(cce=plus(-0.5, -0.6, -0.55, -0.6, -0.5)),
    )
    assert [each.outcome for each in (*up, *down)] == [
        "better by less than the margin",
        "worse by less than the margin",
    ]
    assert difference_sentence(up[0]).endswith("over ce, by less than the margin (1 point), 5 seeds")
    assert conclusion(up, "ce") == "Use cce: better than ce in balanced accuracy, by less than 1 point."
    [wide] = judge_differences({"few": {"ce": CE, "cce": plus(0.5, 0.6, 0.55, 0.6, 0.5)}}, "ce", margin=0.001)
    assert wide.outcome == "better"


def test_no_difference_that_matters() -> None:
    found = differences_of(cot=plus(0.1, -0.2, 0.2, 0.1, -0.1))
    assert [each.outcome for each in found] == ["no difference that matters"]
    assert found[0].decided
    assert "no difference that matters (below 1 point), 5 seeds" in difference_sentence(found[0])
    assert conclusion(found, "ce") == "Use ce: cot is no different by 1 point or more."


def test_undecided_reports_how_many_more_seeds_are_needed() -> None:
    [found] = differences_of(focal=plus(0.5, -0.4, 1.6))
    assert difference_sentence(found).startswith(
        "balanced accuracy: focal +0.6 [-1.9, 3.1] against ce: undecided with 3"
    )
    assert difference_sentence(found).endswith(f"{found.more_seeds} more would probably decide")
    assert 8 < found.more_seeds < 60, "a difference of 0.6 spreads"
    [sure] = differences_of(focal=plus(1.5, 0.6, 2.6))
    assert sure.outcome == "undecided"
    assert sure.more_seeds < found.more_seeds, "a larger one needs fewer"


def test_more_seeds_do_not_help_where_test_images_decide() -> None:
    values = {"balanced_accuracy": {"ce": CE, "cce": plus(1.5, 1.8, 2.1, 1.9, 1.7)}}
    few_images = {"balanced_accuracy": {"cce": ImageError(0.018, error=0.03, shared=0.03, freedom=50)}}
    [found] = judge_differences(values, "ce", images=few_images)
    assert found.outcome == "better on these test images only"
    assert found.more_seeds is None
    assert verdict_sentences([found])[0].endswith("may not hold on other test images")
    assert found.low < 0 < found.high
    assert "better on these test images only" in difference_sentence(found)
    assert conclusion([found], "ce").startswith("No winner yet: cce is better than ce on these test images only")
    many = {"balanced_accuracy": {"cce": ImageError(0.018, error=0.003, shared=0.003, freedom=5000)}}
    [found] = judge_differences(values, "ce", images=many)
    assert found.outcome == "better"


def test_no_difference_and_no_spread() -> None:
    same, shifted = differences_of(erm=CE, cce=plus(1, 1, 1, 1, 1))
    assert (
        difference_sentence(same) == "balanced accuracy: erm 0.0 [0.0, 0.0] against ce: no difference in any of 5 seeds"
    )
    assert same.words == "no difference seen"
    assert difference_sentence(shifted) == (
        "balanced accuracy: cce +1.0 against ce: undecided: all 5 seeds differ by the same amount, to within one "
        "test image, so there is no spread to test with"
    )


def test_one_image_more_in_every_seed_is_no_claim() -> None:
    values = {"ce": CE[:3], "cce": plus(100 / 350, 100 / 360, 100 / 370)}
    [plain] = judge_differences({"balanced_accuracy": values}, "ce")
    [found] = judge_differences({"balanced_accuracy": values}, "ce", resolutions={"balanced_accuracy": 1 / 370})
    assert (plain.claimed, found.outcome, found.p) == (True, "undecided", None)
    assert "to within one test image" in difference_sentence(found)
    [other] = judge_differences({"few": values}, "ce", resolutions={"balanced_accuracy": 1 / 370})
    assert other.claimed, "each metric has its own"


@given(
    values=st.lists(
        st.lists(st.integers(0, 1000).map(lambda v: v / 1000), min_size=4, max_size=4), min_size=2, max_size=4
    )
)
@settings(deadline=None, derandomize=True)
def test_every_claim_is_read_from_its_interval(values: list[list[float]]) -> None:
    named = {f"o{place}": own for place, own in enumerate(values)}
    for each in judge_differences({"balanced_accuracy": named, "few": named}, "o0"):
        assert each.claimed == (each.p is not None and each.level > 0 and each.p <= each.level)
        assert each.outcome.startswith(("better", "worse")) == each.claimed
        if each.level and each.low is not None and each.spread:
            assert each.claimed == (not each.low <= 0 <= each.high)
            inside = max(abs(each.low), abs(each.high)) < 0.01
            assert inside == each.outcome.endswith(("matters", "the margin"))


def test_few_shot_classes_are_tested_behind_balanced_accuracy() -> None:
    sure, noisy = plus(1.5, 1.8, 2.1, 1.9, 1.7), plus(2, -2, 1, -3, 2)
    values = {"few": {"ce": CE, "a": sure, "b": sure}, "balanced_accuracy": {"ce": CE, "a": sure, "b": noisy}}
    found = judge_differences(values, "ce")
    assert [(each.metric, each.objective) for each in found] == [
        ("balanced_accuracy", "a"),
        ("balanced_accuracy", "b"),
        ("few", "a"),
        ("few", "b"),
    ]
    assert [each.outcome for each in found] == ["better", "undecided", "better", "undecided"]
    assert [each.level for each in found] == pytest.approx([0.025, 0.025 + 0.00625, 0.0125, 0])
    assert found[3].words == "not tested"
    assert "balanced accuracy is tested first" in difference_sentence(found[3])


def test_what_is_undecided_is_one_line() -> None:
    noisy = {name: plus(4, -3, 1, -2, 1) for name in "abcdef"}
    values = {"ce": CE, **noisy, "cce": plus(9.5, 9.8, 9.1, 9.9, 9.7)}
    found = judge_differences({"balanced_accuracy": values, "few": values}, "ce")
    lines = verdict_sentences(found)
    assert len(lines) == 3
    assert lines[0].startswith("balanced accuracy: cce +9.6")
    assert lines[2].startswith("undecided with 5 seeds: a, b, c, d, e, f in balanced accuracy; ")


def test_two_objectives_that_are_no_objectives() -> None:
    assert judge_differences({"balanced_accuracy": {"ce": CE}}, "ce") == []
    assert judge_differences({}, "ce") == []


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
    p = 0.001 if sure else 0.5
    return Difference(
        objective=objective,
        baseline="ce",
        metric=metric,
        seeds=seeds,
        mean=mean,
        low=mean,
        high=mean,
        level=0.01,
        claimed=sure,
        on_these_images=sure,
        p=p,
        spread=0.01,
    )


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
            "Use cce: better than ce in balanced accuracy; worse for few-shot classes.",
        ),
        (
            [claim("cce", BALANCED, 1), claim("cot", BALANCED, 2), claim("focal", BALANCED, 3, sure=False)],
            "Use cce or cot: each is better than ce in balanced accuracy; which of them is best was not tested.",
        ),
        (
            [claim("cce", BALANCED, 0.005), claim("cot", BALANCED, 2), claim("cce", FEW, 1), claim("cot", FEW, -1)],
            "Use cce or cot: each is better than ce in balanced accuracy (cot worse for few-shot classes; cce by "
            "less than 1 point); which of them is best was not tested.",
        ),
        (
            [claim("cce", BALANCED, -1), claim("cot", BALANCED, -1)],
            "Use ce: cce and cot are worse in balanced accuracy.",
        ),
        (
            [claim("cce", BALANCED, -1), claim("cot", BALANCED, 5, sure=False)],
            "No winner yet: with 5 seeds nothing is shown to be better than ce; keep ce.",
        ),
        (
            [claim("cce", BALANCED, 9, seeds=1)],
            "No winner yet: one seed cannot separate a better objective from training noise; run 3 seeds or more.",
        ),
        ([], "No winner: there is nothing to compare ce with."),
    ],
)
def test_conclusion(differences: list[Difference], text: str) -> None:
    assert conclusion(differences, "ce") == text


def test_one_value_each_claims_nothing() -> None:
    [found] = judge_differences({"balanced_accuracy": {"ce": [0.5], "cce": [0.9]}}, "ce")
    assert (found.outcome, found.p) == ("undecided", None)
    assert math.isclose(found.mean, 0.4)
    assert difference_sentence(found).startswith("balanced accuracy: cce +40.0 against ce: undecided with 1 seed")
