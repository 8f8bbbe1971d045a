"""The compiled attention gives what the formula gives, and so does its gradient."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from compilers import REGISTERS, needs_compiler
from configurations import CONFIGURATIONS, name, randomise
from torch import Tensor
from torch.nn import functional as F

from partwise.model import compiled_attention
from partwise.model.attention import attend
from partwise.model.compiled_attention import SOURCE, causal_attention
from partwise.model.config import ModelConfig
from partwise.model.dropout import kept_scale
from partwise.model.gpt import GPT
from partwise.model.position import Rotary, rotate

pytestmark = needs_compiler


@pytest.fixture(scope="module", params=REGISTERS)
def library(request: pytest.FixtureRequest, surroundings: None) -> Path:
    return dataclasses.replace(SOURCE, flags=("-fopenmp", *request.param)).library()


def plain(
    qkv: Tensor, heads: int, turned: bool, scales: list[Tensor], mask: Tensor | None
) -> Tensor:
    """In float64: operation by operation, with all weights."""
    batch, length, width = qkv.shape
    q, k, v = qkv.view(batch, length, 3, heads, -1).unbind(2)
    if scales:
        q, k = (F.rms_norm(x, x.shape[-1:], w, 1e-3) for x, w in zip((q, k), scales, strict=True))
    if turned:
        size = width // (3 * heads)
        cosine, sine = Rotary(size, length)(torch.arange(length))
        q, k = (rotate(x, cosine.double(), sine.double()) for x in (q, k))
    _, weights = attend(*(x.transpose(1, 2) for x in (q, k, v)), causal=True)
    if mask is not None:
        weights = weights * mask
    return (weights @ v.transpose(1, 2)).transpose(1, 2).flatten(2)


def agree(
    library: Path,
    length: int,
    size: int,
    *,
    turned: bool,
    normed: bool,
    rate: float = 0.0,
    mask: Tensor | None = None,
) -> None:
    batch, heads = 2, 3
    torch.manual_seed(1)
    inputs = [torch.randn(batch, length, 3 * heads * size)]
    if normed:
        inputs += [torch.randn(size), torch.randn(size)]
    slope = torch.randn(batch, length, heads * size)
    rotation = Rotary(size, length)(torch.arange(length)) if turned else None

    here = [x.requires_grad_() for x in inputs]
    norms = (here[1], here[2], 1e-3) if normed else None
    torch.manual_seed(9)
    y = causal_attention(here[0], heads, rotation, norms, rate, library)
    found = [y, *torch.autograd.grad(y, here, slope)]

    there = [x.detach().double().requires_grad_() for x in inputs]
    y = plain(there[0], heads, turned, there[1:], mask)
    wanted = [y, *torch.autograd.grad(y, there, slope.double())]
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        # A sum of so many roundings of float32, each against the largest number of its kind.
        torch.testing.assert_close(
            one.double(), other, rtol=0, atol=2e-5 * max(1.0, other.abs().max().item())
        )


@pytest.mark.parametrize("length", [1, 7, 16, 24, 25, 65, 150])
@pytest.mark.parametrize("size", [1, 4, 15, 16, 34, 48, 64, 80])
@pytest.mark.parametrize("normed", [True, False])
def test_values_and_gradients(library: Path, length: int, size: int, normed: bool) -> None:
    agree(library, length, size, turned=size % 2 == 0, normed=normed)
    agree(library, length, size, turned=False, normed=normed)


def draws(library: Path, batch: int, heads: int, length: int, rate: float) -> Tensor:
    """What each weight is multiplied by (batch, heads, T, T): unit vectors as values show it."""
    qkv = torch.zeros(batch, length, 3, heads, length)
    qkv[:, :, 2] = torch.eye(length)[:, None]
    torch.manual_seed(9)
    y = causal_attention(qkv.flatten(2), heads, None, None, rate, library)
    weights = y.view(batch, length, heads, length).transpose(1, 2)
    return (weights * torch.arange(1, length + 1)[:, None]).double()  # equal scores: 1/1, 1/2, …


@pytest.mark.parametrize("length", [1, 7, 24, 65, 150])
def test_dropped_weights(library: Path, length: int) -> None:
    rate = 0.3
    mask = draws(library, 2, 3, length, rate)
    mask = torch.where(mask > 0.5, kept_scale(rate), 0.0)
    agree(library, length, 8, turned=True, normed=True, rate=rate, mask=mask)


def test_it_drops_its_share_and_each_step_others(library: Path) -> None:
    rate, length = 0.2, 128
    mask = draws(library, 16, 2, length, rate)
    seen = torch.ones(length, length).tril().bool()
    fallen = (mask < 0.5).double()[:, :, seen]  # (texts, heads, weights)
    count = fallen.numel()
    assert abs(fallen.mean().item() - rate) < 5 * (rate * (1 - rate) / count) ** 0.5
    kept = mask[:, :, seen][fallen == 0]
    torch.testing.assert_close(kept, torch.full_like(kept, kept_scale(rate)), rtol=1e-5, atol=0)
    # No weight's fate tells that of another text, another head, or its neighbours.
    square = ((mask < 0.5).double() - rate) * seen
    pairs = (
        square[1:] * square[:-1],
        square[:, 0] * square[:, 1],
        square[..., 1:] * square[..., :-1],
        square[..., 1:, :] * square[..., :-1, :],
    )
    for together in pairs:
        whole = together[together != 0]
        assert abs(whole.mean().item()) / (rate * (1 - rate)) < 5 / whole.numel() ** 0.5
    torch.manual_seed(10)
    qkv = torch.randn(1, 30, 3 * 8)
    first, second = (causal_attention(qkv, 2, None, None, rate, library) for _ in range(2))
    assert not torch.equal(first, second)


def test_threads_change_no_bit(library: Path) -> None:
    torch.manual_seed(2)
    qkv, slope = torch.randn(3, 70, 3 * 24, requires_grad=True), torch.randn(3, 70, 24)
    scales = [torch.randn(12, requires_grad=True) for _ in range(2)]
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            torch.manual_seed(3)
            y = causal_attention(qkv, 2, None, (*scales, 1e-5), 0.1, library)
            found.append([y, *torch.autograd.grad(y, [qkv, *scales], slope)])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_scores_far_apart_and_numbers_that_are_none(library: Path) -> None:
    qkv = torch.zeros(1, 3, 3, 1, 2)
    qkv[0, :, 0] = 1e4
    qkv[0, :, 1] = torch.tensor([-1e4, 1e4, 0.0])[:, None, None]
    qkv[0, :, 2, 0, 0] = torch.tensor([1.0, 2.0, 3.0])
    y = causal_attention(qkv.flatten(2), 1, None, None, 0.0, library)
    assert y[0, :, 0].tolist() == [1.0, 2.0, 2.0]
    qkv[0, 1, 2] = float("nan")
    y = causal_attention(qkv.flatten(2), 1, None, None, 0.0, library)
    assert y[0, 1:].isnan().all()
    qkv[0, 1, 2], qkv[0, 1, 0] = 0.0, float("nan")
    y = causal_attention(qkv.flatten(2), 1, None, None, 0.0, library)
    assert y.isnan()[0, :, 0].tolist() == [False, True, False]


def test_what_lies_otherwise_in_memory_is_the_same(library: Path) -> None:
    torch.manual_seed(4)
    apart = torch.randn(3 * 8, 20, 2).permute(2, 1, 0).requires_grad_()
    slope = torch.randn(8, 20, 2).permute(2, 1, 0)
    found = []
    for qkv in (apart, apart.detach().contiguous().requires_grad_()):
        y = causal_attention(qkv, 2, None, None, 0.0, library)
        found.append([y, *torch.autograd.grad(y, qkv, slope)])
    assert all(map(torch.equal, *found))
    with torch.no_grad():
        assert torch.equal(causal_attention(apart, 2, None, None, 0.0, library), found[0][0])


def test_a_gradient_of_the_gradient_is_refused(library: Path) -> None:
    qkv = torch.randn(1, 4, 6, requires_grad=True)
    y = causal_attention(qkv, 1, None, None, 0.0, library)
    (first,) = torch.autograd.grad(y.square().sum(), qkv, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("size", [6, 16])
def test_what_is_saved_may_be_put_elsewhere(library: Path, size: int) -> None:
    """By checkpoints or on a disk: its first place is soon another's."""
    qkv = torch.randn(2, 30, 3 * 2 * size, requires_grad=True)
    scales = [torch.rand(size, requires_grad=True) for _ in range(2)]
    others: list[Tensor] = []

    def elsewhere(tensor: Tensor) -> Tensor:
        return tensor.clone()

    def mixed(qkv: Tensor) -> Tensor:
        rotation = Rotary(size, 30)(torch.arange(30))
        return causal_attention(qkv, 2, rotation, (scales[0], scales[1], 1e-3), 0.3, library)

    def slopes(y: Tensor) -> tuple[Tensor, ...]:
        others.extend(torch.full((30, 16), torch.nan) for _ in range(50))
        return torch.autograd.grad(y.square().sum(), (qkv, *scales))

    torch.manual_seed(1)
    wanted = slopes(mixed(qkv))
    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(elsewhere, lambda tensor: tensor):
        y = mixed(qkv)
    assert all(map(torch.equal, slopes(y), wanted))
    torch.manual_seed(1)
    y = torch.utils.checkpoint.checkpoint(mixed, qkv, use_reentrant=False)
    assert all(map(torch.equal, slopes(y), wanted))


def test_its_own_tensors_lie_beside_what_it_is_given(library: Path) -> None:
    qkv = torch.randn(1, 5, 3 * 4, requires_grad=True)
    y = causal_attention(qkv, 1, None, None, 0.5, library)
    with torch.device("meta"):
        again = causal_attention(qkv, 1, None, None, 0.5, library)
        (slope,) = torch.autograd.grad(again.sum(), qkv)
    assert y.device == again.device == slope.device


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_a_model_with_it_is_the_same_model(config: ModelConfig, library: Path) -> None:
    quiet = dataclasses.replace(config, dropout=0.0, attention_dropout=None, embedding_dropout=0.0)
    model = GPT(quiet)
    randomise(model)
    torch.manual_seed(1)
    ids = torch.randint(quiet.vocab_size, (2, quiet.context_length))
    found: list[Any] = []
    for on in (False, True):
        model.use_lean(on, library)
        model.zero_grad()
        logits = model(ids)
        torch.autograd.backward(logits.square().mean())
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        found.append({"logits": logits, **gradients})
    assert found[0].keys() == found[1].keys()
    for part, wanted in found[0].items():
        largest = wanted.abs().max().item()
        torch.testing.assert_close(found[1][part], wanted, rtol=0, atol=3e-5 * largest + 1e-5)


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
@pytest.mark.parametrize("compiled", [False, True])
def test_with_products_in_bfloat16_too(config: ModelConfig, compiled: bool, library: Path) -> None:
    """On the whole as near to float32 as the usual operations are in bfloat16."""
    quiet = dataclasses.replace(config, dropout=0.0, attention_dropout=None, embedding_dropout=0.0)
    model = GPT(quiet)
    randomise(model)
    lean = usual = 0.0
    for seed in range(4):
        torch.manual_seed(seed)
        ids = torch.randint(quiet.vocab_size, (2, quiet.context_length))

        def found(on: bool, half: bool, ids: Tensor = ids) -> list[Tensor]:
            model.use_lean(on, library if compiled else None)
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                logits = model(ids)
            torch.autograd.backward(logits.float().square().mean())
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            assert all(gradient.dtype == torch.float32 for gradient in gradients)
            return [logits.detach().float(), *gradients]

        exact = found(False, False)
        for part, first, second in zip(exact, found(True, True), found(False, True), strict=True):
            lean += float((first - part).norm() / (part.norm() + 1e-3))
            usual += float((second - part).norm() / (part.norm() + 1e-3))
    assert lean < 2 * usual + 1e-3


def test_it_is_used_where_it_serves(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []

    def noted(qkv: Tensor, *others: Any) -> Tensor:
        used.append(qkv.shape[1])
        return causal_attention(qkv, *others)

    monkeypatch.setattr(compiled_attention, "causal_attention", noted)
    model = GPT(ModelConfig(context_length=8, n_layers=1, d_model=8, n_heads=2))
    ids = torch.zeros(1, 8, dtype=torch.int64)
    model.use_lean(True, library)
    model(ids)
    model.eval()(ids)
    assert used == [8, 8]
    model.double()(ids)
    model.float().use_lean(True)
    model(ids)
    model.use_lean(False, library)
    model(ids)
    assert used == [8, 8]


@pytest.mark.parametrize(
    ("changes", "serves"),
    [
        ({}, True),
        ({"position": "rotary", "qk_norm": True}, True),
        ({"position": "alibi"}, False),
        ({"window": 4}, False),
        ({"causal": False}, False),
        ({"n_kv_heads": 1}, False),
    ],
)
def test_the_models_that_it_serves(
    changes: dict[str, Any], serves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ModelConfig(context_length=8, d_model=8, n_heads=2, **changes)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert compiled_attention.serves(config) is serves
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert compiled_attention.serves(config) is serves
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert not compiled_attention.serves(config)
