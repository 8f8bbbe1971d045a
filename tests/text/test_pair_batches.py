"""Batches of pairs: pure functions of the step, every pair once an epoch, padding marked."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import ConfigError
from partwise.text.pair_batches import (
    IGNORED,
    EncodedPairs,
    InARow,
    PairBatches,
    PairWindows,
    SideBySide,
)

PAD, START, END = 1000, 1001, 1002
SIDES = SideBySide(PAD, START, END)
ROW = InARow(PAD, START, END)


def some(count: int, seed: int = 0, longest: int = 9) -> EncodedPairs:
    """Pairs whose sources begin with their own number."""
    random = np.random.default_rng(seed)

    def text(first: int) -> np.ndarray:
        return np.array([first, *random.integers(0, 999, random.integers(0, longest))], np.int64)

    return EncodedPairs([text(number) for number in range(count)], [text(7) for _ in range(count)])


def numbers(inputs: np.ndarray) -> list[int]:
    return [int(number) for number in inputs.reshape(len(inputs), -1)[:, 0]]


def test_side_by_side() -> None:
    sources = [np.array([1, 2, 3]), np.array([4])]
    targets = [np.array([5]), np.array([6, 7])]
    inputs, expected = SIDES(sources, targets)
    assert inputs.tolist() == [
        [[1, 2, 3, END], [START, 5, PAD, PAD]],
        [[4, END, PAD, PAD], [START, 6, 7, PAD]],
    ]
    assert expected.tolist() == [[5, END, IGNORED, IGNORED], [6, 7, END, IGNORED]]


def test_in_a_row() -> None:
    sources = [np.array([1, 2, 3]), np.array([4])]
    targets = [np.array([5]), np.array([6, 7])]
    inputs, expected = ROW(sources, targets)
    assert inputs.tolist() == [[1, 2, 3, START, 5], [4, START, 6, 7, PAD]]
    assert expected.tolist() == [
        [IGNORED, IGNORED, IGNORED, 5, END],
        [IGNORED, 6, 7, END, IGNORED],
    ]


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 60),
    batch_size=st.integers(1, 20),
    epoch=st.integers(0, 4),
    seed=st.integers(0, 9),
)
def test_an_epoch_has_every_pair(count: int, batch_size: int, epoch: int, seed: int) -> None:
    batches = PairBatches(some(count), SIDES, batch_size, seed)
    steps = -(-count // batch_size)
    seen: Counter[int] = Counter()
    for step in range(epoch * steps, (epoch + 1) * steps):
        inputs, targets = batches.batch(step)
        assert len(inputs) == len(targets) == batch_size
        seen.update(numbers(inputs))
    assert set(seen) == set(range(count))
    # What fills the last batch up is the only repetition.
    assert sum(seen.values()) - count == steps * batch_size - count
    if batch_size <= count:
        assert max(seen.values()) <= 2


def test_a_batch_follows_from_the_seed_and_the_step() -> None:
    one, other = (PairBatches(some(50), SIDES, 8, seed=3) for _ in range(2))
    steps = [11, 0, 30, 11, 7]
    for step in steps:
        for a, b in zip(one.batch(step), other.batch(step), strict=True):
            assert (a == b).all()
    later = [numbers(one.batch(step)[0]) for step in range(7)]
    assert later != [numbers(one.batch(step)[0]) for step in range(7, 14)]
    assert later != [
        numbers(PairBatches(some(50), SIDES, 8, seed=4).batch(step)[0]) for step in range(7)
    ]


def test_ranks_share_a_step() -> None:
    batches = PairBatches(some(50), SIDES, 8, seed=3)
    whole = numbers(batches.batch(4)[0])
    parts = [numbers(batches.batch(4, rank, 4)[0]) for rank in range(4)]
    assert [number for part in parts for number in part] == whole
    with pytest.raises(ConfigError, match="batch_size=8 is not divisible by 3 processes"):
        batches.batch(0, 0, 3)


def test_pairs_of_a_length_come_together() -> None:
    pairs = some(2000, longest=40)
    batches = PairBatches(pairs, ROW, 50, seed=1)
    real = [(batches.batch(step)[0] != PAD).mean() for step in range(40)]
    assert np.mean(real) > 0.9


@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 40), batch_size=st.integers(1, 12))
def test_windows_predict_every_token_once(count: int, batch_size: int) -> None:
    pairs = some(count)
    seen = 0
    counted = []
    for inputs, targets in PairWindows(SIDES)(pairs, 1, batch_size):
        assert len(inputs) <= batch_size
        seen += int((targets != IGNORED).sum())
        counted += numbers(inputs)
    assert seen == len(pairs)
    assert sorted(counted) == list(range(count))


def test_a_sample_of_the_windows_is_spread_over_all_lengths() -> None:
    pairs = some(1000, longest=30)
    sample = list(PairWindows(SIDES)(pairs, 1, 10, limit=len(pairs) // 10))
    predicted = sum(int((targets != IGNORED).sum()) for _, targets in sample)
    assert predicted == pytest.approx(len(pairs) / 10, rel=0.2)
    each = SIDES.lengths(pairs)
    lengths = sorted(each[n] for inputs, _ in sample for n in numbers(inputs))
    assert lengths[0] <= 4
    assert lengths[-1] >= 28
