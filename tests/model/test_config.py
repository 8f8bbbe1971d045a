"""ModelConfig refuses what makes no sense, with the values and with a way out that works."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from partwise.errors import ConfigError
from partwise.messages import catalogue, use_language
from partwise.model.config import ModelConfig
from partwise.settings import build, options

REFUSED = [
    # fields, what the message names, a change that it proposes
    ({"d_model": 384, "n_heads": 5}, ["384", "5", "4, 6"], {"n_heads": 6}),
    ({"d_model": 384, "n_heads": 5}, ["head_dim"], {"head_dim": 64}),
    ({"n_heads": 6, "n_kv_heads": 4}, ["6", "4", "1, 2, 3, 6"], {"n_kv_heads": 3}),
    (
        {"d_model": 30, "n_heads": 2, "position": "rotary"},
        ["15", "head_dim=16"],
        {"head_dim": 16},
    ),
    (
        {"output_projection": False, "head_dim": 32},
        ["6", "32", "384"],
        {"head_dim": None},
    ),
    (
        {"feedforward_output": False, "d_ff": 100},
        ["100", "384"],
        {"d_ff": None},
    ),
    ({"window": 8, "causal": False}, ["8", "causal=true"], {"causal": True}),
    ({"attention": False, "feedforward": "none"}, ["attention=false"], {"feedforward": "gelu"}),
    ({"parallel": True, "feedforward": "none"}, ["parallel=true"], {"parallel": False}),
    ({"parallel": True, "norm_placement": "post"}, ["post", "pre"], {"norm_placement": "pre"}),
    (
        {"d_model": 15, "n_heads": 3, "position": "sinusoidal"},
        ["15", "16"],
        {"d_model": 16, "n_heads": 4},
    ),
    (
        {"rope_scaling": "llama3", "rope_low_frequency_factor": 4.0},
        ["4.0"],
        {"rope_low_frequency_factor": 1.0},
    ),
    ({"ngram": 9, "context_length": 8}, ["ngram=9", "ngram=8"], {"ngram": 8}),
    ({"dropout": 1.0}, ["dropout=1.0"], {"dropout": 0.9}),
    ({"n_layers": 0}, ["n_layers=0"], {"n_layers": 1}),
    ({"logit_soft_cap": math.inf}, ["inf"], {"logit_soft_cap": None}),
    ({"norm_eps": math.nan}, ["nan"], {"norm_eps": 1e-6}),
    ({"norm": "layer"}, ["layer", "layernorm"], {"norm": "layernorm"}),
    ({"d_model": "wide"}, ["wide", "whole number"], {"d_model": 384}),
]


@pytest.mark.parametrize(("fields", "named", "mended"), REFUSED, ids=str)
def test_a_combination_without_sense_is_refused_with_a_way_out(fields, named, mended):
    with use_language("en"), pytest.raises(ConfigError) as caught:
        ModelConfig(**fields)
    line = str(caught.value)
    assert "\n" not in line
    assert all(part in line for part in named), line
    ModelConfig(**(fields | mended))


@given(width=st.integers(1, 400), heads=st.integers(1, 50))
def test_every_proposed_number_of_heads_would_do(width, heads):
    assume(width % heads)
    with use_language("en"), pytest.raises(ConfigError) as caught:
        ModelConfig(d_model=width, n_heads=heads)
    for choice in caught.value.values["choices"].split(", "):
        assert ModelConfig(d_model=width, n_heads=int(choice)).head_size * int(choice) == width


def test_what_is_not_said_follows_from_the_rest():
    config = ModelConfig(d_model=384, n_heads=6)
    assert (config.head_size, config.key_value_heads, config.inner_width) == (64, 6, 1536)
    # LLaMA's 8/3 of the width, rounded up to a multiple of 8: 1024.
    assert ModelConfig(feedforward="swiglu").inner_width == 1024
    assert ModelConfig(feedforward="none").inner_width == 0
    assert ModelConfig(feedforward_output=False).inner_width == 384
    assert ModelConfig(d_ff=77).inner_width == 77
    assert ModelConfig(dropout=0.1).attention_dropout_rate == 0.1
    assert ModelConfig(dropout=0.1, attention_dropout=0.0).attention_dropout_rate == 0.0
    assert ModelConfig(head_dim=128).head_size == 128
    assert ModelConfig(vocab_size=65).ngram_table_rows(2) == 65**2
    assert ModelConfig(vocab_size=65).ngram_table_rows(3) == 65_536
    assert ModelConfig(vocab_size=65, ngram_rows=300_000).ngram_table_rows(3) == 65**3


def test_only_a_window_with_endless_positions_goes_past_the_context():
    for position in ("learned", "sinusoidal", "rotary", "alibi", "none"):
        assert not ModelConfig(position=position).past_context
        endless = position in ("rotary", "alibi", "none")
        assert ModelConfig(position=position, window=9).past_context == endless


def test_plain_data_makes_a_config_and_unknown_names_are_refused():
    assert build(ModelConfig, {"d_model": 96, "n_heads": 3}) == ModelConfig(d_model=96, n_heads=3)
    with pytest.raises(ConfigError, match="d_model"):
        build(ModelConfig, {"d_modell": 96})


def test_every_help_line_has_a_twin():
    for option in options(ModelConfig).values():
        assert option.help in catalogue(), option.name


def test_an_enormous_width_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"n_heads .* would do"):
        ModelConfig(d_model=2**61 - 1, n_heads=4)
