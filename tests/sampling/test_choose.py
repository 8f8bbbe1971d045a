"""Choosing against a plain NumPy telling of each filter, row by row."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from partwise.sampling.choose import choose, likeliest, penalise

Row = npt.NDArray[np.float32]

# Few different values, so that ties are common.
logit_rows = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.integers(1, 12)),
    elements=st.sampled_from([-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 4.0]),
)


def plain_kept(
    row: Row, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None
) -> npt.NDArray[np.float64]:
    """Probabilities of one row after every filter, each renormalised, ties by the lower id."""
    p = np.exp((row.astype(np.float64) - row.max()) / temperature)
    p /= p.sum()
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    kept = order[: len(p) if top_k is None else top_k]
    if top_p is not None:
        mass = sum(p[i] for i in kept)
        nucleus, held = [], 0.0
        for i in kept:
            if held / mass >= top_p - 1e-12:
                break
            nucleus.append(i)
            held += p[i]
        kept = nucleus
    if min_p is not None:
        kept = [i for i in kept if p[i] >= min_p * p.max()]
    q = np.zeros_like(p)
    q[kept] = p[kept]
    return q / q.sum()


@settings(deadline=None)
@given(
    logit_rows,
    st.sampled_from([0.5, 1.0, 2.0]),
    st.none() | st.integers(1, 20),
    st.none() | st.floats(0.05, 1.0),
    st.none() | st.floats(0.01, 0.99),
    st.integers(0, 10**6),
)
def test_each_row_is_the_inverse_of_its_own_kept_distribution(
    logits: Row,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    seed: int,
) -> None:
    u = 1 - np.random.default_rng(seed).random(len(logits)).astype(np.float32)
    chosen = choose(
        torch.from_numpy(logits),
        torch.from_numpy(u),
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
    )
    for row, token in enumerate(chosen.tolist()):
        q = plain_kept(logits[row], temperature, top_k, top_p, min_p)
        before, after = q[:token].sum(), q[: token + 1].sum()
        if top_p is None:
            assert before - 1e-6 <= u[row] <= after + 1e-6
            assert q[token] > 0
        else:
            # A share that falls on a border of the nucleus may go either way by a rounding error.
            near = [
                plain_kept(logits[row], temperature, top_k, top_p + e, min_p)
                for e in (-1e-6, 0, 1e-6)
            ]
            assert any(
                p[token] > 0 and p[:token].sum() - 1e-6 <= u[row] <= p[: token + 1].sum() + 1e-6
                for p in near
            )


@given(logit_rows, st.integers(0, 10**6))
def test_a_row_is_chosen_alone_as_in_a_batch(logits: Row, seed: int) -> None:
    u = torch.from_numpy(1 - np.random.default_rng(seed).random(len(logits)).astype(np.float32))
    batch = torch.from_numpy(logits)
    together = choose(batch, u, temperature=0.7, top_k=3, top_p=0.8, min_p=0.05)
    alone = [
        choose(batch[i : i + 1], u[i : i + 1], temperature=0.7, top_k=3, top_p=0.8, min_p=0.05)
        for i in range(len(batch))
    ]
    assert together.tolist() == torch.cat(alone).tolist()


def test_top_k_holds_for_each_row_by_its_own_threshold() -> None:
    logits = torch.tensor([[10.0, 9.0, 1.0, 0.0], [0.0, 1.0, 1.5, 2.0]])
    drawn = [choose(logits, torch.full((2,), u), top_k=2).tolist() for u in (1e-6, 1.0)]
    assert drawn == [[0, 2], [1, 3]]


@given(logit_rows)
def test_temperature_0_takes_the_likeliest_and_the_lower_id_of_equals(logits: Row) -> None:
    batch = torch.from_numpy(logits)
    u = torch.full((len(logits),), 0.9)
    expected = logits.argmax(-1).tolist()
    assert choose(batch, u, temperature=0).tolist() == expected
    assert choose(batch, u, temperature=1e-30).tolist() == expected
    assert choose(batch, u, top_k=1).tolist() == expected
    assert likeliest(batch).tolist() == expected


@given(logit_rows, st.integers(0, 100))
def test_top_k_above_the_vocabulary_is_all_of_it(logits: Row, more: int) -> None:
    batch = torch.from_numpy(logits)
    u = torch.full((len(logits),), 0.37)
    wide = choose(batch, u, top_k=logits.shape[1] + more)
    assert wide.tolist() == choose(batch, u).tolist()


def test_ties_at_the_threshold_leave_exactly_k() -> None:
    logits = torch.zeros(1, 6)
    drawn = {int(choose(logits, torch.tensor([u]), top_k=2)) for u in (1e-6, 0.4, 0.6, 1.0)}
    assert drawn == {0, 1}


@pytest.mark.parametrize("temperature", [1e-5, 1.0, 1e30])
def test_extreme_temperatures_and_logits_stay_numbers(temperature: float) -> None:
    logits = torch.tensor([[3e38, -3e38, 0.0], [1e4, 1e4, -math.inf]])
    chosen = choose(logits, torch.tensor([1e-6, 1e-6]), temperature=temperature)
    assert chosen.tolist() == [0, 0]
    last = choose(logits, torch.tensor([1.0, 1.0]), temperature=temperature)
    assert last[1] == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("filters", [{}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}])
def test_a_row_without_a_finite_maximum_says_so(
    bad: float, temperature: float, filters: dict[str, Any]
) -> None:
    logits = torch.tensor([[1.0, bad, 0.0], [0.0, 5.0, 1.0], [-math.inf] * 3])
    chosen = choose(logits, torch.full((3,), 0.5), temperature=temperature, **filters)
    assert chosen.tolist() == [-1, 1, -1]


def test_draws_follow_the_softmax() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 50)
    n = 20_000
    u = (torch.arange(n) + 1) / n
    counts = torch.bincount(choose(logits.expand(n, -1), u), minlength=50)
    # Equally spaced uniforms meet each token within one count of its probability.
    assert (counts - n * logits[0].softmax(-1)).abs().max() <= 1.01


def test_penalty_pushes_every_seen_token_down() -> None:
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0]])
    seen = torch.tensor([[True, True, False, False]])
    assert penalise(logits, seen, 2.0).tolist() == [[1.0, -4.0, 2.0, -2.0]]
    assert penalise(logits, seen, 1.0).tolist() == logits.tolist()


def test_half_precision_logits_are_chosen_in_float32() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    u = torch.tensor([0.2])
    assert choose(logits.bfloat16(), u).tolist() == choose(logits, u).tolist()


@pytest.mark.parametrize("temperature", [1e8, 1e30, 1e300])
def test_the_likeliest_are_kept_also_where_all_weigh_the_same(temperature: float) -> None:
    logits = torch.tensor([[0.0, 1.0, 3.0, 2.0]])
    for filters in ({"top_k": 2}, {"top_p": 0.5}, {"top_k": 3, "top_p": 0.5}):
        asked: dict[str, Any] = {"temperature": temperature, **filters}
        drawn = {int(choose(logits, torch.tensor([u]), **asked)) for u in (1e-6, 0.4, 0.6, 1.0)}
        assert drawn == {2, 3}
    # A token that cannot be is not drawn at any temperature.
    never = torch.tensor([[-math.inf, 1.0, -math.inf]])
    assert choose(never, torch.tensor([1.0]), temperature=temperature).tolist() == [1]
