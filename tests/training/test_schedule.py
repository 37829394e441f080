"""The learning rate at iterations counted by hand, and what holds for any schedule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.runs.config import make_config
from evenhand.runs.config_sections import ScheduleConfig

BATCHES = 391
"""Of CIFAR-10 at 128 a batch."""


@pytest.mark.parametrize(
    ("iteration", "lr"),
    [
        (1, 0.1 * 1 / (5 * BATCHES)),
        (2, 0.1 * 2 / (5 * BATCHES)),
        (978, 0.1 * 978 / 1955),
        (5 * BATCHES, 0.1),
        (5 * BATCHES + 1, 0.1),
        (60 * BATCHES, 0.1),
        (60 * BATCHES + 1, 0.05),
        (120 * BATCHES, 0.05),
        (120 * BATCHES + 1, 0.025),
        (160 * BATCHES, 0.025),
        (160 * BATCHES + 1, 0.0125),
        (200 * BATCHES, 0.0125),
    ],
)
def test_paper(iteration: int, lr: float) -> None:
    config = make_config("paper")
    assert config.schedule.lr(config.optimizer.lr, iteration, BATCHES, config.epochs) == pytest.approx(lr, rel=1e-15)


@pytest.mark.parametrize(
    ("iteration", "lr"),
    [(1, 0.01 / 40), (40, 0.01), (320, 0.01), (321, 0.005), (640, 0.005), (641, 0.0025), (800, 0.0025)],
)
def test_road_marking(iteration: int, lr: float) -> None:
    """1,000 images are 8 batches of 128."""
    config = make_config("road-marking")
    assert config.schedule.lr(config.optimizer.lr, iteration, 8, config.epochs) == pytest.approx(lr, rel=1e-15)


def test_cosine_from_the_base_to_zero() -> None:
    schedule = ScheduleConfig(kind="cosine", warmup_epochs=2)
    lrs = [schedule.lr(0.4, iteration, batches=10, epochs=12) for iteration in range(1, 121)]
    assert lrs[19] == 0.4  # the warm-up ends at the base
    assert lrs[69] == pytest.approx(0.2, rel=1e-15)  # half of the rest is half of the way
    assert lrs[119] == 0
    assert lrs[19:] == sorted(lrs[19:], reverse=True)


def test_constant_and_no_warmup() -> None:
    assert ScheduleConfig(kind="constant", warmup_epochs=0).lr(0.3, 1, 10, 5) == 0.3
    assert ScheduleConfig(kind="cosine", warmup_epochs=0).lr(0.3, 50, 10, 5) == 0
    assert ScheduleConfig(milestones=(1,), factor=0.1, warmup_epochs=0).lr(1.0, 11, 10, 5) == 0.1


@given(
    schedule=st.builds(
        ScheduleConfig,
        kind=st.sampled_from(["step", "cosine", "constant"]),
        milestones=st.lists(st.integers(1, 50), max_size=4).map(tuple),
        factor=st.floats(0.01, 1),
        warmup_epochs=st.floats(0, 10) | st.integers(0, 10),
    ),
    base=st.floats(1e-6, 100),
    batches=st.integers(1, 500),
    epochs=st.integers(1, 50),
    share=st.floats(0, 1),
)
def test_between_zero_and_the_base(
    schedule: ScheduleConfig, base: float, batches: int, epochs: int, share: float
) -> None:
    iteration = 1 + round(share * (epochs * batches - 1))
    lr = schedule.lr(base, iteration, batches, epochs)
    assert 0 <= lr <= base
    warmup = schedule.warmup_epochs * batches
    if iteration <= warmup:
        assert lr == pytest.approx(base * iteration / warmup, rel=1e-12)
        # Linear: every iteration adds as much as the first one.
        assert lr == pytest.approx(iteration * schedule.lr(base, 1, batches, epochs), rel=1e-9)
