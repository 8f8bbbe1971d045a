"""The learning rate's share of its peak, at points that can be computed by hand."""

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.training.config import Schedule, TrainConfig
from partwise.training.schedule import rate, warmup_steps


def settings(schedule: str, **changes: float) -> TrainConfig:
    return TrainConfig(schedule=schedule, **changes)


def test_warmup_rises_evenly_and_ends_at_the_peak() -> None:
    config = settings("constant", warmup_steps=4)
    assert [rate(step, 100, config) for step in range(6)] == [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]


def test_without_warmup_the_first_step_has_the_peak() -> None:
    for schedule in get_args(Schedule):
        assert rate(0, 100, settings(schedule, warmup_steps=0)) == 1.0


def test_cosine_is_halfway_down_in_the_middle() -> None:
    config = settings("cosine", warmup_steps=20, min_lr_ratio=0.1)
    assert rate(20, 120, config) == 1.0
    assert rate(70, 120, config) == pytest.approx(0.55)
    assert rate(45, 120, config) == pytest.approx(0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2)
    assert rate(120, 120, config) == 0.1


def test_linear_falls_evenly_and_its_last_step_is_not_zero() -> None:
    config = settings("linear", warmup_steps=0, min_lr_ratio=0.0)
    assert [rate(step, 4, config) for step in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_wsd_stays_at_the_peak_until_its_last_part() -> None:
    config = settings("wsd", warmup_steps=10, decay_fraction=0.2, min_lr_ratio=0.0)
    assert {rate(step, 100, config) for step in range(10, 81)} == {1.0}
    assert rate(90, 100, config) == pytest.approx(0.5)
    assert rate(99, 100, config) == pytest.approx(0.05)


def test_constant_stays() -> None:
    config = settings("constant", warmup_steps=1)
    assert {rate(step, 50, config) for step in range(1, 60)} == {1.0}


def test_inverse_sqrt_is_the_original_transformers() -> None:
    # Vaswani et al. (2017), equation 3, with the base model's d_model=512 and 4,000 warm-up steps.
    config = settings("inverse_sqrt", warmup_steps=3999, lr=(512 * 4000) ** -0.5)
    for step in (1, 2, 500, 3999, 4000, 4001, 10_000, 100_000):
        published = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        for total in (None, 200_000):
            assert config.lr * rate(step - 1, total, config) == pytest.approx(published, rel=1e-12)


def test_while_the_end_is_unknown_the_rate_stays_at_the_peak() -> None:
    for schedule in set(get_args(Schedule)) - {"inverse_sqrt"}:
        assert rate(5000, None, settings(schedule, warmup_steps=10)) == 1.0


def test_warmup_takes_at_most_half_of_the_run() -> None:
    config = settings("cosine", warmup_steps=100)
    assert warmup_steps(50, config) == 25
    assert warmup_steps(5000, config) == 100
    assert warmup_steps(None, config) == 100
    assert rate(25, 50, config) == 1.0


@given(
    schedule=st.sampled_from(get_args(Schedule)),
    total=st.integers(1, 300),
    warmup=st.integers(0, 400),
    floor=st.floats(0, 1),
    fraction=st.floats(0, 1),
)
def test_every_step_has_a_rate_that_first_rises_and_then_falls_to_the_floor(
    schedule: str, total: int, warmup: int, floor: float, fraction: float
) -> None:
    config = TrainConfig(
        schedule=schedule, warmup_steps=warmup, min_lr_ratio=floor, decay_fraction=fraction
    )
    rates = [rate(step, total, config) for step in range(total)]
    assert all(0 < value <= 1 for value in rates)
    peak = warmup_steps(total, config)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert max(rates) == 1.0
    if schedule not in ("constant", "inverse_sqrt"):
        assert min(rates[peak:]) >= floor
