"""LoRA: the sum is the formula's, the base keeps its bits, and merging changes no answer."""

from dataclasses import replace

import pytest
import torch
from configurations import CONFIGURATIONS, name, randomise
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from partwise.errors import ConfigError
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.lora import LoraLinear, add_lora, merge_lora
from partwise.model.lora_config import LoraConfig
from partwise.model.parameters import count_parameters
from partwise.model.presets import preset
from partwise.settings import build, parse, plain

MODEL = ModelConfig(vocab_size=13, context_length=8, n_layers=2, d_model=16, n_heads=2)
SWIGLU = replace(MODEL, feedforward="swiglu", qkv_bias=False, norm="rmsnorm", position="rotary")
IDS = torch.randint(0, 7, (2, 6), generator=torch.Generator().manual_seed(0))


def made(config: ModelConfig) -> GPT:
    model = GPT(config)
    randomise(model)
    return model.eval()


def with_additions(model: GPT, lora: LoraConfig) -> GPT:
    """The model with additions that are not zero."""
    add_lora(model, lora)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("lora_b"):
                parameter.normal_(generator=torch.Generator().manual_seed(1), std=0.2)
    return model


@given(
    inputs=st.integers(1, 9),
    outputs=st.integers(1, 9),
    rank=st.integers(1, 5),
    alpha=st.floats(0.1, 50),
    bias=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_an_addition_is_the_formula(
    inputs: int, outputs: int, rank: int, alpha: float, bias: bool
) -> None:
    base = nn.Linear(inputs, outputs, bias=bias).double()
    lora = LoraLinear(base, rank, alpha)
    nn.init.normal_(lora.lora_b)
    x = torch.randn(3, inputs, dtype=torch.float64)
    matrix = base.weight + alpha / rank * lora.lora_b @ lora.lora_a
    wanted = F.linear(x, matrix, base.bias)
    torch.testing.assert_close(lora(x), wanted)
    torch.testing.assert_close(lora.merged()(x), wanted)


def test_it_begins_as_the_model_it_is_added_to() -> None:
    model = made(MODEL)
    with torch.no_grad():
        before = model(IDS)
        add_lora(model, LoraConfig(rank=4))
        assert torch.equal(model(IDS), before)


def test_only_the_additions_are_trained_and_they_are_small() -> None:
    model = made(MODEL)
    add_lora(model, LoraConfig(rank=2))
    trained = {key: p for key, p in model.named_parameters() if p.requires_grad}
    assert all(key.endswith(("lora_a", "lora_b")) for key in trained)
    widths = [(16, 48), (16, 16), (16, 64), (64, 16)]  # qkv, projection, up, down
    assert sum(p.numel() for p in trained.values()) == 2 * 2 * sum(d + e for d, e in widths)


@torch.enable_grad()
def test_a_step_leaves_every_bit_of_the_base_as_it_was() -> None:
    model = made(SWIGLU)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    add_lora(model, LoraConfig(rank=2, dropout=0.1))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        F.cross_entropy(model(IDS).flatten(0, 1), IDS.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    after = model.state_dict()
    assert all(torch.equal(after[key], tensor) for key, tensor in before.items())
    additions = [tensor for key, tensor in after.items() if key not in before]
    assert len(additions) == 2 * 2 * 5 and all(tensor.abs().max() > 0 for tensor in additions)


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_merging_changes_no_answer(config: ModelConfig) -> None:
    if config.norm == "batchnorm":
        with pytest.raises(ConfigError, match="running statistics"):
            add_lora(GPT(config), LoraConfig(rank=2))
        return
    lora = LoraConfig(rank=2)
    model = with_additions(made(config).double(), lora)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert trained == lora.parameters(config)
    shapes = {key: tensor.shape for key, tensor in GPT(config).state_dict().items()}
    with torch.no_grad():
        composed = model(IDS)
        merge_lora(model)
        merged = model(IDS)
    torch.testing.assert_close(merged, composed, atol=1e-9, rtol=1e-9)
    assert {key: tensor.shape for key, tensor in model.state_dict().items()} == shapes
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(isinstance(part, LoraLinear) for part in model.modules())


def test_the_additions_count() -> None:
    model = made(MODEL)
    with torch.no_grad():
        before = model(IDS)
        assert not torch.allclose(with_additions(model, LoraConfig(rank=2))(IDS), before, atol=0.01)


def test_it_reads_with_a_cache_as_without() -> None:
    model = with_additions(made(SWIGLU), LoraConfig(rank=2))
    with torch.no_grad():
        cache = model.new_cache(2)
        pieces = [model(piece, cache) for piece in IDS.split([3, 1, 2], dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), model(IDS), atol=5e-5, rtol=0)


@pytest.mark.parametrize("targets", [("qkv",), ("up", "down"), ("gate", "projection")])
def test_the_chosen_matrices_alone_get_one(targets: tuple[str, ...]) -> None:
    model = made(SWIGLU)
    add_lora(model, LoraConfig(rank=1, targets=targets))
    found = {key.split(".")[-2] for key, p in model.named_parameters() if p.requires_grad}
    assert found == set(targets)


def test_a_matrix_that_the_model_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match=r"targets=gate.*qkv, projection, up, down would do"):
        add_lora(GPT(MODEL), LoraConfig(rank=2, targets=("qkv", "gate")))


def test_a_rank_that_no_matrix_can_have_is_refused_and_changes_nothing() -> None:
    model = GPT(MODEL)
    with pytest.raises(ConfigError, match=r"rank=17 .*16 inputs and 48 outputs \(qkv\).*give 16"):
        add_lora(model, LoraConfig(rank=17))
    assert all(p.requires_grad for p in model.parameters())
    assert not any(isinstance(part, LoraLinear) for part in model.modules())
    add_lora(model, LoraConfig(rank=16))


def test_dropout_drops_in_training_alone() -> None:
    lora = LoraLinear(nn.Linear(50, 3), 2, 4.0, dropout=0.5)
    nn.init.normal_(lora.lora_b)
    x = torch.randn(4, 50)
    assert not torch.equal(lora(x), lora(x))
    lora.eval()
    assert torch.equal(lora(x), lora(x))


def test_gpt2_needs_a_few_megabytes() -> None:
    config = preset("gpt2")
    with torch.device("meta"):
        model = GPT(config)
        add_lora(model, LoraConfig(rank=8))
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    # Counted by hand: 12 layers of (768 + 2304) + 2 * 768 + 2 * (768 + 3072), 8 times.
    assert count == 12 * 8 * (3072 + 1536 + 7680) == 1_179_648
    assert 4 * count < 5_000_000 < 4 * count_parameters(config) / 50


def test_the_settings_read_as_they_are_typed() -> None:
    assert parse(LoraConfig, "targets", "qkv,up") == ("qkv", "up")
    assert LoraConfig(targets=("qkv,up", "down", "up")).targets == ("qkv", "up", "down")
    lora = LoraConfig(rank=8, targets=("qkv",))
    assert build(LoraConfig, plain(lora)) == lora
    assert build(LoraConfig, plain(LoraConfig())) == LoraConfig()
    assert not LoraConfig().on and lora.on


@pytest.mark.parametrize(
    "settings, named",
    [
        ({"rank": 0}, "rank=0"),
        ({"alpha": 0.0}, "alpha=0.0"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"targets": ("qv",)}, "targets=qv is no matrix of a block; did you mean qkv"),
        ({"targets": (",",)}, "targets is empty"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        build(LoraConfig, settings)
    assert named in str(error.value)


def test_without_a_rank_there_is_nothing_to_add() -> None:
    with pytest.raises(ConfigError, match="give a rank"):
        add_lora(GPT(MODEL), LoraConfig())
