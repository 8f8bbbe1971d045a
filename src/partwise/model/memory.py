"""Bytes to train a model (weights, gradients, optimizer, activations) and to serve it (KV cache).

While training, each number is a 4-byte weight with a 4-byte gradient; AdamW remembers two more for
it, Muon one. Matrix products may run in 2 bytes, on copies of the matrices. What a step needs for a
moment besides (the largest intermediate gradient, a library's workspace) is not counted.

Source: the arithmetic is that of Rajbhandari et al. 2020, "ZeRO", section 3.
"""

from dataclasses import dataclass
from typing import Literal

from partwise.model.activations import Activations, Bytes, Kernels, activations
from partwise.model.config import ModelConfig
from partwise.model.parameters import (
    attention_matrices,
    count_parameters,
    feedforward_matrices,
)

Optimizer = Literal["adamw", "muon"]
Dtype = Literal["float32", "bfloat16"]

FULL = 4  # bytes of a float32
BYTES: dict[str, float] = {"float32": 4, "bfloat16": 2, "int8": 1, "int4": 0.5}


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes held while a model trains.

    Args:
        weights: in float32.
        gradients: in float32.
        optimizer: what it remembers from step to step.
        average: the running mean of the weights, if it is kept.
        copies: matrices in the shorter format of the products.
        activations: kept from the forward for the backward pass.
        activations_checkpointed: the same when each block is computed again in the backward pass.
    """

    weights: int
    gradients: int
    optimizer: int
    average: int
    copies: int
    activations: int
    activations_checkpointed: int

    @property
    def total(self) -> int:
        """Everything, with all activations kept."""
        return self._lasting + self.activations

    @property
    def total_checkpointed(self) -> int:
        """Everything, with blocks computed again."""
        return self._lasting + self.activations_checkpointed

    @property
    def _lasting(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.average + self.copies


@dataclass(frozen=True)
class ServingMemory:
    """Bytes held while a model speaks.

    Args:
        weights: by number format.
        cache: keys and values of every text.
        cache_multi_head: what they would be if every head had its own.
        total: weights and cache in the format asked for.
    """

    weights: dict[str, int]
    cache: int
    cache_multi_head: int
    total: int


def training_memory(
    config: ModelConfig,
    *,
    batch: int,
    context: int,
    optimizer: Optimizer = "adamw",
    average: bool = False,
    dtype: Dtype = "float32",
    kernels: Kernels = "plain",
) -> TrainingMemory:
    """What training holds.

    Args:
        config: the model.
        batch: texts computed at once.
        context: tokens a text.
        optimizer: AdamW for all, or Muon for the blocks' matrices and AdamW for the rest.
        average: a running mean of the weights (EMA) is kept.
        dtype: what matrix products are computed in.
        kernels: see `activations`.
    """
    matrices = config.n_layers * (attention_matrices(config) + feedforward_matrices(config))
    return held(
        count_parameters(config),
        matrices,
        config.vocab_size * config.d_model,
        activations(config, batch, context, precision=precision(dtype), kernels=kernels),
        optimizer=optimizer,
        average=average,
        dtype=dtype,
    )


def precision(dtype: Dtype) -> Bytes:
    """Bytes of a number in matrix products."""
    return 4 if dtype == "float32" else 2


def held(
    count: int,
    matrices: int,
    head: int,
    kept: Activations,
    *,
    optimizer: Optimizer,
    average: bool,
    dtype: Dtype,
) -> TrainingMemory:
    """What training holds, of a model of any kind.

    Args:
        count: all numbers that it learns.
        matrices: those in the matrices of its blocks.
        head: those in the matrix of its output layer, tied or not.
        kept: its activations.
        optimizer, average, dtype: see `training_memory`.
    """
    by_muon = matrices if optimizer == "muon" else 0
    copied = 0 if dtype == "float32" else matrices + head
    return TrainingMemory(
        weights=FULL * count,
        gradients=FULL * count,
        optimizer=FULL * by_muon + 2 * FULL * (count - by_muon),
        average=FULL * count if average else 0,
        copies=precision(dtype) * copied,
        activations=kept.kept,
        activations_checkpointed=kept.checkpointed,
    )


def serving_memory(
    config: ModelConfig, *, texts: int, context: int, dtype: Dtype = "bfloat16"
) -> ServingMemory:
    """What speaking holds.

    Args:
        config: the model.
        texts: how many at once.
        context: tokens of each that are kept.
        dtype: of weights and cache.
    """
    cache = cache_bytes(config, texts, context, dtype)
    return served(count_parameters(config), cache, config, dtype)


def served(count: int, cache: int, config: ModelConfig, dtype: Dtype) -> ServingMemory:
    """What speaking holds, of a model of any kind.

    Args:
        count: all numbers that it learned.
        cache: bytes of keys and values.
        config: says how many heads share them.
        dtype: of weights and cache.
    """
    weights = {name: round(size * count) for name, size in BYTES.items()}
    shared = config.n_heads // config.key_value_heads
    return ServingMemory(weights, cache, cache * shared, weights[dtype] + cache)


def cache_bytes(config: ModelConfig, texts: int, context: int, dtype: Dtype) -> int:
    """2 (keys, values) x layers x key-value heads x head size x tokens x texts x bytes.

    A window whose positions have no end needs room for the window alone.
    """
    if not config.attention or not config.causal:
        return 0
    slots = context
    if config.past_context and config.window is not None:
        slots = min(context, config.window)
    each = 2 * config.n_layers * config.key_value_heads * config.head_size
    return texts * slots * each * int(BYTES[dtype])
