"""Predicted bytes against what torch really keeps."""

from dataclasses import replace

import pytest
import torch
from configurations import CONFIGURATIONS, name
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from partwise.model.activations import activations
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.memory import cache_bytes, serving_memory, training_memory
from partwise.model.presets import preset
from partwise.training.config import TrainConfig
from partwise.training.optim import build_optimizers

SMALL = ModelConfig(vocab_size=50, context_length=32, n_layers=2, d_model=48, n_heads=4)

VARIANTS = {
    "gpt": SMALL,
    "dropout": replace(SMALL, dropout=0.1),
    "sublayer dropout alone": replace(SMALL, dropout=0.1, attention_dropout=0.0),
    "llama": replace(
        SMALL, position="rotary", norm="rmsnorm", feedforward="swiglu", n_kv_heads=2,
        tie_embeddings=False, qkv_bias=False, projection_bias=False, feedforward_bias=False,
    ),
    "one key head": replace(SMALL, n_kv_heads=1),
    "window": replace(SMALL, window=8, position="alibi"),
    "parallel": replace(SMALL, parallel=True, feedforward="relu2", qk_norm=True),
    "extras": replace(SMALL, ngram=3, embedding_shortcut=True, logit_soft_cap=15.0),
    "untied": replace(SMALL, tie_embeddings=False, head_bias=True, norm_placement="post"),
}  # fmt: skip


def really_kept(
    config: ModelConfig, batch: int, context: int, dtype: torch.dtype = torch.float32
) -> int:
    """Bytes of all storages that a training step's graph holds, each once, weights excluded."""
    model = GPT(config).train()
    weights = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    inputs, targets = (torch.randint(config.vocab_size, (batch, context)) for _ in range(2))
    held: list[torch.Tensor] = []
    sizes: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)  # or its address would be used again
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            logits = model(inputs)
        F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    return sum(sizes.values())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("batch", "context"), [(3, 32), (8, 12), (1, 7)])
def test_activations_of_known_forms(variant: str, batch: int, context: int) -> None:
    config = VARIANTS[variant]
    predicted = activations(config, batch, context).kept
    assert predicted == pytest.approx(really_kept(config, batch, context), rel=0.02)


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_activations_of_every_part(config: ModelConfig) -> None:
    predicted = activations(config, 3, 6).kept
    assert predicted == pytest.approx(really_kept(config, 3, 6), rel=0.02)


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(CONFIGURATIONS + tuple(VARIANTS.values())),
    st.integers(2, 5),
    st.integers(2, 6),
)
def test_activations_of_any_batch(config: ModelConfig, batch: int, context: int) -> None:
    predicted = activations(config, batch, context).kept
    assert predicted == pytest.approx(really_kept(config, batch, context), rel=0.1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_activations_and_copies_in_bfloat16(variant: str) -> None:
    config = VARIANTS[variant]
    memory = training_memory(config, batch=3, context=32, dtype="bfloat16")
    real = really_kept(config, 3, 32, torch.bfloat16)
    assert memory.activations + memory.copies == pytest.approx(real, rel=0.1)


def test_less_is_kept_when_blocks_are_computed_again() -> None:
    config = replace(SMALL, n_layers=6)
    kept = activations(config, 4, 32)
    assert kept.kept == kept.outside + 6 * kept.largest_block
    assert kept.checkpointed == kept.outside + 6 * (4 * 4 * 32 * 48) + kept.largest_block
    # A single block is computed again for nothing.
    one = activations(replace(SMALL, n_layers=1), 4, 32)
    assert one.checkpointed == one.kept


def test_fused_kernels_hold_no_square() -> None:
    config = replace(SMALL, dropout=0.1)
    short, long = (activations(config, 1, n, kernels="fused").kept for n in (64, 128))
    assert long == pytest.approx(2 * short, rel=0.01)
    assert activations(config, 1, 128).kept > 2.5 * activations(config, 1, 64).kept


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("variant", ["gpt", "llama", "extras", "untied"])
def test_optimizer_memory(optimizer: str, variant: str) -> None:
    config = VARIANTS[variant]
    model = GPT(config)
    settings = TrainConfig(optimizer=optimizer)  # type: ignore
    optimizers = build_optimizers(model, settings)
    ids = torch.randint(config.vocab_size, (2, 8))
    F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    for each in optimizers:
        each.step()
    real = sum(
        value.untyped_storage().nbytes()
        for each in optimizers
        for state in each.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    )
    memory = training_memory(config, batch=2, context=8, optimizer=optimizer)  # type: ignore
    assert memory.optimizer == pytest.approx(real, rel=0.01)
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    assert memory.gradients == gradients
    assert memory.weights == sum(p.nbytes for p in model.parameters())


def test_a_running_mean_costs_the_weights_once_more() -> None:
    plain = training_memory(SMALL, batch=1, context=8)
    averaged = training_memory(SMALL, batch=1, context=8, average=True)
    assert averaged.total - plain.total == plain.weights == averaged.average


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("texts", [1, 3])
def test_the_cache_is_what_the_real_one_holds(variant: str, texts: int) -> None:
    config = VARIANTS[variant]
    cache = GPT(config).new_cache(texts)
    real = sum(t.nbytes for t in (*cache.keys, *cache.values))
    assert cache_bytes(config, texts, config.context_length, "float32") == real


def test_shared_keys_save_their_share() -> None:
    config = preset("llama-7b")
    grouped = replace(config, n_kv_heads=8)
    many, few = (
        serving_memory(c, texts=1, context=2048, dtype="bfloat16") for c in (config, grouped)
    )
    # Touvron et al. 2023: 32 layers, 32 heads of 128; 2 bytes, keys and values.
    assert many.cache == many.cache_multi_head == 2 * 32 * 32 * 128 * 2048 * 2
    assert few.cache_multi_head == many.cache == 4 * few.cache
    assert many.total == many.weights["bfloat16"] + many.cache
    assert many.weights["int4"] * 8 == many.weights["float32"]
