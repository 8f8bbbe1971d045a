"""Each kind of position is its formula, exact in every number format and at every distance."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from partwise.model.position import (
    Alibi,
    Rotary,
    Sinusoidal,
    alibi_slopes,
    rotary_frequencies,
    rotate,
)


@given(length=st.integers(1, 20), pairs=st.integers(1, 8))
def test_sinusoidal_is_its_formula(length, pairs):
    width = 2 * pairs
    table = Sinusoidal(length, width).double()(torch.arange(length)).numpy()
    for place in range(length):
        for i in range(pairs):
            angle = place / 10000 ** (2 * i / width)
            assert math.isclose(table[place, 2 * i], math.sin(angle), abs_tol=1e-12)
            assert math.isclose(table[place, 2 * i + 1], math.cos(angle), abs_tol=1e-12)


@given(pairs=st.integers(1, 8), base=st.sampled_from([10000.0, 500000.0, 7.0]))
def test_rotary_turns_each_pair_as_a_complex_number(pairs, base):
    length, heads = 7, 3
    rotary = Rotary(2 * pairs, length, base).double()
    x = torch.randn(2, length, heads, 2 * pairs, dtype=torch.float64)
    turned = rotate(x, *rotary(torch.arange(length))).numpy()
    a = x.numpy()
    z = a[..., :pairs] + 1j * a[..., pairs:]
    frequencies = base ** (-2.0 * np.arange(pairs) / (2 * pairs))
    z = z * np.exp(1j * np.arange(length)[:, None, None] * frequencies)
    assert np.allclose(turned, np.concatenate((z.real, z.imag), -1), atol=1e-12)


def test_a_rotated_score_depends_on_the_distance_alone():
    rotary = Rotary(8, 4).double()
    q, k = torch.randn(2, 1, 1, 8, dtype=torch.float64)

    def score(i: int, j: int) -> float:
        turned = [rotate(x, *rotary(torch.tensor([p]), within=False)) for x, p in ((q, i), (k, j))]
        return float((turned[0] * turned[1]).sum())

    assert math.isclose(score(5, 2), score(1005, 1002), abs_tol=1e-9)
    assert not math.isclose(score(5, 2), score(5, 1), abs_tol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_late_positions_are_as_exact_as_the_format(dtype):
    rotary = Rotary(8, 4, 10000.0).to(dtype)
    for place in (0, 3, 100, 1_000_003):
        cos, sin = rotary(torch.tensor([place]), within=False)
        assert cos.dtype == dtype
        for i in range(4):
            # An angle of a million radians has lost 6 of float64's 16 digits.
            angle = place * 10000.0 ** (-i / 4)
            close = {"rel_tol": torch.finfo(dtype).eps, "abs_tol": 1e-9}
            assert math.isclose(cos[0, 0, i], math.cos(angle), **close)
            assert math.isclose(sin[0, 0, 4 + i], math.sin(angle), **close)
            assert math.isclose(sin[0, 0, i], -math.sin(angle), **close)


def test_the_table_and_the_computed_angles_are_equal():
    rotary, positions = Rotary(8, 50), torch.arange(50)
    for table, computed in zip(rotary(positions), rotary(positions, within=False), strict=True):
        assert torch.allclose(table, computed, atol=1e-7)


def test_linear_scaling_stretches_every_distance():
    plain, stretched = rotary_frequencies(8), rotary_frequencies(8, scaling="linear", factor=4.0)
    assert stretched == pytest.approx([f / 4 for f in plain])


def llama3_of_its_authors(frequencies: list[float], factor: float, low: float, high: float):
    """As `apply_scaling` in Llama 3.1's reference code, with its own names and order."""
    old_context_len = 8192
    low_freq_wavelen = old_context_len / low
    high_freq_wavelen = old_context_len / high
    new_freqs = []
    for freq in frequencies:
        wavelen = 2 * math.pi / freq
        if wavelen < high_freq_wavelen:
            new_freqs.append(freq)
        elif wavelen > low_freq_wavelen:
            new_freqs.append(freq / factor)
        else:
            smooth = (old_context_len / wavelen - low) / (high - low)
            new_freqs.append((1 - smooth) * freq / factor + smooth * freq)
    return new_freqs


def test_llama3_scaling_is_that_of_its_authors():
    plain = rotary_frequencies(128, 500000.0)
    wanted = llama3_of_its_authors(plain, 8.0, 1.0, 4.0)
    ours = rotary_frequencies(128, 500000.0, "llama3", 8.0, 1.0, 4.0, 8192)
    assert ours == pytest.approx(wanted, rel=1e-12)
    kinds = {f == p: f for f, p in zip(ours, plain, strict=True)}
    assert set(kinds) == {True, False}
    between = [f / p for f, p in zip(ours, plain, strict=True) if 1 / 8 + 1e-9 < f / p < 1 - 1e-9]
    assert between


def slopes_of_their_authors(n: int) -> list[float]:
    """As `get_slopes` in the code that Press et al. published, with its own names and order."""

    def get_slopes_power_of_2(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n).is_integer():
        return get_slopes_power_of_2(n)
    closest = 2 ** math.floor(math.log2(n))
    return (
        get_slopes_power_of_2(closest) + slopes_of_their_authors(2 * closest)[0::2][: n - closest]
    )


@given(heads=st.integers(1, 70))
def test_alibi_slopes_are_those_of_their_authors(heads):
    assert alibi_slopes(heads) == pytest.approx(slopes_of_their_authors(heads), rel=1e-12)


def test_alibi_charges_for_the_distance_in_both_directions():
    distance = torch.arange(3)[:, None] - torch.arange(3)
    bias = Alibi(2).double()(distance)
    # Two heads: 2^-4 and 2^-8 a token.
    assert bias[0].tolist() == [[0, -1 / 16, -2 / 16], [-1 / 16, 0, -1 / 16], [-2 / 16, -1 / 16, 0]]
    assert torch.equal(bias[1], bias[0] / 16)


MAKERS = {
    "sinusoidal": lambda: Sinusoidal(5, 6),
    "rotary": lambda: Rotary(6, 5),
    "alibi": lambda: Alibi(6),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_tables_are_exact_after_every_change(kind):
    make = MAKERS[kind]
    exact = make().tables()

    def assert_exact(module: torch.nn.Module, dtype: torch.dtype) -> None:
        assert module.state_dict() == {}
        for name, table in exact.items():
            assert torch.equal(getattr(module, name), table.to(dtype)), name

    assert_exact(make(), torch.float32)
    assert_exact(make().half().float(), torch.float32)
    assert_exact(make().bfloat16().double(), torch.float64)
    assert_exact(copy.deepcopy(make()).double(), torch.float64)
    with torch.device("meta"):
        module = make()
    assert all(buffer.device.type == "meta" for buffer in module.buffers())
    assert_exact(module.to_empty(device="cpu"), torch.float32)
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert_exact(make(), torch.float64)
    finally:
        torch.set_default_dtype(default)
