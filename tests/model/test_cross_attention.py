"""Cross-attention is torch's own nn.MultiheadAttention, with heads that may be shared."""

import pytest
import torch
from torch import Tensor, nn

from partwise.model.cross_attention import CrossAttention

WIDTH, HEADS, ASKING, ANSWERING = 12, 3, 4, 6


def data(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def pair(implementation: str) -> tuple[CrossAttention, nn.MultiheadAttention]:
    """Ours and torch's, with the same weights."""
    ours = CrossAttention(WIDTH, HEADS, implementation=implementation).double()
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat((ours.query.weight, ours.key_value.weight)))
        theirs.in_proj_bias.copy_(torch.cat((ours.query.bias, ours.key_value.bias)))
        theirs.out_proj.weight.copy_(ours.projection.weight)
        theirs.out_proj.bias.copy_(ours.projection.bias)
    return ours, theirs


@pytest.mark.parametrize("implementation", ["sdpa", "plain"])
@pytest.mark.parametrize("padded", [False, True])
def test_it_is_that_of_torch(implementation, padded):
    ours, theirs = pair(implementation)
    x, memory = data(2, ASKING, WIDTH), data(2, ANSWERING, WIDTH, seed=1)
    mask = None
    if padded:
        mask = torch.ones(2, ANSWERING, dtype=torch.bool)
        mask[1, 2:] = False
    wanted, weights = theirs(
        x,
        memory,
        memory,
        key_padding_mask=None if mask is None else ~mask,
        average_attn_weights=False,
    )
    assert torch.allclose(ours(x, memory, mask), wanted, atol=1e-12)
    seen: list[Tensor] = []
    assert torch.allclose(ours(x, memory, mask, observe=seen.append), wanted, atol=1e-12)
    assert torch.allclose(seen[0], weights, atol=1e-12)
    if padded:
        assert (seen[0][1, :, :, 2:] == 0).all()


def test_what_the_memory_answers_can_be_kept():
    ours, _ = pair("sdpa")
    x, memory = data(2, ASKING, WIDTH), data(2, ANSWERING, WIDTH, seed=1)
    kept = ours.keys_values(memory)
    assert kept[0].shape == (2, HEADS, ANSWERING, WIDTH // HEADS)
    for t in range(ASKING):
        assert torch.allclose(ours(x[:, t : t + 1], kept), ours(x, memory)[:, t : t + 1])


def test_shared_heads_are_heads_repeated():
    shared = CrossAttention(WIDTH, 6, 2, 4, memory_width=5).double()
    full = CrossAttention(WIDTH, 6, 6, 4, memory_width=5).double()
    with torch.no_grad():
        for name in ("query", "projection"):
            getattr(full, name).load_state_dict(getattr(shared, name).state_dict())
        # (keys and values, heads, head_size, …): each head three times.
        weight = shared.key_value.weight.view(2, 2, 4, 5).repeat_interleave(3, dim=1)
        full.key_value.weight.copy_(weight.reshape(-1, 5))
        bias = shared.key_value.bias.view(2, 2, 4).repeat_interleave(3, dim=1)
        full.key_value.bias.copy_(bias.reshape(-1))
    x, memory = data(2, ASKING, WIDTH), data(2, ANSWERING, 5, seed=1)
    assert torch.allclose(shared(x, memory), full(x, memory), atol=1e-12)


@pytest.mark.parametrize("implementation", ["sdpa", "plain"])
def test_dropout_is_for_training(implementation):
    module = CrossAttention(WIDTH, HEADS, dropout=0.5, bias=False, implementation=implementation)
    x, memory = data(1, ASKING, WIDTH).float(), data(1, ANSWERING, WIDTH, seed=1).float()
    assert not torch.equal(module(x, memory), module(x, memory))
    module.eval()
    assert torch.equal(module(x, memory), module(x, memory))
    assert all(not name.endswith("bias") for name in module.state_dict())
