"""Counts from the configuration against the real model, built without memory."""

from dataclasses import replace

import pytest
import torch
from configurations import CONFIGURATIONS, LEVELS, is_valid, name
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.parameters import (
    approximation,
    approximation_gap,
    attention_matrices,
    biases_by_part,
    count_parameters,
    feedforward_matrices,
    parameters_by_part,
)
from partwise.model.presets import preset, preset_names


def real_parts(config: ModelConfig) -> dict[str, int]:
    """The same parts, by the names of the real model's parameters."""
    with torch.device("meta"):
        model = GPT(config)
    parts = dict.fromkeys(parameters_by_part(config), 0)
    for key, parameter in model.named_parameters():
        if "norm" in key:
            part = "norms"
        elif key.startswith(("token_embedding", "position_embedding")):
            part = {"token": "embedding", "position": "position"}[key.split("_")[0]]
        elif key.startswith("ngram"):
            part = "ngram"
        elif key.startswith("blocks."):
            part = key.split(".")[2]
        else:
            part = key.split(".")[0]
        parts[part] += parameter.numel()
    assert sum(parts.values()) == sum(p.numel() for p in model.parameters())
    return parts


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_every_part_is_counted_exactly(config: ModelConfig) -> None:
    assert parameters_by_part(config) == real_parts(config)


@settings(deadline=None, max_examples=60)
@given(st.fixed_dictionaries({field: st.sampled_from(v) for field, v in LEVELS.items()}))
def test_every_mixture_is_counted_exactly(row: dict[str, object]) -> None:
    assume(is_valid(row))
    assert parameters_by_part(ModelConfig(**row)) == real_parts(ModelConfig(**row))


@pytest.mark.parametrize("known", preset_names())
def test_presets_are_counted_at_once_and_exactly(known: str) -> None:
    config = preset(known)
    # Two blocks hold what a hundred do; the rest is a multiplication.
    few = replace(config, n_layers=2)
    assert parameters_by_part(few) == real_parts(few)
    one, two = (count_parameters(replace(config, n_layers=n)) for n in (1, 2))
    assert count_parameters(config) == one + (config.n_layers - 1) * (two - one)


def test_published_counts() -> None:
    # Radford et al. 2019 print 117M for the smallest; its released weights hold 124,439,808.
    assert count_parameters(preset("gpt2")) == 124_439_808
    # Touvron et al. 2023, table 2 (6.7B); its released weights hold 6,738,415,616.
    assert count_parameters(preset("llama-7b")) == 6_738_415_616


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_the_gap_to_12_n_d_squared_is_explained_to_the_last_number(config: ModelConfig) -> None:
    gap = approximation_gap(config)
    assert approximation(config) + sum(gap.values()) == count_parameters(config)


def test_12_n_d_squared_is_exact_for_the_matrices_of_gpt2() -> None:
    config = preset("gpt2-xl")
    assert approximation(config) == 12 * 48 * 1600**2
    gap = approximation_gap(config)
    assert gap["attention_matrices"] == gap["feedforward_matrices"] == 0
    assert gap["embedding"] == 50257 * 1600


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_matrices_and_biases_are_what_linear_layers_hold(config: ModelConfig) -> None:
    with torch.device("meta"):
        model = GPT(config)
    matrices = dict.fromkeys(("attention", "feedforward"), 0)
    biases = dict.fromkeys(("attention", "feedforward"), 0)
    for key, parameter in model.named_parameters():
        if key.startswith("blocks.") and "norm" not in key:
            kind = matrices if parameter.ndim == 2 else biases
            kind[key.split(".")[2]] += parameter.numel()
    assert matrices["attention"] == config.n_layers * attention_matrices(config)
    assert matrices["feedforward"] == config.n_layers * feedforward_matrices(config)
    assert {**biases, "head": config.vocab_size * config.head_bias} == biases_by_part(config)
