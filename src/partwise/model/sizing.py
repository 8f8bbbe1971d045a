"""How large a model is: parameters, operations, memory, time, and the tokens that it deserves.

All of it is arithmetic over `ModelConfig` or `Seq2SeqConfig`; no tensor is made. Of an
encoder-decoder, a token is one of the target with one of the source, both texts equally long.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from partwise.errors import ConfigError
from partwise.messages import Notice
from partwise.model import explanation
from partwise.model.accelerators import accelerator
from partwise.model.config import ModelConfig
from partwise.model.flops import TRAINING, decode_flops, forward_flops, unmasked_scores
from partwise.model.memory import (
    BYTES,
    Dtype,
    Optimizer,
    ServingMemory,
    TrainingMemory,
    cache_bytes,
    serving_memory,
    training_memory,
)
from partwise.model.parameters import approximation, approximation_gap, parameters_by_part
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
from partwise.settings import at_least_one, check, option

# Tokens a parameter at which more parameters and more tokens pay equally for the same operations.
# Source: Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models", table 3.
OPTIMAL_TOKENS = 20


@dataclass(frozen=True)
class Workload:
    """What the model is asked to do, and on what.

    Raises:
        ConfigError: a value outside its range, or an unknown accelerator.
    """

    batch_size: int = option(64, "sequences computed at once in training")
    context: int | None = option(None, "tokens a sequence; none: the model's context_length")
    optimizer: Optimizer = option("adamw", "AdamW, or Muon for matrices with AdamW for the rest")
    ema: bool = option(False, "a running mean of the weights is kept")
    dtype: Dtype = option("bfloat16", "numbers of matrix products in training, of all in serving")
    tokens: int | None = option(None, "tokens to train on; none: 20 a parameter")
    texts: int = option(1, "sequences served at once")
    accelerator: str | None = option("A100", "accelerator to train on; none: this machine")
    utilisation: float = option(0.4, "share of the peak speed that training reaches")

    def __post_init__(self) -> None:
        check(self)
        at_least_one(self, "batch_size", "context", "tokens", "texts")
        if not 0 < self.utilisation <= 1:
            raise ConfigError(
                "utilisation={value} is not a share; give more than 0 and at most 1",
                value=self.utilisation,
            )
        if self.accelerator is not None:
            accelerator(self.accelerator)


@dataclass(frozen=True)
class Speed:
    """How long training takes, and how fast text can come.

    Args:
        hardware: the accelerator's name, or "here".
        peak_flops: operations/s at best.
        utilisation: share of it that training is taken to reach.
        hours: for the tokens of the workload.
        memory: bytes that the hardware has, if known.
        fits: whether training fits that memory, with all activations kept; None if not known.
        fits_checkpointed: the same with blocks computed again.
        decode_tokens: tokens/s of one text at best, as every weight is read for each; None where
            the memory's speed is not known.
    """

    hardware: str
    peak_flops: float
    utilisation: float
    hours: float
    memory: int | None = None
    fits: bool | None = None
    fits_checkpointed: bool | None = None
    decode_tokens: float | None = None


@dataclass(frozen=True)
class Size:
    """Everything that `size` finds.

    Args:
        config, workload: what was asked.
        context: tokens a sequence.
        parameters: exact count.
        parameters_by_part: see `parameters.parameters_by_part`, or `seq2seq_parameters`.
        approximation_12nd2: 12 N d^2.
        approximation_gap: what it misses, by source; see `parameters.approximation_gap`.
        shares: of all parameters and of a forward pass's operations, in attention and feed-forward.
        flops_per_token: `forward` and `training`; `training_checkpointed` when blocks are computed
            again; the forward pass's `attention` matrices, those of `cross_attention` where there
            is any, `attention_scores` (the quadratic term, causal: half), `feedforward` and `head`;
            `attention_scores_unmasked` (not halved); `decode` (one more token at the end of a full
            context).
        training, serving: memory in bytes.
        compute_optimal_tokens: 20 a parameter.
        tokens: of the training whose time is given.
        speed: on the accelerator, or on this machine; None without one and without a measurement.
    """

    config: ModelConfig | Seq2SeqConfig
    workload: Workload
    context: int
    parameters: int
    parameters_by_part: dict[str, int]
    approximation_12nd2: int
    approximation_gap: dict[str, int]
    shares: dict[str, float]
    flops_per_token: dict[str, int]
    training: TrainingMemory
    serving: ServingMemory
    compute_optimal_tokens: int
    tokens: int
    speed: Speed | None

    @property
    def approximation_error(self) -> float:
        """How far 12 N d^2 is from the exact count, as a share of it; negative: too small."""
        return self.approximation_12nd2 / self.parameters - 1

    def notices(self) -> tuple[Notice, ...]:
        """In words: where 12 N d^2 goes wrong, and what each figure takes for granted."""
        name = self.workload.accelerator
        two = isinstance(self.config, Seq2SeqConfig)
        # The blocks of both sides are alike but for their mask and the decoder's cross-attention.
        config = self.config.decoder if isinstance(self.config, Seq2SeqConfig) else self.config
        return (
            *explanation.of_approximation(
                config, self.parameters, self.approximation_12nd2, self.approximation_gap
            ),
            *explanation.of_operations(config, self.context, two_texts=two),
            *explanation.of_training(
                self.compute_optimal_tokens,
                OPTIMAL_TOKENS,
                tokens=self.tokens,
                hardware=None if name is None else accelerator(name),
                peak_flops=None if self.speed is None else self.speed.peak_flops,
                utilisation=self.workload.utilisation,
                two_texts=two,
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; notices in the reader's language."""
        training = dataclasses.asdict(self.training)
        training["total"] = self.training.total
        training["total_checkpointed"] = self.training.total_checkpointed
        return {
            "parameters": self.parameters,
            "parameters_by_part": self.parameters_by_part,
            "approximation_12nd2": self.approximation_12nd2,
            "approximation_error": self.approximation_error,
            "approximation_gap": self.approximation_gap,
            "shares": self.shares,
            "flops_per_token": self.flops_per_token,
            "memory": {"training": training, "serving": dataclasses.asdict(self.serving)},
            "compute_optimal_tokens": self.compute_optimal_tokens,
            "tokens": self.tokens,
            "training_flops": self.tokens * self.flops_per_token["training"],
            "speed": None if self.speed is None else dataclasses.asdict(self.speed),
            "context": self.context,
            "workload": dataclasses.asdict(self.workload),
            "notices": [str(notice) for notice in self.notices()],
        }


def size(
    config: ModelConfig | Seq2SeqConfig,
    workload: Workload | None = None,
    *,
    here_flops: float | None = None,
    here_bandwidth: float | None = None,
) -> Size:
    """How large the model is and what it costs.

    Args:
        config: any model; one of 540 billion parameters takes no longer than a small one.
        workload: batch, context, optimizer, hardware; the defaults when None.
        here_flops: this machine's measured speed in matrix products (operations/s), used when the
            workload names no accelerator.
        here_bandwidth: this machine's measured memory speed (bytes/s).

    Raises:
        ConfigError: a context that the model cannot read.
    """
    workload = Workload() if workload is None else workload
    context = config.context_length if workload.context is None else workload.context
    endless = isinstance(config, ModelConfig) and config.past_context
    if context > config.context_length and not endless:
        raise ConfigError(
            "context={context} is longer than the model's context_length={context_length}; give "
            "{context_length} or less",
            context=context,
            context_length=config.context_length,
        )
    if isinstance(config, Seq2SeqConfig):
        by_part, gap = seq2seq_parameters(config), seq2seq_gap(config)
        estimate, flops = seq2seq_approximation(config), _pair_flops(config, context)
        read = seq2seq_bytes_read(config, context, workload.dtype)
    else:
        by_part, gap = parameters_by_part(config), approximation_gap(config)
        estimate, flops = approximation(config), _flops(config, context)
        read = _bytes_read(config, sum(by_part.values()), context, workload.dtype)
    training, serving = _training(config, workload, context), _serving(config, workload, context)
    count = sum(by_part.values())
    optimal = OPTIMAL_TOKENS * count
    tokens = optimal if workload.tokens is None else workload.tokens
    speed = None
    if workload.accelerator is not None:
        chip = accelerator(workload.accelerator)
        speed = Speed(
            chip.name,
            chip.flops,
            workload.utilisation,
            hours(tokens * flops["training"], chip.flops * workload.utilisation),
            chip.memory,
            training.total <= chip.memory,
            training.total_checkpointed <= chip.memory,
            chip.bandwidth / read,
        )
    elif here_flops is not None:
        speed = Speed(
            "here",
            here_flops,
            workload.utilisation,
            hours(tokens * flops["training"], here_flops * workload.utilisation),
            decode_tokens=None if here_bandwidth is None else here_bandwidth / read,
        )
    return Size(
        config=config,
        workload=workload,
        context=context,
        parameters=count,
        parameters_by_part=by_part,
        approximation_12nd2=estimate,
        approximation_gap=gap,
        shares=_shares(by_part, flops),
        flops_per_token=flops,
        training=training,
        serving=serving,
        compute_optimal_tokens=optimal,
        tokens=tokens,
        speed=speed,
    )


def hours(operations: float, per_second: float) -> float:
    """Operations as hours of work."""
    return operations / per_second / 3600


def _training(
    config: ModelConfig | Seq2SeqConfig, workload: Workload, context: int
) -> TrainingMemory:
    measure: Callable[..., TrainingMemory] = (
        seq2seq_training_memory if isinstance(config, Seq2SeqConfig) else training_memory
    )
    return measure(
        config,
        batch=workload.batch_size,
        context=context,
        optimizer=workload.optimizer,
        average=workload.ema,
        dtype=workload.dtype,
        kernels="plain" if workload.accelerator is None else "fused",
    )


def _serving(
    config: ModelConfig | Seq2SeqConfig, workload: Workload, context: int
) -> ServingMemory:
    measure: Callable[..., ServingMemory] = (
        seq2seq_serving_memory if isinstance(config, Seq2SeqConfig) else serving_memory
    )
    return measure(config, texts=workload.texts, context=context, dtype=workload.dtype)


def _flops(config: ModelConfig, context: int) -> dict[str, int]:
    return {
        **_passes(forward_flops(config, context)),
        "attention_scores_unmasked": unmasked_scores(config, context),
        "decode": decode_flops(config, context - 1),
    }


def _pair_flops(config: Seq2SeqConfig, context: int) -> dict[str, int]:
    return {
        **_passes(seq2seq_flops(config, context)),
        "attention_scores_unmasked": seq2seq_unmasked_scores(config, context),
        "decode": seq2seq_decode_flops(config, context - 1, context),
    }


def _passes(parts: dict[str, int]) -> dict[str, int]:
    forward = sum(parts.values())
    return {
        "forward": forward,
        "training": TRAINING * forward,
        # Everything but the output layer runs forward once more.
        "training_checkpointed": (TRAINING + 1) * forward - parts["head"],
        **parts,
    }


def _shares(by_part: dict[str, int], flops: dict[str, int]) -> dict[str, float]:
    count, forward = sum(by_part.values()), flops["forward"]
    attention = ("attention", "cross_attention")
    return {
        "attention_parameters": sum(by_part.get(name, 0) for name in attention) / count,
        "feedforward_parameters": by_part["feedforward"] / count,
        "attention_flops": sum(flops.get(name, 0) for name in (*attention, "attention_scores"))
        / forward,
        "feedforward_flops": flops["feedforward"] / forward,
    }


def _bytes_read(config: ModelConfig, count: int, context: int, dtype: Dtype) -> float:
    """What one more token is computed from: all weights, and a cache that is half full."""
    return BYTES[dtype] * count + cache_bytes(config, 1, math.ceil(context / 2), dtype)
