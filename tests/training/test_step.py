"""One step: equal however the batch is cut, honest about what is no number, pure in its seed."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from configurations import CONFIGURATIONS, name, randomise
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.guarantees import excluded
from partwise.training.objective import Objective, upload
from partwise.training.optim import build_optimizers
from partwise.training.precision import Precision
from partwise.training.step import make_step, seed_step
from training.doubles import CONFIG, CONTEXT, MODEL, ROWS, data, equal, new_model

CPU = torch.device("cpu")


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return upload(data().train.batch(0), CPU)


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_a_batch_in_parts_gives_the_gradient_of_the_whole(config: ModelConfig) -> None:
    if excluded("accumulation", config) is not None:
        pytest.skip(str(excluded("accumulation", config)))
    config = replace(config, dropout=0.0, attention_dropout=0.0, embedding_dropout=0.0)
    generator = torch.Generator().manual_seed(0)
    shape = (6, config.context_length)
    inputs, targets = (
        torch.randint(config.vocab_size, shape, generator=generator) for _ in range(2)
    )
    gradients = []
    losses = []
    for parts in (1, 3):
        model = GPT(config)
        randomise(model, 0)
        train = replace(CONFIG, batch_size=6, accumulation=parts, grad_clip=None)
        step = make_step(Objective(model), build_optimizers(model, train), train)
        losses.append(step(inputs, targets, 1.0).loss.item())
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    largest = max(float(gradient.abs().max()) for gradient in gradients[0])
    for whole, summed in zip(*gradients, strict=True):
        assert torch.allclose(whole, summed, rtol=1e-4, atol=1e-5 * largest)


def test_the_loss_is_the_cross_entropy_by_hand() -> None:
    model = new_model(replace(MODEL, dropout=0.0))
    inputs, targets = batch()
    chances = model(inputs).softmax(-1)
    by_hand = -chances.gather(-1, targets[..., None]).log().mean()
    step = make_step(Objective(model), build_optimizers(model, CONFIG), CONFIG)
    assert step(inputs, targets, 0.0).loss.item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_smoothing_spreads_a_share_of_the_target() -> None:
    model = new_model(replace(MODEL, dropout=0.0))
    inputs, targets = batch()
    logs = model(inputs).log_softmax(-1)
    hit = logs.gather(-1, targets[..., None])[..., 0]
    by_hand = -(0.8 * hit + 0.2 * logs.mean(-1)).mean()
    config = replace(CONFIG, label_smoothing=0.2)
    step = make_step(Objective(model), build_optimizers(model, config), config)
    assert step(inputs, targets, 0.0).loss.item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_the_gradient_is_clipped_to_the_norm_and_measured_before() -> None:
    model = new_model()
    config = replace(CONFIG, grad_clip=0.01)
    step = make_step(Objective(model), build_optimizers(model, config), config)
    update = step(*batch(), 1.0)
    after = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
    assert update.grad_norm is not None
    assert update.grad_norm.item() > 0.1
    assert after == pytest.approx(0.01, rel=1e-3)


def test_without_clipping_the_norm_is_measured_only_on_request() -> None:
    model = new_model()
    config = replace(CONFIG, grad_clip=None)
    step = make_step(Objective(model), build_optimizers(model, config), config)
    assert step(*batch(), 1.0).grad_norm is None
    norm = step(*batch(), 1.0, measure=True).grad_norm
    assert norm is not None
    by_hand = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
    assert norm.item() == pytest.approx(by_hand, rel=1e-5)


def test_a_rate_of_zero_changes_no_weight() -> None:
    model, untouched = new_model(), new_model()
    step = make_step(Objective(model), build_optimizers(model, CONFIG), CONFIG)
    step(*batch(), 0.0)
    assert equal(model, untouched)
    step(*batch(), 1.0)
    assert not equal(model, untouched)


@pytest.mark.parametrize("where", ["weight", "gradient"])
def test_a_number_that_is_none_leaves_the_weights_alone(where: str) -> None:
    model = new_model()
    if where == "weight":
        with torch.no_grad():
            model.blocks[1].feedforward.down.weight[0, 0] = math.inf
    else:
        model.blocks[1].feedforward.down.weight.register_hook(lambda g: g * math.nan)
    before = {name: p.clone() for name, p in model.named_parameters()}
    step = make_step(Objective(model), build_optimizers(model, CONFIG), CONFIG)
    assert not step(*batch(), 1.0).applied
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_float16_scales_the_loss_and_leaves_out_a_step_that_overflows() -> None:
    model = new_model(replace(MODEL, dropout=0.0))
    precision = Precision(CPU, torch.float16)
    precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    step = make_step(Objective(model, precision), build_optimizers(model, CONFIG), CONFIG)
    before = {name: p.clone() for name, p in model.named_parameters()}
    update = step(*batch(), 1.0)
    assert update.applied  # not the end of the run: the scaler tries again with less
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert precision.scaler.get_scale() == 2.0**99
    precision.scaler.update(2.0**10)
    update = step(*batch(), 1.0)
    assert any(not torch.equal(p, before[name]) for name, p in model.named_parameters())
    # What is clipped and told is the gradient itself, not the scaled one.
    plain = new_model(replace(MODEL, dropout=0.0))
    expected = make_step(Objective(plain), build_optimizers(plain, CONFIG), CONFIG)(*batch(), 1.0)
    assert update.grad_norm is not None
    assert expected.grad_norm is not None
    assert update.grad_norm.item() == pytest.approx(expected.grad_norm.item(), rel=0.02)


def test_bfloat16_multiplies_in_bfloat16_and_keeps_float32_weights() -> None:
    model = new_model()
    seen = []
    model.blocks[0].feedforward.up.register_forward_hook(lambda *parts: seen.append(parts[2].dtype))
    precision = Precision(CPU, torch.bfloat16)
    step = make_step(Objective(model, precision), build_optimizers(model, CONFIG), CONFIG)
    update = step(*batch(), 1.0)
    assert seen == [torch.bfloat16]
    assert update.loss.dtype == torch.float32
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**62), step=st.integers(0, 10**9), rank=st.integers(0, 100))
def test_random_draws_follow_from_seed_step_and_rank(seed: int, step: int, rank: int) -> None:
    def draw(seed: int, step: int, rank: int) -> list[float]:
        seed_step(CPU, seed, step, rank)
        return torch.rand(4).tolist()

    first = draw(seed, step, rank)
    assert first == draw(seed, step, rank)
    assert first != draw(seed + 1, step, rank)
    assert first != draw(seed, step + 1, rank)
    assert first != draw(seed, step, rank + 1)
    assert first != draw(step + 1, seed, rank) or seed == step + 1


def test_the_objective_is_torchs_cross_entropy_in_float32() -> None:
    model = new_model().eval()
    inputs, targets = batch()
    expected = F.cross_entropy(model(inputs).view(ROWS * CONTEXT, -1), targets.view(-1))
    assert torch.equal(Objective(model)(inputs, targets), expected)
