"""The tied output layer borrows the embedding and stays tied whatever is done to the model."""

import copy

import torch
from torch import nn

from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.head import TiedHead, soft_cap

CONFIG = ModelConfig(vocab_size=7, context_length=4, n_layers=1, d_model=8, n_heads=2)


def assert_tied(model: GPT) -> None:
    assert model.head.weight is model.token_embedding.weight
    assert "head.weight" not in model.state_dict()
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    assert len(names) == len(set(names)) and "token_embedding.weight" in names
    model.zero_grad()
    model(torch.zeros(1, 2, dtype=torch.int64)).sum().backward()
    # Rows of tokens that were not read have a gradient through the output layer alone.
    assert (model.token_embedding.weight.grad[1:].abs().sum(-1) > 0).all()


def test_it_stays_tied():
    model = GPT(CONFIG)
    assert_tied(model)
    assert_tied(model.double())
    assert_tied(copy.deepcopy(model))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    for assign in (False, True):
        fresh = GPT(CONFIG).double()
        fresh.load_state_dict(state, assign=assign)
        assert_tied(fresh)
    with torch.device("meta"):
        empty = GPT(CONFIG)
    empty.to_empty(device="cpu").load_state_dict(model.float().state_dict())
    assert_tied(empty)


def test_it_is_its_formula():
    embedding = nn.Embedding(5, 3)
    head = TiedHead(embedding, bias=True)
    nn.init.normal_(head.bias)
    x = torch.randn(2, 3)
    assert torch.allclose(head(x), x @ embedding.weight.T + head.bias)
    assert set(head.state_dict()) == {"bias"}
    assert TiedHead(embedding).bias is None


def test_the_soft_cap_bounds_and_leaves_small_logits():
    logits = torch.tensor([-1e4, -0.01, 0.0, 0.01, 1e4], dtype=torch.float64)
    capped = soft_cap(logits, 30.0)
    assert torch.allclose(capped[[0, -1]], torch.tensor([-30.0, 30.0], dtype=torch.float64))
    assert torch.allclose(capped[1:4], logits[1:4], atol=1e-8)
    assert torch.allclose(capped, 30 * torch.tanh(logits / 30))
