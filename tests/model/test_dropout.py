"""Dropout: its law, its draws, its gradient, and that the whole model uses it."""

import ast
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from configurations import CONFIGURATIONS, name, randomise
from torch import Tensor
from torch.nn import functional as F

import partwise.model
from partwise.model.config import ModelConfig
from partwise.model.dropout import PIECE, STEPS, draw, dropout, dropped, is_by_hand, kept_scale
from partwise.model.gpt import GPT
from partwise.model.seq2seq import Seq2Seq
from partwise.model.seq2seq_config import Seq2SeqConfig

# More than a piece, and no multiple of anything.
MANY = 3 * PIECE + 1_235


def ones(count: int = MANY, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(count, dtype=dtype)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.15, 0.2, 0.5, 0.9, 0.999])
def test_the_rate_and_the_mean(rate: float) -> None:
    torch.manual_seed(1)
    found = dropout(ones(2**22), rate)
    kept = found != 0
    # Five standard deviations; a rate rounded to a 256th would be off by more where it is 0.2.
    assert abs(1 - kept.double().mean().item() - rate) < 5 * math.sqrt(rate * (1 - rate) / 2**22)
    assert found[kept].unique().tolist() == pytest.approx([1 / (1 - rate)], rel=1e-2)
    # What is divided by is the rate that is drawn with, to the last digit: the mean is exact.
    assert kept_scale(rate) * (1 - dropped(rate) / STEPS) == pytest.approx(1.0, rel=1e-15)
    assert abs(dropped(rate) / STEPS - rate) <= 0.5 / STEPS


@pytest.mark.parametrize("rate", [1e-9, 1 - 1e-9])
def test_a_rate_at_either_end_is_neither_never_nor_always(rate: float) -> None:
    torch.manual_seed(1)
    found = dropout(ones(2**22), rate)
    few = (found == 0 if rate < 0.5 else found != 0).sum().item()
    # 64 of 2^22 are expected.
    assert 24 < few < 104
    assert found.mean().item() == pytest.approx(1.0, rel=0.7)


@pytest.mark.parametrize("chances", [1, 255, 256, 13_107, 32_768, 65_535])
def test_all_sixteen_bits_decide(chances: int) -> None:
    torch.manual_seed(3)
    hits = draw(torch.empty(2**22), chances).double().mean().item()
    share = chances / STEPS
    assert abs(hits - share) < 5 * math.sqrt(share * (1 - share) / 2**22)


def test_numbers_fall_independently_of_each_other() -> None:
    torch.manual_seed(2)
    rate = 0.3
    fallen = (dropout(ones(2**22), rate) == 0).double() - rate
    variance = rate * (1 - rate)
    # Near neighbours, those drawn from the same 64 bits, rows of usual widths, and other pieces.
    for apart in (1, 2, 3, 4, 5, 16, 96, 128, 256, 384, PIECE - 1, PIECE, PIECE + 4):
        together = (fallen[:-apart] * fallen[apart:]).mean().item() / variance
        assert abs(together) < 5 / math.sqrt(2**22 - apart), apart


def test_every_call_draws_anew_and_a_seed_draws_again() -> None:
    torch.manual_seed(5)
    first, second = dropout(ones(), 0.5), dropout(ones(), 0.5)
    assert 0.49 < (first == second).double().mean() < 0.51
    torch.manual_seed(5)
    assert torch.equal(dropout(ones(), 0.5), first)


def test_the_draws_do_not_depend_on_threads_format_or_layout() -> None:
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            torch.manual_seed(7)
            found.append(dropout(ones(), 0.2))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each, found[0]) for each in found)
    for dtype in (torch.float64, torch.bfloat16):
        torch.manual_seed(7)
        assert torch.equal(dropout(ones(dtype=dtype), 0.2) == 0, found[0] == 0)
    x = torch.rand(40, 30).T + 1
    torch.manual_seed(7)
    turned = dropout(x, 0.2)
    torch.manual_seed(7)
    assert torch.equal(turned, dropout(x.contiguous(), 0.2))


@pytest.mark.parametrize("count", [1, 7, PIECE, MANY])
def test_the_gradient_is_what_the_number_was_multiplied_by(count: int) -> None:
    torch.manual_seed(11)
    x = torch.rand(count, dtype=torch.float64).add(1).requires_grad_()
    slope = torch.randn(count, dtype=torch.float64)
    y = dropout(x, 0.4)
    (found,) = torch.autograd.grad(y, x, slope)
    torch.testing.assert_close(found, slope * (y / x).detach(), rtol=1e-12, atol=0)
    assert set((y / x).detach().round(decimals=6).tolist()) <= {0.0, round(kept_scale(0.4), 6)}


@pytest.mark.parametrize("count", [7, MANY])
def test_gradients_of_gradients_and_of_functions(count: int) -> None:
    torch.manual_seed(3)
    x = torch.rand(count, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(5)
    (slope,) = torch.autograd.grad(dropout(x, 0.4).square().sum(), x, create_graph=True)
    (curve,) = torch.autograd.grad(slope.sum(), x)
    torch.manual_seed(5)
    by_function = torch.func.grad(lambda x: dropout(x, 0.4).square().sum())(x.detach())
    torch.testing.assert_close(by_function, slope.detach())
    torch.testing.assert_close(curve * x.detach(), slope.detach())


@pytest.mark.parametrize("count", [0, 7, MANY])
def test_what_it_makes_lies_beside_what_it_is_given(count: int) -> None:
    x = ones(count).requires_grad_()
    with torch.device("meta"):
        y = dropout(x, 0.5)
        (slope,) = torch.autograd.grad(y.sum(), x)
    assert y.device == slope.device == x.device
    assert torch.equal(y, slope)


def test_evaluation_and_no_rate_touch_nothing() -> None:
    x = ones(9)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0) is x
    assert torch.equal(torch.get_rng_state(), state)


def test_others_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_by_hand(ones(1))
    assert not is_by_hand(torch.empty(1, device="meta"))
    seen: list[bool] = []

    def traced(x: Tensor) -> Tensor:
        seen.append(is_by_hand(x))
        return dropout(x, 0.5)

    graph = torch.fx.experimental.proxy_tensor.make_fx(traced)(ones(8))
    assert seen == [False]
    assert "random_" not in graph.code
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not is_by_hand(ones(1))
    torch.manual_seed(1)
    found = dropout(ones(), 0.5)
    torch.manual_seed(1)
    assert torch.equal(found, F.dropout(ones(), 0.5))


def test_a_mask_costs_a_byte_a_number() -> None:
    held: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        dropout(ones().requires_grad_(), 0.1)
    assert sum(tensor.nbytes for tensor in held) == MANY


def test_no_part_drops_out_in_another_way() -> None:
    folder = Path(str(partwise.model.__file__)).parent
    for file in folder.glob("*.py"):
        calls = list(ast.walk(ast.parse(file.read_text("utf-8"))))
        named = {ast.unparse(node.func) for node in calls if isinstance(node, ast.Call)}
        torchs = {call for call in named if call.lower().endswith(("f.dropout", "nn.dropout"))}
        assert not torchs or file.name == "dropout.py", (file.name, torchs)


@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_a_model_s_step_follows_from_its_seed(config: ModelConfig, lean: bool) -> None:
    model = GPT(replace(config, dropout=0.3, attention_dropout=None, embedding_dropout=0.2))
    randomise(model)
    model.use_lean(lean)
    ids = torch.randint(config.vocab_size, (3, config.context_length))

    def step(seed: int) -> tuple[Tensor, list[Tensor]]:
        torch.manual_seed(seed)
        logits = model.train()(ids)
        kept = [p for p in model.parameters() if p.requires_grad]
        found = torch.autograd.grad(logits.square().mean(), kept, allow_unused=True)
        return logits.detach(), [grad for grad in found if grad is not None]

    first, again, other = step(1), step(1), step(2)
    assert torch.equal(first[0], again[0])
    assert all(torch.equal(*pair) for pair in zip(first[1], again[1], strict=True))
    assert not torch.equal(first[0], other[0])


def test_an_encoder_decoder_s_step_follows_from_its_seed() -> None:
    model = Seq2Seq(
        Seq2SeqConfig(
            vocab_size=20,
            context_length=8,
            d_model=16,
            n_heads=2,
            dropout=0.3,
            attention_dropout=0.3,
            embedding_dropout=0.3,
        )
    ).train()
    ids = torch.randint(3, 20, (2, 6))
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(model(ids, ids))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
