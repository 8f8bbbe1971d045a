"""Operations counted by torch itself, and by the formulas of the papers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.model.config import ModelConfig
from partwise.model.flops import decode_flops, forward_flops, mean_reach, unmasked_scores

GPT2 = ModelConfig(vocab_size=50257, context_length=1024, n_layers=12, d_model=768, n_heads=12)


@given(st.integers(1, 60), st.none() | st.integers(1, 60), st.booleans())
def test_reach_is_the_mean_over_places(context: int, window: int | None, causal: bool) -> None:
    config = ModelConfig(causal=causal, window=window if causal else None)
    places = [min(t + 1, window or context) if causal else context for t in range(context)]
    assert mean_reach(config, context) * context == sum(places)


def test_gpt2_by_the_formula_of_palm() -> None:
    """PaLM appendix B: training costs 6 N + 12 L H Q T, N without embeddings, T unmasked."""
    parts = forward_flops(GPT2, 1024)
    matrices = parts["attention"] + parts["feedforward"] + parts["head"]
    n = 12 * 12 * 768**2 + 50257 * 768
    assert 3 * (matrices + unmasked_scores(GPT2, 1024)) == 6 * n + 12 * 12 * 12 * 64 * 1024


def test_a_causal_mask_leaves_half_of_the_quadratic_term() -> None:
    masked = forward_flops(GPT2, 1024)["attention_scores"]
    assert masked / unmasked_scores(GPT2, 1024) == pytest.approx(1025 / 2048)
    both_ways = replace(GPT2, causal=False)
    assert forward_flops(both_ways, 1024)["attention_scores"] == unmasked_scores(GPT2, 1024)


def test_decoding_a_whole_text_costs_its_forward_pass() -> None:
    config = ModelConfig(n_layers=2, d_model=32, n_heads=4, n_kv_heads=2, window=5)
    steps = sum(decode_flops(config, seen) for seen in range(12))
    # The mean reach of a token is rarely whole, and is rounded to one operation.
    assert steps == pytest.approx(12 * sum(forward_flops(config, 12).values()), abs=12)


def test_shared_keys_cost_less_in_matrices_and_the_same_in_scores() -> None:
    many, few = (forward_flops(ModelConfig(n_kv_heads=n), 256) for n in (6, 1))
    assert few["attention"] < many["attention"]
    assert few["attention_scores"] == many["attention_scores"]
