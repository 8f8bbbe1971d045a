"""Paired statistics against figures worked out by hand and a printed table."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.ladder.statistics import paired, spread, t_probability, t_quantile
from partwise.messages import use_language

# NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2, column 0.975.
TABLE_975 = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    10: 2.228,
    20: 2.086,
    30: 2.042,
    100: 1.984,
}
# The same table, column 0.95.
TABLE_95 = {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 10: 1.812, 60: 1.671}


@pytest.mark.parametrize(("degrees", "value"), TABLE_975.items())
def test_quantile_975(degrees: int, value: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(value, abs=5e-4)


@pytest.mark.parametrize(("degrees", "value"), TABLE_95.items())
def test_quantile_95(degrees: int, value: float) -> None:
    assert t_quantile(0.95, degrees) == pytest.approx(value, abs=5e-4)


@given(st.floats(-50, 50), st.integers(1, 60))
def test_probability_is_that_of_the_density(t: float, degrees: int) -> None:
    """The closed sum against Simpson's rule over the density of Student's t."""
    norm = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2))
    norm /= math.sqrt(degrees * math.pi)
    pieces = 4000
    width = t / pieces
    total = 0.0
    for k in range(pieces + 1):
        x = k * width
        weight = 1 if k in (0, pieces) else (4 if k % 2 else 2)
        total += weight * norm * (1 + x * x / degrees) ** (-(degrees + 1) / 2)
    assert t_probability(t, degrees) == pytest.approx(0.5 + total * width / 3, abs=1e-7)


@given(st.floats(0.001, 0.999), st.integers(1, 60))
def test_quantile_undoes_probability(probability: float, degrees: int) -> None:
    assert t_probability(t_quantile(probability, degrees), degrees) == pytest.approx(
        probability, abs=1e-9
    )


def test_spread_by_hand() -> None:
    found = spread([2.0, 4.0, 9.0])
    # Mean 5; squares 9 + 1 + 16 = 26, over 2 is 13.
    assert found.mean == 5.0
    assert found.sd == pytest.approx(math.sqrt(13))
    assert found.standard_error == pytest.approx(math.sqrt(13 / 3))


def test_paired_by_hand() -> None:
    before = {1: 2.30, 2: 2.40, 3: 2.50}
    after = {1: 2.20, 2: 2.28, 3: 2.42}
    found = paired(before, after)
    # Differences -0.10, -0.12, -0.08: mean -0.10, sd 0.02, standard error 0.02 / sqrt(3).
    assert found.mean == pytest.approx(-0.10)
    assert found.sd == pytest.approx(0.02)
    assert found.standard_error == pytest.approx(0.02 / math.sqrt(3))
    assert found.low == pytest.approx(-0.10 - 4.3027 * 0.02 / math.sqrt(3), abs=1e-5)
    assert found.high == pytest.approx(-0.10 + 4.3027 * 0.02 / math.sqrt(3), abs=1e-5)
    assert found.verdict == "lower"


def test_pairing_takes_out_what_seeds_share() -> None:
    """Seeds far apart, a difference that is the same for each: unpaired it would drown."""
    before = {1: 2.0, 2: 3.0, 3: 4.0}
    after = {seed: loss - 0.01 for seed, loss in before.items()}
    found = paired(before, after)
    assert found.verdict == "lower"
    assert found.sd == pytest.approx(0.0, abs=1e-12)


def test_an_interval_with_zero_is_noise() -> None:
    assert paired({1: 1.0, 2: 1.0, 3: 1.0}, {1: 1.02, 2: 0.97, 3: 1.0}).verdict == "noise"


def test_higher() -> None:
    assert paired({1: 1.0, 2: 1.0}, {1: 1.5, 2: 1.501}).verdict == "higher"


def test_one_seed_cannot_tell() -> None:
    found = paired({1: 2.4}, {1: 2.2, 2: 9.0})
    assert found.seeds == (1,)
    assert found.mean == pytest.approx(-0.2)
    assert found.standard_error is None
    assert found.verdict == "one seed"
    with use_language("en"):
        assert "one seed cannot tell" in str(found)


def test_no_common_seed() -> None:
    found = paired({1: 1.0}, {2: 1.0})
    assert found.verdict == "none"
    assert math.isnan(found.mean)


@given(
    st.dictionaries(st.integers(1, 20), st.floats(-5, 5), min_size=2),
    st.floats(-1, 1),
)
def test_difference_is_after_less_before(before: dict[int, float], shift: float) -> None:
    found = paired(before, {seed: value + shift for seed, value in before.items()})
    assert found.mean == pytest.approx(shift, abs=1e-9)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.mean <= found.high
