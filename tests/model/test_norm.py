"""Each norm is its formula, and BatchNorm is torch's over all tokens of a batch."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from partwise.errors import PartwiseError
from partwise.model.norm import BatchNorm, LayerNorm, RMSNorm, make_norm

WIDTH = 6


def data(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(shape, generator=generator, dtype=torch.float64) + 2


@given(width=st.integers(1, 9), tokens=st.integers(1, 5), eps=st.sampled_from([1e-5, 1e-2, 0.5]))
def test_layernorm_is_its_formula(width, tokens, eps):
    norm = LayerNorm(width, eps).double()
    with torch.no_grad():
        norm.weight.copy_(data(width, seed=1))
        norm.bias.copy_(data(width, seed=2))
    x = data(2, tokens, width)
    a = x.numpy()
    mean = a.mean(-1, keepdims=True)
    variance = ((a - mean) ** 2).sum(-1, keepdims=True) / width
    wanted = (a - mean) / np.sqrt(variance + eps) * norm.weight.numpy(force=True)
    wanted = wanted + norm.bias.numpy(force=True)
    assert np.allclose(norm(x).numpy(force=True), wanted, atol=1e-12)


@given(width=st.integers(1, 9), tokens=st.integers(1, 5), eps=st.sampled_from([1e-5, 1e-2, 0.5]))
def test_rmsnorm_is_its_formula(width, tokens, eps):
    norm = RMSNorm(width, eps).double()
    with torch.no_grad():
        norm.weight.copy_(data(width, seed=1))
    x = data(2, tokens, width)
    a = x.numpy()
    wanted = a / np.sqrt((a * a).sum(-1, keepdims=True) / width + eps)
    assert np.allclose(norm(x).numpy(force=True), wanted * norm.weight.numpy(force=True))


def test_rmsnorm_under_autocast_keeps_the_format_without_a_warning():
    norm, x = RMSNorm(WIDTH), data(2, 3, WIDTH).bfloat16()
    with warnings.catch_warnings(), torch.autocast("cpu", torch.bfloat16):
        warnings.simplefilter("error")
        y = norm(x)
    assert y.dtype == torch.bfloat16
    assert torch.allclose(y.double(), norm.double()(x.double()), rtol=0.01)


@pytest.mark.parametrize("bias", [True, False])
def test_batchnorm_is_that_of_torch_over_all_tokens(bias):
    ours, theirs = BatchNorm(WIDTH, 1e-3, bias).double(), nn.BatchNorm1d(WIDTH, 1e-3).double()
    with torch.no_grad():
        ours.weight.copy_(data(WIDTH, seed=1))
        theirs.weight.copy_(ours.weight)
        if bias:
            ours.bias.copy_(data(WIDTH, seed=2))
            theirs.bias.copy_(ours.bias)
    for step in range(3):
        x = data(2, 5, WIDTH, seed=step).requires_grad_()
        y = ours(x)
        wanted = theirs(x.flatten(0, 1)).view_as(x)
        assert torch.allclose(y, wanted, atol=1e-12)
        ours_gradient = torch.autograd.grad(y.pow(3).sum(), x)[0]
        theirs_gradient = torch.autograd.grad(wanted.pow(3).sum(), x)[0]
        assert torch.allclose(ours_gradient, theirs_gradient, atol=1e-9)
    assert torch.allclose(ours.running_mean, theirs.running_mean)
    assert torch.allclose(ours.running_var, theirs.running_var)
    ours.eval(), theirs.eval()
    x = data(1, 1, WIDTH, seed=9)
    assert torch.allclose(ours(x), theirs(x[0]).view_as(x))


def test_batchnorm_mixes_later_tokens_in_training_alone():
    norm, x = BatchNorm(WIDTH), data(1, 4, WIDTH).float()
    other = x.clone()
    other[:, -1] += 1
    assert not torch.allclose(norm(x)[:, 0], norm(other)[:, 0])
    norm.eval()
    assert torch.equal(norm(x)[:, 0], norm(other)[:, 0])


def test_batchnorm_refuses_a_training_batch_of_one_token():
    norm = BatchNorm(WIDTH)
    with pytest.raises(PartwiseError, match=r"2 tokens or more .* has 1;"):
        norm(torch.ones(1, 1, WIDTH))
    assert torch.equal(norm.running_var, torch.ones(WIDTH))
    norm(torch.ones(1, 2, WIDTH))
    norm.eval()
    norm(torch.ones(1, 1, WIDTH))


def test_make_norm_makes_what_it_is_asked_for():
    assert make_norm("none", WIDTH) is None
    for kind, made in (("layernorm", LayerNorm), ("rmsnorm", RMSNorm), ("batchnorm", BatchNorm)):
        norm = make_norm(kind, WIDTH, 0.25, bias=False)
        assert type(norm) is made
        assert norm.eps == 0.25
        assert [name for name, _ in norm.named_parameters()] == ["weight"]
    names = set(make_norm("batchnorm", WIDTH).state_dict())
    assert names == {"weight", "bias", "running_mean", "running_var"}
    assert set(make_norm("layernorm", WIDTH).state_dict()) == {"weight", "bias"}
