"""A trace shows every value of the forward pass as it was, and leaves the model alone."""

import dataclasses

import pytest
import torch
from configurations import CONFIGURATIONS, name, randomise

from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.trace import first_non_finite, trace

CONFIG = ModelConfig(
    vocab_size=11, context_length=8, n_layers=2, d_model=12, n_heads=3, dropout=0.5
)


def make(config: ModelConfig) -> tuple[GPT, torch.Tensor]:
    model = GPT(config).double()
    randomise(model)
    generator = torch.Generator().manual_seed(1)
    return model, torch.randint(config.vocab_size, (2, config.context_length), generator=generator)


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_its_logits_are_the_model_s_and_each_value_follows_from_those_before(config):
    model, ids = make(config)
    model.eval()
    with torch.no_grad():
        logits = model(ids)
    seen = trace(model, ids)
    assert torch.allclose(seen["logits"], logits, atol=1e-10 * float(logits.abs().max()))
    names = list(seen)
    assert names[0] == "embedding" and names[-1] == "logits"
    x = seen["embedding"]
    for i, block in enumerate(model.blocks):
        values = {
            key.removeprefix(f"block.{i}."): value
            for key, value in seen.items()
            if key.startswith(f"block.{i}.")
        }
        assert ("attention.weights" in values) == ("attention" in values) == config.attention
        assert ("feedforward" in values) == (config.feedforward != "none")
        assert ("norm1" in values) == (block.norm1 is not None)
        assert ("norm2" in values) == (block.norm2 is not None)
        if config.attention:
            weights = values["attention.weights"]
            length = config.context_length
            assert weights.shape == (2, config.n_heads, length, length)
            assert torch.allclose(weights.sum(-1), torch.ones_like(weights.sum(-1)))
            assert (weights.triu(1) == 0).all() == config.causal
            if config.window is not None:
                assert (weights.tril(-config.window) == 0).all()
        if config.embedding_shortcut:
            x = model.shortcut[i, 0] * x + model.shortcut[i, 1] * seen["embedding"]
        if config.residual and config.parallel:
            assert torch.allclose(values["output"], x + values["attention"] + values["feedforward"])
        elif config.residual and config.norm_placement != "post":
            for sublayer in ("attention", "feedforward"):
                x = x + values.get(sublayer, 0)
                if sublayer == "attention" and config.attention:
                    assert torch.allclose(values["residual1"], x)
            assert torch.allclose(values["output"], x)
        x = values["output"]
    assert ("final_norm" in seen) == (model.final_norm is not None)
    assert not any(value.requires_grad for value in seen.values())


def test_names_come_in_the_order_of_computation():
    model, ids = make(CONFIG)
    block = "norm1 attention.weights attention residual1 norm2 feedforward residual2 output"
    blocks = [f"block.{i}.{part}" for i in range(2) for part in block.split()]
    assert list(trace(model, ids)) == ["embedding", *blocks, "final_norm", "logits"]


def test_the_model_is_left_as_it_was():
    model, ids = make(dataclasses.replace(CONFIG, norm="batchnorm"))
    model.train()
    model.blocks[1].eval()
    modes = [module.training for module in model.modules()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    chance = torch.get_rng_state()
    first, second = trace(model, ids), trace(model, ids)
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), chance)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(block.attention.implementation == "sdpa" for block in model.blocks)


def test_the_model_is_left_as_it_was_by_a_wrong_text_too():
    model, _ = make(CONFIG)
    with pytest.raises(Exception, match="outside the vocabulary"):
        trace(model.train(), torch.tensor([[11]]))
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize(
    ("weight", "value", "found"),
    [
        ("token_embedding.weight", float("nan"), "embedding"),
        ("blocks.0.norm1.weight", float("inf"), "block.0.norm1"),
        ("blocks.0.attention.qkv.weight", float("nan"), "block.0.attention.weights"),
        ("blocks.1.attention.projection.weight", float("inf"), "block.1.attention"),
        ("blocks.1.feedforward.down.bias", float("-inf"), "block.1.feedforward"),
        ("final_norm.bias", float("nan"), "final_norm"),
        ("head.weight", float("nan"), "logits"),
    ],
)
def test_the_first_bad_value_is_named(weight, value, found):
    model, ids = make(dataclasses.replace(CONFIG, tie_embeddings=False))
    assert first_non_finite(model, ids) is None
    with torch.no_grad():
        model.get_parameter(weight).fill_(value)
    assert first_non_finite(model.train(), ids) == found
    assert model.training
