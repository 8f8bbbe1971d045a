"""The size of an encoder-decoder: parameters by part, operations, and bytes that torch keeps."""

import json
from dataclasses import replace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from partwise.errors import ConfigError
from partwise.messages import LANGUAGES, use_language
from partwise.model.seq2seq import Seq2Seq
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.model.seq2seq_costs import (
    seq2seq_bytes_read,
    seq2seq_decode_flops,
    seq2seq_flops,
    seq2seq_serving_memory,
    seq2seq_training_memory,
    seq2seq_unmasked_scores,
)
from partwise.model.seq2seq_parameters import (
    seq2seq_approximation,
    seq2seq_gap,
    seq2seq_parameters,
)
from partwise.model.seq2seq_presets import SEQ2SEQ_PRESETS, seq2seq_preset
from partwise.model.sizing import Workload, size
from partwise.training.config import TrainConfig
from partwise.training.optim import build_optimizers

SMALL = Seq2SeqConfig(
    vocab_size=50, context_length=32, d_model=48, n_heads=4, dropout=0.0, embedding_dropout=0.0
)

VARIANTS = {
    "original": SMALL,
    "uneven": replace(SMALL, n_encoder_layers=3, n_decoder_layers=1),
    "dropout": replace(SMALL, dropout=0.1, embedding_dropout=0.1),
    "attention dropout": replace(SMALL, attention_dropout=0.1),
    "before": replace(SMALL, norm_placement="pre"),
    "modern": replace(
        SMALL, position="rotary", norm="rmsnorm", feedforward="swiglu", n_kv_heads=2,
        tie_embeddings=False, norm_placement="pre", qk_norm=True,
    ),
    "apart": replace(
        SMALL, position="learned", share_embeddings=False, feedforward="gelu", attention_bias=True,
        head_bias=True,
    ),
    "bare": replace(SMALL, norm="none", feedforward="none", n_kv_heads=1, head_dim=8),
    "no shift": replace(SMALL, norm_bias=False, scale_embeddings=False, final_norm=True),
}  # fmt: skip


def really_kept(config: Seq2SeqConfig, batch: int, context: int, dtype: torch.dtype) -> int:
    """Bytes of all storages that a training step's graph holds, each once, weights excluded."""
    model = Seq2Seq(config).train()
    weights = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    source, target, wanted = torch.randint(config.pad, (3, batch, context)).unbind()
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
            logits = model(source.contiguous(), target.contiguous())
        F.cross_entropy(logits.float().flatten(0, 1), wanted.flatten())
    return sum(sizes.values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_part_is_counted_exactly(variant: str) -> None:
    """Against the real model, its parameters told apart by their names."""
    config = VARIANTS[variant]
    parts = dict.fromkeys(seq2seq_parameters(config), 0)
    with torch.device("meta"):
        model = Seq2Seq(config)
    for name, parameter in model.named_parameters():
        word = next(
            word
            for word in ("norm", "position_embedding", "embedding", "head", "cross_attention",
                         "attention", "feedforward")
            if word in name
        )  # fmt: skip
        part = {"norm": "norms", "position_embedding": "position"}.get(word, word)
        parts[part] += parameter.numel()
    assert parts == seq2seq_parameters(config)
    assert seq2seq_approximation(config) + sum(seq2seq_gap(config).values()) == sum(parts.values())


def test_the_originals_parts_by_hand() -> None:
    """Vaswani et al. (2017), table 3: N = 6, d_model = 512, d_ff = 2048 and 1024, 4096."""
    for name, width, inner in (("transformer-base", 512, 2048), ("transformer-big", 1024, 4096)):
        feedforward = width * inner + inner + inner * width + width
        assert seq2seq_parameters(seq2seq_preset(name)) == {
            "embedding": 37_000 * width,
            "position": 0,
            "attention": 12 * 4 * width**2,
            "cross_attention": 6 * 4 * width**2,
            "feedforward": 12 * feedforward,
            "norms": (6 * 2 + 6 * 3) * 2 * width,
            "head": 0,
        }


@pytest.mark.parametrize("variant", ["original", "uneven", "modern", "bare"])
def test_operations_are_those_that_torch_counts(variant: str) -> None:
    """Torch counts what a kernel computes, the hidden half of the target's scores among it."""
    config, context = VARIANTS[variant], 12
    model = Seq2Seq(config, "plain").eval()
    source, target = torch.randint(config.pad, (2, 1, context)).unbind()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(source, target)
    parts = seq2seq_flops(config, context)
    matrices = sum(parts.values()) - parts["attention_scores"]
    counted = counter.get_total_flops()
    assert counted == context * (matrices + seq2seq_unmasked_scores(config, context))
    # The encoder and cross-attention look at everything, the target at (T + 1) / 2 of itself.
    layers = config.n_encoder_layers + config.n_decoder_layers
    seen = layers * context + config.n_decoder_layers * (context + 1) / 2
    each = 4 * config.n_heads * config.decoder.head_size
    assert parts["attention_scores"] == pytest.approx(each * seen)


@pytest.mark.parametrize("variant", ["original", "modern"])
def test_the_next_token_costs_what_torch_counts(variant: str) -> None:
    config = VARIANTS[variant]
    model = Seq2Seq(config, "plain").eval()
    source, target = torch.randint(config.pad, (1, 9)), torch.randint(config.pad, (1, 6))
    with torch.no_grad():
        cache = model.new_cache(source)
        model.decode(target[:, :5], cache=cache)
        with FlopCounterMode(display=False) as counter:
            model.decode(target[:, 5:], cache=cache)
        # A cache of `capacity` places is looked at whole, and masked.
        spare = cache.past.keys[0].shape[2] - 6
    each = 4 * config.n_heads * config.decoder.head_size * config.n_decoder_layers
    counted = counter.get_total_flops()
    assert counted - seq2seq_decode_flops(config, 5, 9) in (0, each * spare)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("batch", "context"), [(3, 32), (8, 12), (1, 7)])
def test_activations_are_what_torch_keeps(variant: str, batch: int, context: int) -> None:
    config = VARIANTS[variant]
    memory = seq2seq_training_memory(config, batch=batch, context=context)
    real = really_kept(config, batch, context, torch.float32)
    assert memory.activations == pytest.approx(real, rel=0.02)


@pytest.mark.parametrize("variant", VARIANTS)
def test_activations_and_copies_in_bfloat16(variant: str) -> None:
    config = VARIANTS[variant]
    memory = seq2seq_training_memory(config, batch=3, context=32, dtype="bfloat16")
    real = really_kept(config, 3, 32, torch.bfloat16)
    assert memory.activations + memory.copies == pytest.approx(real, rel=0.02)
    assert memory.activations_checkpointed < memory.activations


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("variant", ["original", "modern", "apart"])
def test_optimizer_memory(optimizer: str, variant: str) -> None:
    config = VARIANTS[variant]
    model = Seq2Seq(config)
    optimizers = build_optimizers(model, TrainConfig(optimizer=optimizer))  # type: ignore
    ids = torch.randint(config.pad, (2, 8))
    F.cross_entropy(model(ids, ids).flatten(0, 1), ids.flatten()).backward()
    for each in optimizers:
        each.step()
    real = sum(
        value.untyped_storage().nbytes()
        for each in optimizers
        for state in each.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    )
    memory = seq2seq_training_memory(config, batch=2, context=8, optimizer=optimizer)  # type: ignore
    assert memory.optimizer == pytest.approx(real, rel=0.01)
    assert memory.weights == sum(p.nbytes for p in model.parameters()) == memory.gradients


@pytest.mark.parametrize("variant", ["original", "modern", "bare"])
def test_the_cache_is_what_the_real_one_holds(variant: str) -> None:
    config = VARIANTS[variant]
    cache = Seq2Seq(config).new_cache(torch.randint(config.pad, (3, 32)))
    real = sum(t.nbytes for t in (*cache.past.keys, *cache.past.values))
    real += sum(t.nbytes for pair in cache.memory for t in pair)
    serving = seq2seq_serving_memory(config, texts=3, context=32, dtype="float32")
    assert serving.cache == real
    assert serving.cache_multi_head == real * config.n_heads // config.decoder.key_value_heads
    assert serving.total == serving.weights["float32"] + real


def test_the_encoder_is_not_read_for_each_token() -> None:
    config = seq2seq_preset("transformer-base")
    read = seq2seq_bytes_read(config, 512, "float32")
    # By hand: the embedding, six blocks without the matrices of keys and values of the source.
    block = 4 * 512**2 + 2 * 512**2 + (2 * 512 * 2048 + 2048 + 512) + 3 * 2 * 512
    cache = 2 * 6 * 512 * (512 + 256)
    assert read == 4 * (37_000 * 512 + 6 * block + cache)


@pytest.mark.parametrize("name", SEQ2SEQ_PRESETS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_preset_is_sized_and_explained(name: str, language: str) -> None:
    found = size(seq2seq_preset(name), Workload(batch_size=4, context=16))
    with use_language(language):  # type: ignore
        data = json.loads(json.dumps(found.as_dict()))
    assert data["parameters"] == sum(data["parameters_by_part"].values())
    gap = data["approximation_gap"]
    assert data["approximation_12nd2"] + sum(gap.values()) == data["parameters"]
    assert all(line and "{" not in line for line in data["notices"])
    assert len(data["notices"]) == 1 + sum(1 for count in gap.values() if count) + 2 + 2
    flops = data["flops_per_token"]
    assert flops["training"] == 3 * flops["forward"] and flops["decode"] < flops["forward"]
    # Matrices in blocks and the output layer are all that multiplies: 2 for each of their numbers.
    multiplied = flops["forward"] - flops["attention_scores"]
    config = seq2seq_preset(name)
    resting = gap["norms"] + gap["biases"]
    assert multiplied == 2 * (data["parameters"] - resting)
    assert data["shares"]["attention_parameters"] > 0.25 or config.vocab_size > 10_000


def test_a_context_that_the_model_cannot_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"context=600.*512"):
        size(seq2seq_preset("transformer-base"), Workload(context=600))
