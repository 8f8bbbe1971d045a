"""Attention is its formula, one head at a time, and torch's fused kernels give the same."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from partwise.model.attention import Attention, attend, attend_fast
from partwise.model.position import Rotary, rotate


def data(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def by_definition(q: Tensor, k: Tensor, v: Tensor, bias: np.ndarray) -> tuple[np.ndarray, ...]:
    """One query at a time; bias is (heads, T, S)."""
    batch, heads, length, size = q.shape
    group = heads // k.shape[1]
    out = np.zeros((batch, heads, length, size))
    weights = np.zeros((batch, heads, length, k.shape[2]))
    for b in range(batch):
        for h in range(heads):
            keys, values = k[b, h // group].numpy(), v[b, h // group].numpy()
            for i in range(length):
                scores = keys @ q[b, h, i].numpy() / math.sqrt(size) + bias[h, i]
                shares = np.exp(scores - scores.max())
                weights[b, h, i] = shares / shares.sum()
                out[b, h, i] = weights[b, h, i] @ values
    return out, weights


@given(
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    length=st.integers(1, 5),
    keys=st.integers(1, 6),
    size=st.integers(1, 5),
    kind=st.sampled_from(["all", "causal", "seen", "bias"]),
)
def test_both_ways_are_the_definition(kv_heads, group, length, keys, size, kind):
    heads = kv_heads * group
    keys = length if kind == "causal" else keys
    q, k = data(2, heads, length, size), data(2, kv_heads, keys, size, seed=1)
    v = data(2, kv_heads, keys, size, seed=2)
    bias = np.zeros((heads, length, keys))
    mask = None
    if kind == "causal":
        bias[:] = np.where(np.tril(np.ones((length, keys))), 0.0, -np.inf)
    elif kind == "seen":
        mask = data(1, 1, length, keys, seed=3) > 0
        mask[..., 0] = True
        bias[:] = np.where(mask[0, 0].numpy(), 0.0, -np.inf)
    elif kind == "bias":
        mask = data(1, heads, length, keys, seed=3)
        bias[:] = mask[0].numpy()
    out, weights = by_definition(q, k, v, bias)
    plain, shares = attend(q, k, v, mask=mask, causal=kind == "causal")
    fast = attend_fast(q, k, v, mask=mask, causal=kind == "causal")
    assert np.allclose(plain.numpy(), out, atol=1e-12)
    assert np.allclose(shares.numpy(), weights, atol=1e-12)
    assert np.allclose(fast.numpy(), out, atol=1e-12)


@pytest.mark.parametrize("implementation", ["sdpa", "plain"])
@pytest.mark.parametrize("projection", [True, False])
def test_the_module_is_its_formula(implementation, projection):
    heads, kv_heads, size, width, length = 4, 2, 3, 12, 5
    module = Attention(
        width,
        heads,
        kv_heads,
        size,
        projection=projection,
        qk_norm=True,
        norm_eps=0.1,
        implementation=implementation,
    ).double()
    with torch.no_grad():
        module.query_norm.weight.copy_(data(size, seed=4))
        module.key_norm.weight.copy_(data(size, seed=5))
    x = data(2, length, width)
    # The fused matrix holds the rows of all query heads, then of all key heads, then of all values.
    rows = module.qkv.weight.split([heads * size, kv_heads * size, kv_heads * size])
    biases = module.qkv.bias.split([heads * size, kv_heads * size, kv_heads * size])
    q, k, v = (
        (x @ w.T + b).view(2, length, -1, size).transpose(1, 2)
        for w, b in zip(rows, biases, strict=True)
    )

    def rms(y: Tensor, weight: Tensor) -> Tensor:
        return y / torch.sqrt(y.pow(2).mean(-1, keepdim=True) + 0.1) * weight

    q, k = rms(q, module.query_norm.weight), rms(k, module.key_norm.weight)
    wanted, _ = attend(q, k, v, causal=True)
    wanted = wanted.transpose(1, 2).reshape(2, length, heads * size)
    if projection:
        wanted = wanted @ module.projection.weight.T + module.projection.bias
    else:
        assert module.projection is None
    assert torch.allclose(module(x), wanted, atol=1e-12)


def test_queries_and_keys_are_normed_before_they_are_turned():
    module = Attention(8, 1, qk_norm=True, projection=False).double()
    with torch.no_grad():
        module.query_norm.weight.copy_(data(8, seed=4))  # a scale that differs by feature
        module.key_norm.weight.copy_(data(8, seed=5))
    x, rotation = data(1, 6, 8), Rotary(8, 6).double()(torch.arange(6))
    seen: list[Tensor] = []
    module(x, rotation=rotation, observe=seen.append)
    q, k, _ = (x @ module.qkv.weight.T + module.qkv.bias).chunk(3, -1)
    q, k = module.query_norm(q)[:, :, None], module.key_norm(k)[:, :, None]
    q, k = rotate(q, *rotation)[:, :, 0], rotate(k, *rotation)[:, :, 0]
    scores = (q @ k.transpose(1, 2) / math.sqrt(8)).masked_fill(
        ~torch.ones(6, 6).tril().bool(), -1e9
    )
    assert torch.allclose(seen[0][:, 0], scores.softmax(-1), atol=1e-12)


def test_gradients_of_both_ways_are_equal():
    found = []
    for implementation in ("sdpa", "plain"):
        torch.manual_seed(0)
        module = Attention(12, 6, 2, implementation=implementation).double()
        x = data(2, 7, 12).requires_grad_()
        module(x).pow(2).sum().backward()
        found.append([x.grad, *(p.grad for p in module.parameters())])
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("implementation", ["sdpa", "plain"])
def test_dropout_takes_its_share_of_the_weights_and_scales_the_rest(implementation):
    torch.manual_seed(0)
    share, length = 0.3, 64
    # With the unit vectors as values, what comes out is the weights themselves.
    q = torch.zeros(8, 1, length, length)
    v = torch.eye(length).expand(8, 1, length, length)
    if implementation == "sdpa":
        weights = attend_fast(q, q, v, dropout=share)
    else:
        weights, before = attend(q, q, v, dropout=share)
        assert torch.allclose(before, torch.tensor(1 / length))
    kept = weights[weights != 0]
    assert torch.allclose(kept, torch.tensor(1 / length / (1 - share)))
    # 32,768 draws: four standard deviations are 0.01.
    assert abs(1 - kept.numel() / weights.numel() - share) < 0.01


@pytest.mark.parametrize("implementation", ["sdpa", "plain"])
def test_dropout_is_off_in_evaluation(implementation):
    module = Attention(8, 2, dropout=0.5, implementation=implementation)
    x = data(1, 4, 8).float()
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


def test_observing_shows_the_weights_and_changes_nothing():
    module, x = Attention(8, 2).double().eval(), data(2, 5, 8)
    seen: list[Tensor] = []
    assert torch.allclose(module(x, observe=seen.append), module(x), atol=1e-12)
    (weights,) = seen
    assert weights.shape == (2, 2, 5, 5)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 2, 5, dtype=torch.float64))
    assert (weights.triu(1) == 0).all() and (weights.tril() > 0).sum() == 2 * 2 * 15


def test_one_head_alone_is_the_lecture_s():
    module = Attention(6, 1, qkv_bias=False, projection=False).double()
    x = data(1, 4, 6)
    q, k, v = (x @ w.T for w in module.qkv.weight.chunk(3))
    scores = (q @ k.transpose(-2, -1) / math.sqrt(6)).masked_fill(
        ~torch.ones(4, 4).tril().bool(), -math.inf
    )
    assert torch.allclose(module(x), F.softmax(scores, -1) @ v, atol=1e-12)
    assert sum(p.numel() for p in module.parameters()) == 3 * 6 * 6


def test_biases_can_be_left_out():
    module = Attention(8, 2, qkv_bias=False, projection_bias=False)
    assert set(module.state_dict()) == {"qkv.weight", "projection.weight"}
