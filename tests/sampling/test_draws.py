"""Each sample's own stream."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from partwise.sampling.draws import BLOCK, Draws

CPU = torch.device("cpu")


def numbers(seed: int, count: int, steps: int) -> torch.Tensor:
    draws = Draws(seed, count, CPU)
    return torch.stack([draws.next() for _ in range(steps)])


@given(st.integers(0, 2**70), st.integers(1, 5), st.integers(1, 5))
def test_sample_i_sees_the_same_numbers_whatever_the_count(seed: int, a: int, b: int) -> None:
    few = min(a, b)
    assert torch.equal(numbers(seed, a, 3)[:, :few], numbers(seed, b, 3)[:, :few])


def test_streams_of_samples_and_seeds_differ() -> None:
    rows = [*numbers(1, 3, 8).T, *numbers(2, 3, 8).T]
    assert len({tuple(row.tolist()) for row in rows}) == 6


def test_numbers_are_above_0_and_at_most_1_over_block_borders() -> None:
    drawn = numbers(5, 2, 2 * BLOCK + 3)
    assert drawn.dtype == torch.float32
    assert (drawn > 0).all() and (drawn <= 1).all()
    assert abs(drawn.mean() - 0.5) < 0.05
    assert len(set(drawn[:, 0].tolist())) > 2 * BLOCK - 3


def test_torch_keeps_its_own_randomness() -> None:
    state = torch.get_rng_state()
    numbers(1, 2, 10)
    assert torch.equal(state, torch.get_rng_state())
