"""A block puts its parts together as each arrangement's formula says."""

import dataclasses

import pytest
import torch
from torch import Tensor

from partwise.model.block import Block, Sight
from partwise.model.config import ModelConfig

CONFIG = ModelConfig(d_model=12, n_heads=3, norm="layernorm")
SIGHT = Sight(mask=None, causal=True, rotation=None, past=None)


def make(**changes: object) -> tuple[Block, Tensor]:
    """A block in float64 whose norms do something, and a stream to put through it."""
    torch.manual_seed(0)
    block = Block(dataclasses.replace(CONFIG, **changes)).double()
    for norm in (block.norm1, block.norm2):
        if norm is not None:
            torch.nn.init.normal_(norm.weight)
            torch.nn.init.normal_(norm.bias)
    return block, torch.randn(2, 5, 12, dtype=torch.float64)


def equal(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, atol=1e-12)


def test_pre_norm():
    block, x = make()
    wanted = x + block.attention(block.norm1(x))
    wanted = wanted + block.feedforward(block.norm2(wanted))
    assert equal(block(x, SIGHT), wanted)


def test_post_norm():
    block, x = make(norm_placement="post")
    wanted = block.norm1(x + block.attention(x))
    wanted = block.norm2(wanted + block.feedforward(wanted))
    assert equal(block(x, SIGHT), wanted)


@pytest.mark.parametrize("changes", [{"norm": "none"}, {"norm_placement": "none"}], ids=str)
def test_no_norm(changes):
    block, x = make(**changes)
    assert block.norm1 is None and block.norm2 is None
    wanted = x + block.attention(x)
    assert equal(block(x, SIGHT), wanted + block.feedforward(wanted))


def test_without_residual():
    block, x = make(residual=False)
    wanted = block.feedforward(block.norm2(block.attention(block.norm1(x))))
    assert equal(block(x, SIGHT), wanted)


def test_without_residual_and_with_post_norm():
    block, x = make(residual=False, norm_placement="post")
    wanted = block.norm2(block.feedforward(block.norm1(block.attention(x))))
    assert equal(block(x, SIGHT), wanted)


@pytest.mark.parametrize("residual", [True, False])
def test_parallel(residual):
    block, x = make(parallel=True, residual=residual)
    assert block.norm2 is None
    normed = block.norm1(x)
    wanted = block.attention(normed) + block.feedforward(normed)
    assert equal(block(x, SIGHT), x + wanted if residual else wanted)


def test_one_sublayer_alone():
    block, x = make(feedforward="none")
    assert block.feedforward is None and block.norm2 is None
    assert equal(block(x, SIGHT), x + block.attention(block.norm1(x)))
    block, x = make(attention=False)
    assert block.attention is None and block.norm1 is None
    assert equal(block(x, SIGHT), x + block.feedforward(block.norm2(x)))


@pytest.mark.parametrize("changes", [{"feedforward": "none"}, {"attention": False}], ids=str)
def test_dropout_falls_on_the_sublayer_s_output_before_it_rejoins(changes):
    share = 0.25
    block, _ = make(dropout=share, attention_dropout=0.0, **changes)
    x = torch.randn(64, 16, 12, dtype=torch.float64)
    torch.manual_seed(1)
    added = block(x, SIGHT) - x
    whole = block.eval()(x, SIGHT) - x
    kept = added.abs() > 1e-9
    assert torch.allclose(added[kept], whole[kept] / (1 - share), atol=1e-9)
    # 12,288 draws: four standard deviations are 0.016.
    assert abs(1 - kept.double().mean() - share) < 0.016


def test_dropout_in_parallel_falls_on_each_sublayer_by_itself():
    block, x = make(parallel=True, dropout=0.5, attention_dropout=0.0, norm="none")
    heard, thought = block.attention(x), block.feedforward(x)
    added = block(x, SIGHT) - x
    possible = torch.stack((0 * heard, 2 * heard, 2 * thought, 2 * heard + 2 * thought))
    nearest = (possible - added).abs().min(0)
    assert nearest.values.max() < 1e-9
    assert set(nearest.indices.flatten().tolist()) == {0, 1, 2, 3}


def test_attention_dropout_is_its_own():
    block, _ = make(dropout=0.3)
    assert block.attention.dropout == 0.3
    block, _ = make(dropout=0.3, attention_dropout=0.0)
    assert block.attention.dropout == 0.0
