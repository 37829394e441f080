"""What is claimed, in which words, and that nothing more is."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.experiments.comparison import judge_differences
from evenhand.experiments.comparison.verdict import (
    difference_sentence,
    in_points,
    keep_earlier,
    recommend,
    verdict_sentences,
)
from evenhand.runs.comparison_schemas import Difference
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
    assert difference_sentence(up[0]).endswith("over ce, by less than the margin (1 pp), 5 seeds")
    assert recommend(up, "ce").sentence == "Use ce: cce is better by less than the margin of 1 pp."
    [wide] = judge_differences({"few": {"ce": CE, "cce": plus(0.5, 0.6, 0.55, 0.6, 0.5)}}, "ce", margin=0.001)
    assert wide.outcome == "better"


def test_practically_equivalent() -> None:
    found = differences_of(cot=plus(0.1, -0.2, 0.2, 0.1, -0.1))
    assert [each.outcome for each in found] == ["practically equivalent"]
    assert found[0].decided
    assert "practically equivalent (within ±1 pp), 5 seeds" in difference_sentence(found[0])
    assert recommend(found, "ce").sentence == "Use ce: cot is practically equivalent (within ±1 pp)."


def test_undecided_reports_how_many_more_seeds_are_needed() -> None:
    [found] = differences_of(focal=plus(0.5, -0.4, 1.6))
    assert difference_sentence(found).startswith(
        "balanced accuracy: focal +0.6 [-1.9, 3.2] against ce: undecided with 3"
    )
    total = 3 + found.more_seeds
    assert total > 24, "more than are worth a new comparison"
    needed = f"about {total} seeds would be needed"
    assert difference_sentence(found).endswith(f"; {needed}")
    assert verdict_sentences([found]) == [f"undecided with 3 seeds: focal in balanced accuracy; {needed}"]
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
    best = recommend([found], "ce")
    assert (best.objective, best.certainty) == ("cce", "undecided")
    assert best.sentence.endswith("cce is better on these test images only; test on more images.")
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
            assert inside == each.outcome.endswith(("equivalent", "the margin"))


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
    assert [each.outcome for each in found] == ["better", "undecided", "better", "not tested"]
    assert [each.level for each in found] == pytest.approx([0.025, 0.025 + 0.00625, 0.0125, 0])
    assert (found[3].words, found[3].shown_p) == ("not tested", "")
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
OPEN = claim("b", BALANCED, 0.003, sure=False).model_copy(update={"low": -0.02, "high": 0.026})
NO_RARE = {"ce": "ce recognises no image of its 3 few-shot classes (in 5 of 5 seeds)"}


@pytest.mark.parametrize(
    ("differences", "failed", "objective", "certainty", "words"),
    [
        ([claim("cce", BALANCED, 0.03)], {}, "cce", "shown", "Use cce: +3.0 [3.0, 3.0] over ce in balanced accuracy"),
        ([claim("cce", BALANCED, 0.03), claim("cce", FEW, 0.1)], {}, "cce", "shown", "and higher few-shot recall"),
        ([claim("cce", BALANCED, 0.03), claim("cce", FEW, -0.1)], {}, "cce", "shown", "but lower few-shot recall"),
        (
            [claim("a", BALANCED, 0.02), claim("b", BALANCED, 0.05), claim("c", BALANCED, 0.03)],
            {},
            "b",
            "shown",
            "a (+2.0) and c (+3.0) are better too; which of them is best was not tested",
        ),
        (
            [claim("a", BALANCED, 0.02), claim("b", BALANCED, 0.05, sure=False)],
            {},
            "a",
            "shown",
            "The mean of b is higher, but undecided.",
        ),
        ([claim("a", BALANCED, 0.005)], {}, "ce", "shown", "Use ce: a is better by less than the margin of 1 pp."),
        ([claim("a", BALANCED, -0.02)], {}, "ce", "shown", "Use ce: a is worse in balanced accuracy."),
        (
            [claim("a", BALANCED, -0.02), claim("b", BALANCED, 0.05, sure=False)],
            {},
            "b",
            "undecided",
            "Undecided with 5 seeds; b has the highest mean so far",
        ),
        ([claim("a", BALANCED, -0.05, sure=False)], {}, "ce", "undecided", "ce has the highest mean so far"),
        ([claim("a", BALANCED, -0.05, sure=False)], NO_RARE, "a", "undecided", f"{NO_RARE['ce']}. Undecided"),
        ([claim("a", BALANCED, 0.005)], NO_RARE, "a", "shown", f"{NO_RARE['ce']}. Use a"),
        ([claim("a", BALANCED, -0.05)], NO_RARE, "a", "undecided", "a has the highest mean of the others (-5.0"),
        (
            [claim("a", BALANCED, -0.05, sure=False), claim("b", BALANCED, -0.06, sure=False)],
            {**NO_RARE, "a": "a learned nothing"},
            "b",
            "undecided",
            NO_RARE["ce"],
        ),
        (
            [claim("a", BALANCED, -0.05, sure=False), claim("b", BALANCED, -0.06, sure=False)],
            {**NO_RARE, "a": "a failed", "b": "b failed"},
            "a",
            "undecided",
            "Every objective failed. Undecided with 5 seeds; a has the highest mean of the others (-5.0 [",
        ),
        (
            [claim("a", BALANCED, 0.009), OPEN],
            {},
            "ce",
            "undecided",
            "Undecided with 5 seeds; ce for now: the highest mean so far is that of a (+0.9 [0.9, 0.9] against ce), a "
            "gain below the margin of 1 pp.",
        ),
        (
            [claim("a", BALANCED, 0.009), claim("b", BALANCED, 0.03, sure=False)],
            {},
            "b",
            "undecided",
            "b has the highest mean so far (+3.0",
        ),
        (
            [claim("a", BALANCED, 0.05), OPEN],
            {"a": "a recognises no image of its 3 few-shot classes"},
            "b",
            "undecided",
            "b has the highest mean so far (+0.3 [-2.0, 2.6] against ce), apart from a, which failed.",
        ),
        ([claim("cce", BALANCED, 0.09, sure=False, seeds=1)], {}, "cce", "undecided", "run 3 seeds or more"),
        ([], {}, "ce", "undecided", "nothing to compare ce with"),
    ],
)
def test_one_objective_is_recommended(
    differences: list[Difference], failed: dict[str, str], objective: str, certainty: str, words: str
) -> None:
    found = recommend(differences, "ce", failed)
    assert (found.objective, found.certainty) == (objective, certainty)
    assert words in found.sentence
    assert "stay with" not in found.sentence
    assert "keep" not in found.sentence


def test_a_mean_gain_below_the_margin_is_not_called_smaller_than_it() -> None:
    values = {"ce": [0.5, 0.51, 0.49, 0.5, 0.52], "cce": [0.508, 0.52, 0.499, 0.509, 0.5295]}
    found = judge_differences({"balanced_accuracy": values}, "ce")
    assert found[0].mean < 0.01 < found[0].high
    assert recommend(found, "ce").sentence.startswith("Use ce: the mean gain of cce (+0.9 [")


def test_equal_results_have_no_highest_mean() -> None:
    values = {"ce": [0.5, 0.51, 0.49], "erm": [0.5, 0.51, 0.49]}
    sentence = recommend(judge_differences({"balanced_accuracy": values}, "ce"), "ce").sentence
    assert sentence == "Undecided with 3 seeds; erm does not differ from ce in any of them."


@pytest.mark.parametrize(("seeds", "more", "limit"), [(3, 5, ""), (3, 20, "not decidable with 12 seeds, ")])
def test_more_seeds_are_a_new_comparison(seeds: int, more: int, limit: str) -> None:
    open_ = claim("a", BALANCED, 0.05, sure=False, seeds=seeds).model_copy(update={"more_seeds": more})
    total = seeds + more
    expected = f"{limit}about {total} seeds would be needed; start a new comparison with --seeds {total} --out NEW."
    assert recommend([open_], "ce").sentence.endswith(f"; {expected}")


def test_where_very_many_seeds_are_needed_images_are_what_is_missing() -> None:
    open_ = claim("a", BALANCED, 0.05, sure=False, seeds=12).model_copy(update={"more_seeds": 88})
    sentence = recommend([open_], "ce").sentence
    assert sentence.endswith(
        "; these images do not decide it, as about 100 seeds would be needed; add images, of rare classes first."
    )
    assert "--seeds" not in sentence
    assert "--seeds" not in difference_sentence(open_)


def test_how_many_seeds_are_needed_says_for_which() -> None:
    a = claim("a", BALANCED, -0.05, sure=False).model_copy(update={"more_seeds": 4})
    b = claim("b", BALANCED, -0.04, sure=False)
    assert "; about 9 seeds would be needed for a; start a new" in recommend([a, b], "ce").sentence
    assert "; about 9 seeds would be needed; start a new" in recommend([a], "ce").sentence
    small = claim("c", BALANCED, 0.009)
    assert "; about 9 seeds would be needed for a; start a new" in recommend([a, small], "ce").sentence


def test_a_decision_stays_and_its_numbers_are_those_of_all_seeds() -> None:
    early = claim("a", BALANCED, 0.062, seeds=5)
    now = claim("a", BALANCED, 0.057, sure=False, seeds=12)
    kept = keep_earlier(now, early)
    assert (kept.mean, kept.seeds, kept.outcome, kept.decided) == (0.057, 12, "better", True)
    assert kept.words == "better (decided at 5 seeds)"
    expected = "Use a: +5.7 [5.7, 5.7] over ce in balanced accuracy, 12 seeds, decided at 5."
    assert recommend([kept], "ce").sentence == expected
    turned = claim("a", BALANCED, -0.001, sure=False, seeds=12)
    assert keep_earlier(turned, early) == turned, "a direction that all seeds do not confirm is no claim"


def test_one_value_each_claims_nothing() -> None:
    [found] = judge_differences({"balanced_accuracy": {"ce": [0.5], "cce": [0.9]}}, "ce")
    assert (found.outcome, found.p) == ("undecided", None)
    assert math.isclose(found.mean, 0.4)
    assert difference_sentence(found).startswith("balanced accuracy: cce +40.0 against ce: undecided with 1 seed")
