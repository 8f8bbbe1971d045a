"""Each scheme gives each kind of weight the spread that its table says."""

import math

import pytest
import torch
from torch import nn

from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT

WIDTH, LAYERS = 128, 3


def make(scheme: str, **changes: object) -> GPT:
    torch.manual_seed(0)
    sizes = {"vocab_size": 300, "context_length": 100, "n_layers": LAYERS, "d_model": WIDTH}
    sizes |= {"n_heads": 4, "ngram": 2, "head_bias": True, "init_std": 0.05}
    return GPT(ModelConfig(**(sizes | {"initialisation": scheme} | changes)))


def assert_spread(weight: torch.Tensor, std: float) -> None:
    """Mean 0 and the standard deviation, within five of their own standard deviations."""
    weight = weight.detach()
    noise = 5 * std / math.sqrt(weight.numel())
    assert abs(float(weight.mean())) <= noise
    assert abs(float(weight.std()) - std) <= noise


def spreads(scheme: str, tied: bool) -> dict[str, float]:
    """What the table of `initialise` says, by hand: width 128, inner width 512, 3 blocks."""
    residual = {"normal": 0.05, "gpt2": 0.05 / math.sqrt(6)}
    embedding = 0.05
    if scheme in ("fan_in", "zero_projection"):
        embedding = 1 / math.sqrt(128) if tied else 1.0
    if scheme == "torch":
        embedding = 1.0
    plain = {"normal": 0.05, "gpt2": 0.05}
    # The uniform numbers of nn.Linear between ±1/sqrt(inputs) have this standard deviation.
    uniform = {"torch": 1 / math.sqrt(3)}
    rest = {"fan_in": 1.0, "zero_projection": 1.0} | uniform
    last = {"fan_in": 1.0, "zero_projection": 0.0} | uniform
    return {
        "token_embedding": embedding,
        "position_embedding": embedding,
        "attention.qkv": plain.get(scheme, rest.get(scheme, 0) / math.sqrt(128)),
        "attention.projection": residual.get(scheme, last.get(scheme, 0) / math.sqrt(128)),
        "feedforward.up": plain.get(scheme, rest.get(scheme, 0) / math.sqrt(128)),
        "feedforward.down": residual.get(scheme, last.get(scheme, 0) / math.sqrt(512)),
        "head": plain.get(scheme, last.get(scheme, 0) / math.sqrt(128)),
    }


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scheme", ["torch", "normal", "gpt2", "fan_in", "zero_projection"])
def test_weights_have_the_spread_of_their_scheme(scheme, tied):
    model = make(scheme, tie_embeddings=tied)
    wanted = spreads(scheme, tied)
    met = set()
    for name, module in model.named_modules():
        for ending, std in wanted.items():
            if name.endswith(ending) and isinstance(module, nn.Linear | nn.Embedding):
                met.add(ending)
                assert_spread(module.weight, std)
                bias = getattr(module, "bias", None)
                if bias is not None and scheme != "torch":
                    assert (bias == 0).all()
                elif bias is not None:
                    assert 0 < bias.abs().max() <= 1 / math.sqrt(module.weight.shape[1])
    assert met == set(wanted) - ({"head"} if tied else set())
    assert (model.ngram_tables[0].weight == 0).all()
    assert all((p == 1).all() for n, p in model.named_parameters() if n.endswith("norm1.weight"))


def test_torch_s_own_defaults_are_left_as_they_are():
    # Drawn in the same order, so that the first weights are those of a bare nn.Embedding.
    model = make("torch")
    torch.manual_seed(0)
    assert torch.equal(model.token_embedding.weight, nn.Embedding(300, WIDTH).weight)


@pytest.mark.parametrize("scheme", ["torch", "normal", "gpt2", "fan_in", "zero_projection"])
def test_the_seed_decides_and_n_grams_change_no_other_weight(scheme):
    one, two, without = make(scheme), make(scheme), make(scheme, ngram=1)
    state = two.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in one.state_dict().items())
    assert all(torch.equal(value, state[key]) for key, value in without.state_dict().items())
    ids = torch.randint(300, (2, 20))
    assert torch.equal(one(ids), without(ids))
    torch.manual_seed(1)
    other = GPT(one.config)
    assert not torch.equal(other.token_embedding.weight, one.token_embedding.weight)


def test_zero_projection_starts_as_the_embedding_alone():
    model = make("zero_projection", tie_embeddings=False, norm="none", position="none")
    x = model.hidden(torch.arange(5)[None])
    assert torch.equal(x[0], model.token_embedding.weight[:5])
    assert (model.logits(x) == 0).all()


def test_gpt2_starts_near_the_uniform_guess():
    # An untrained model that knows nothing should lose ln(vocab_size) nats a token.
    model = make("gpt2", init_std=0.02)
    ids = torch.randint(300, (8, 65))
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert abs(loss.item() - math.log(300)) < 0.1
