"""The parts whose gradients are written out give what the plain ones give."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from configurations import CONFIGURATIONS, name, randomise
from torch import Tensor
from torch.nn import functional as F

from partwise.model import lean
from partwise.model.attention import attend
from partwise.model.config import ModelConfig
from partwise.model.dropout import kept_scale
from partwise.model.gpt import GPT
from partwise.model.position import Rotary, rotate


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def agree(found: Callable[..., Tensor], wanted: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Values and every gradient."""
    torch.manual_seed(1)
    here, there = found(*inputs), wanted(*inputs)
    torch.testing.assert_close(here, there, rtol=1e-10, atol=1e-12)
    slope = torch.randn_like(here)
    torch.testing.assert_close(
        torch.autograd.grad(here, inputs, slope),
        torch.autograd.grad(there, inputs, slope),
        rtol=1e-9,
        atol=1e-12,
    )


def test_squared_relu() -> None:
    agree(lean.squared_relu, lambda x: F.relu(x).square(), numbers(3, 5))


def test_rms_norm() -> None:
    agree(
        lambda x, weight: lean.rms_norm(x, weight, 1e-2),
        lambda x, weight: F.rms_norm(x, (6,), weight, 1e-2),
        numbers(2, 3, 6),
        numbers(6),
    )


def test_blend() -> None:
    agree(
        lean.blend,
        lambda x, other, shares: shares[0] * x + shares[1] * other,
        numbers(2, 3, 4),
        numbers(2, 3, 4),
        numbers(2),
    )


@pytest.mark.parametrize(
    "part",
    [
        lambda x: lean.squared_relu(x),
        lambda x: lean.rms_norm(x, torch.ones(6, dtype=x.dtype), 1e-5),
        lambda x: lean.blend(x, x, torch.ones(2, dtype=x.dtype)),
        lambda x: lean.causal_attention(x, 1, None, None),
    ],
)
def test_a_gradient_of_the_gradient_is_refused(part: Callable[[Tensor], Tensor]) -> None:
    """Rather than wrong: what the formula kept in between has none."""
    x = numbers(1, 4, 6)
    (first,) = torch.autograd.grad(part(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_a_norm_of_a_single_vector() -> None:
    agree(
        lambda x, weight: lean.rms_norm(x, weight, 1e-2),
        lambda x, weight: F.rms_norm(x, (6,), weight, 1e-2),
        numbers(6),
        numbers(6),
    )


@pytest.mark.parametrize("length", [1, 7, 64, 65, 150])
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("normed", [True, False])
def test_attention(length: int, turned: bool, normed: bool) -> None:
    heads, size = 3, 4
    rotation = Rotary(size, length).double()(torch.arange(length)) if turned else None

    def plain(qkv: Tensor, *scales: Tensor) -> Tensor:
        q, k, v = qkv.view(2, length, 3, heads, size).unbind(2)
        if normed:
            q, k = (F.rms_norm(x, (size,), w, 1e-3) for x, w in zip((q, k), scales, strict=True))
        if rotation is not None:
            q, k = rotate(q, *rotation), rotate(k, *rotation)
        y, _ = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=True)
        return y.transpose(1, 2).flatten(2)

    agree(
        lambda qkv, *scales: lean.causal_attention(
            qkv, heads, rotation, (scales[0], scales[1], 1e-3) if normed else None
        ),
        plain,
        numbers(2, length, 3 * heads * size),
        *([numbers(size), numbers(size)] if normed else []),
    )


def draws(batch: int, heads: int, length: int, rate: float) -> Tensor:
    """What each weight is multiplied by (batch, heads, T, T): unit vectors as values show it."""
    qkv = torch.zeros(batch, length, 3, heads, length, dtype=torch.float64)
    qkv[:, :, 2] = torch.eye(length)[:, None]
    torch.manual_seed(9)
    y = lean.causal_attention(qkv.flatten(2), heads, None, None, rate)
    weights = y.view(batch, length, heads, length).transpose(1, 2)
    return weights * torch.arange(1, length + 1)[:, None]  # equal scores: 1/1, 1/2, …


@pytest.mark.parametrize("length", [1, 7, 64, 65, 150])
def test_dropped_attention(length: int) -> None:
    batch, heads, size, rate = 2, 3, 4, 0.3
    rotation = Rotary(size, length).double()(torch.arange(length))
    mask = draws(batch, heads, length, rate)
    assert set(mask.round(decimals=6).unique().tolist()) <= {0.0, round(kept_scale(rate), 6)}

    def plain(qkv: Tensor, *scales: Tensor) -> Tensor:
        q, k, v = qkv.view(batch, length, 3, heads, size).unbind(2)
        q, k = (F.rms_norm(x, (size,), w, 1e-3) for x, w in zip((q, k), scales, strict=True))
        q, k = rotate(q, *rotation), rotate(k, *rotation)
        _, weights = attend(*(x.transpose(1, 2) for x in (q, k, v)), causal=True)
        return (weights * mask @ v.transpose(1, 2)).transpose(1, 2).flatten(2)

    def found(qkv: Tensor, *scales: Tensor) -> Tensor:
        torch.manual_seed(9)
        return lean.causal_attention(qkv, heads, rotation, (scales[0], scales[1], 1e-3), rate)

    agree(found, plain, numbers(batch, length, 3 * heads * size), numbers(size), numbers(size))


def test_heads_that_are_taken_in_groups_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    qkv, slope = numbers(3, 70, 3 * 2 * 4), torch.randn(3, 70, 8, dtype=torch.float64)
    found = []
    for weights in (2**18, 64 * 70 * 4):  # all six at once; four and two
        monkeypatch.setattr(lean, "WEIGHTS", weights)
        y = lean.causal_attention(qkv, 2, None, None)
        found.append((y, *torch.autograd.grad(y, qkv, slope)))
    torch.testing.assert_close(*found)


def test_the_gradient_of_dropped_attention() -> None:
    def dropped(qkv: Tensor) -> Tensor:
        torch.manual_seed(4)
        return lean.causal_attention(qkv, 2, None, None, 0.4)

    assert torch.autograd.gradcheck(dropped, (numbers(2, 5, 3 * 2 * 3),))


def test_attention_drops_its_share_and_each_step_another() -> None:
    rate, length = 0.2, 128
    mask = draws(16, 2, length, rate)
    seen = torch.ones(length, length).tril().bool().expand(mask.shape)
    share = (mask[seen] == 0).double().mean().item()
    # 264,192 draws.
    assert abs(share - rate) < 5 * (rate * (1 - rate) / seen.sum().item()) ** 0.5
    assert mask[seen].mean().item() == pytest.approx(1.0, abs=5e-3)
    fallen = ((mask == 0).double() - rate)[:, :, seen[0, 0]]  # (texts, heads, weights)
    for together in (fallen[1:] * fallen[:-1], fallen[:, 0] * fallen[:, 1]):
        assert abs(together.mean().item()) / (rate * (1 - rate)) < 5 / together.numel() ** 0.5


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "squared_relu": (lean.squared_relu, ((3, 5),)),
    "rms_norm": (lambda x, weight: lean.rms_norm(x, weight, 1e-2), ((2, 3, 6), (6,))),
    "rms_norm of a vector": (lambda x, weight: lean.rms_norm(x, weight, 1e-2), ((6,), (6,))),
    "blend": (lean.blend, ((2, 3, 4), (2, 3, 4), (2,))),
    "attention": (
        lambda qkv, *w: lean.causal_attention(qkv, 2, None, (*w, 1e-2)),
        ((2, 5, 18), (3,), (3,)),
    ),
    "dropped attention": (
        lambda qkv: lean.causal_attention(qkv, 2, None, None, 0.4),
        ((2, 5, 18),),
    ),
}


@pytest.mark.parametrize("part", FUNCTIONS)
def test_it_serves_in_every_usual_way(part: str) -> None:
    function, shapes = FUNCTIONS[part]
    inputs = tuple(numbers(*shape) for shape in shapes)

    def seeded(*given: Tensor) -> Tensor:
        torch.manual_seed(4)
        return function(*given)

    assert torch.autograd.gradcheck(seeded, inputs)
    y = seeded(*inputs)
    slopes = torch.autograd.grad(y.square().sum(), inputs)
    # The gradients of some inputs alone, by checkpoints, and without any.
    for number, kept in enumerate(inputs):
        some = tuple(x if x is kept else x.detach() for x in inputs)
        (slope,) = torch.autograd.grad(seeded(*some).square().sum(), kept)
        torch.testing.assert_close(slope, slopes[number])
    again = torch.utils.checkpoint.checkpoint(seeded, *inputs, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(again.square().sum(), inputs), slopes)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            torch.testing.assert_close(seeded(*inputs), y.detach())
    # What it makes lies where that lies which it is given.
    with torch.device("meta"):
        there = function(*inputs)
        assert torch.autograd.grad(there.sum(), inputs)[0].device == there.device == y.device


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_a_lean_model_is_the_same_model(config: ModelConfig) -> None:
    # Without dropout: attention draws for fewer weights where it is lean.
    quiet = dataclasses.replace(config, dropout=0.0, attention_dropout=None, embedding_dropout=0.0)
    model = GPT(quiet).double()
    randomise(model)
    ids = torch.randint(quiet.vocab_size, (2, quiet.context_length))
    found: list[Any] = []
    for on in (False, True):
        model.use_lean(on)
        model.zero_grad()
        logits = model(ids)
        torch.autograd.backward(logits.square().mean())
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        found.append((logits, gradients))
    torch.testing.assert_close(found[0], found[1], rtol=1e-7, atol=1e-9)


def test_it_is_used_where_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    for part in ("squared_relu", "rms_norm", "blend", "causal_attention"):
        before = getattr(lean, part)

        def noted(*arguments: Any, part: str = part, before: Any = before) -> Tensor:
            used.append(part)
            result: Tensor = before(*arguments)
            return result

        monkeypatch.setattr(lean, part, noted)
    config = ModelConfig(
        context_length=8,
        n_layers=1,
        d_model=8,
        n_heads=2,
        norm="rmsnorm",
        feedforward="relu2",
        position="rotary",
        embedding_shortcut=True,
        attention_dropout=0.5,
    )
    model = GPT(config)
    ids = torch.zeros(1, 8, dtype=torch.int64)
    model(ids)
    assert used == []
    model.use_lean(True)
    model(ids)
    assert used == ["blend", "rms_norm", "causal_attention", "rms_norm", "squared_relu", "rms_norm"]
    used.clear()
    model.eval()(ids)
    assert used == ["blend", "rms_norm", "causal_attention", "rms_norm", "squared_relu", "rms_norm"]
