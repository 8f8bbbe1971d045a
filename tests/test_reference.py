"""The NumPy reference and the torch model agree on every part, alone and in pairs."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from configurations import CONFIGURATIONS, name, randomise
from hypothesis import given
from hypothesis import strategies as st

from partwise import reference
from partwise.model.attention import Implementation
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.presets import PRESETS

# Of the largest logit.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def both(
    config: ModelConfig,
    dtype: torch.dtype,
    ids: torch.Tensor,
    implementation: Implementation = "sdpa",
) -> tuple[np.ndarray, np.ndarray]:
    """The torch model's logits and the reference's, from one set of random weights."""
    model = GPT(config, implementation).to(dtype).eval()
    randomise(model)
    weights = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    with torch.no_grad():
        logits = model(ids).numpy()
    return logits, reference.forward(config, weights, ids.numpy())


def random_ids(config: ModelConfig, length: int, batch: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(config.vocab_size, (batch, length), generator=generator)


def assert_agree(torch_logits: np.ndarray, numpy_logits: np.ndarray, dtype: torch.dtype) -> None:
    assert numpy_logits.dtype == torch_logits.dtype
    assert numpy_logits.shape == torch_logits.shape
    largest = np.abs(torch_logits).max()
    assert 0.01 < largest < 1e4  # logits that say something
    assert np.abs(torch_logits - numpy_logits).max() <= TOLERANCE[dtype] * largest


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_every_configuration_agrees_with_torch(config, dtype):
    torch_logits, numpy_logits = both(config, dtype, random_ids(config, config.context_length))
    assert_agree(torch_logits, numpy_logits, dtype)


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_plain_attention_and_short_texts_agree_too(config):
    for length in (1, 2, 5):
        ids = random_ids(config, length, batch=1)
        assert_agree(*both(config, torch.float64, ids, "plain"), torch.float64)


FAMILIES = ("small", "gpt2", "gpt3-175b", "llama-7b", "llama2-70b", "llama3-8b", "palm-540b")


@pytest.mark.parametrize("preset", FAMILIES)
def test_the_families_agree_at_a_tiny_size(preset):
    config = PRESETS[preset]
    heads = 3 if preset == "palm-540b" else 4
    kv_heads = None if config.n_kv_heads is None else min(config.n_kv_heads, 2)
    tiny = dataclasses.replace(
        config,
        vocab_size=13,
        context_length=9,
        n_layers=3,
        d_model=32,
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=None if config.head_dim is None else 8,
        d_ff=None if config.d_ff is None else 40,
    )
    assert_agree(*both(tiny, torch.float64, random_ids(tiny, 9)), torch.float64)


def test_llama3_scaling_agrees_where_all_three_of_its_cases_occur():
    config = ModelConfig(
        vocab_size=11,
        context_length=64,
        n_layers=2,
        d_model=32,
        n_heads=1,
        position="rotary",
        rope_base=5000.0,
        rope_scaling="llama3",
        rope_factor=8.0,
        rope_original_context=128,
    )
    plain = dataclasses.replace(config, rope_scaling="none")
    ratio = reference.rope_frequencies(config) / reference.rope_frequencies(plain)
    assert ratio[0] == 1 and math.isclose(ratio[-1], 1 / 8) and any((ratio > 0.13) & (ratio < 0.99))
    assert_agree(*both(config, torch.float64, random_ids(config, 64)), torch.float64)


def test_alibi_slopes_of_the_paper():
    # Press et al. 2022, section 3: 8 heads start at 1/2 and halve, 16 start at 2^-0.5.
    assert reference.alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert np.allclose(reference.alibi_slopes(16), 2.0 ** (-np.arange(1, 17) / 2))
    # Their published code for 12 heads: those of 8, then every other one of 16.
    wanted = [2.0**-n for n in range(1, 9)] + [2.0 ** -(n / 2) for n in (1, 3, 5, 7)]
    assert np.allclose(reference.alibi_slopes(12), wanted)


def test_a_rotated_score_depends_on_distance_alone():
    config = ModelConfig(d_model=8, n_heads=1, position="rotary")
    q, k = np.random.default_rng(0).standard_normal((2, 8))
    turned_q = reference.rotate(config, np.tile(q, (1, 1, 12, 1)))[0, 0]
    turned_k = reference.rotate(config, np.tile(k, (1, 1, 12, 1)))[0, 0]
    scores = turned_q @ turned_k.T
    for distance in range(12):
        diagonal = np.diagonal(scores, -distance)
        assert np.allclose(diagonal, diagonal[0])
    assert not np.allclose(scores[0, 0], scores[5, 0])


@given(
    tokens=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    n=st.integers(2, 4),
    rows=st.integers(1, 700),
)
def test_ngram_rows_are_those_of_the_definition(tokens, n, rows):
    index = reference.ngram_rows(np.array([tokens]), n, 5, rows)[0].tolist()
    wanted = []
    for end in range(n, len(tokens) + 1):
        row = 0
        for token in tokens[end - n : end]:
            row = row * 5 + token if 5**n <= rows else (row * 1000003 + token + 1) % rows
        wanted.append(row)
    assert index == wanted
    assert all(0 <= row < rows for row in index)


def test_weights_are_left_as_they_were():
    config = CONFIGURATIONS[0]
    model = GPT(config)
    randomise(model)
    weights = {key: tensor.numpy().copy() for key, tensor in model.state_dict().items()}
    before = {key: value.copy() for key, value in weights.items()}
    reference.forward(config, weights, random_ids(config, 4).numpy())
    assert all(np.array_equal(weights[key], before[key]) for key in before)
