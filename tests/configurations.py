"""A small set of models in which every two choices of parts that can meet do meet (pairwise).

A fault of a part alone, or of two parts together, shows in at least one of these; going through
every combination would take 10^15 models. The set is the same each time it is made.
"""

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from partwise.errors import ConfigError
from partwise.model.config import ModelConfig

# Sizes are tiny and unlike each other, so that a mixed-up axis cannot fit by chance.
LEVELS: dict[str, tuple[Any, ...]] = {
    "vocab_size": (11, 7),
    "context_length": (10, 6),
    "n_layers": (2, 1),
    "d_model": (16, 24),
    "attention": (True, False),
    "n_heads": (4, 1, 3),
    "n_kv_heads": (None, 1, 2),
    "head_dim": (None, 6),
    "output_projection": (True, False),
    "causal": (True, False),
    "window": (None, 3),
    "qk_norm": (False, True),
    "qkv_bias": (True, False),
    "projection_bias": (True, False),
    "feedforward": ("gelu", "relu", "gelu_tanh", "relu2", "swiglu", "none"),
    "d_ff": (None, 20),
    "feedforward_bias": (True, False),
    "feedforward_output": (True, False),
    "parallel": (False, True),
    "norm": ("layernorm", "rmsnorm", "batchnorm", "none"),
    "norm_placement": ("pre", "post", "none"),
    "norm_bias": (True, False),
    "norm_eps": (1e-5, 1e-2),
    "final_norm": (True, False),
    "residual": (True, False),
    "position": ("learned", "sinusoidal", "rotary", "alibi", "none"),
    "rope_base": (10000.0, 50.0),
    "rope_scaling": ("none", "linear", "llama3"),
    "rope_factor": (4.0, 1.5),
    "rope_low_frequency_factor": (1.0, 0.25),
    "rope_high_frequency_factor": (4.0, 1.5),
    "rope_original_context": (24, 8192),
    "dropout": (0.0, 0.2),
    "attention_dropout": (None, 0.3),
    "embedding_dropout": (0.0, 0.1),
    "tie_embeddings": (True, False),
    "head_bias": (False, True),
    "logit_soft_cap": (None, 20.0),
    "scale_embeddings": (False, True),
    "ngram": (1, 2, 3),
    "ngram_rows": (None, 13),
    "embedding_shortcut": (False, True),
    "initialisation": ("gpt2", "torch", "normal", "fan_in", "zero_projection"),
    "init_std": (0.02, 0.1),
}

_ATTENTION = {"attention": (True,)}
_FEEDFORWARD = {"feedforward": ("gelu", "relu", "gelu_tanh", "relu2", "swiglu")}
_NORM = {"norm": ("layernorm", "rmsnorm", "batchnorm")}
_ROTARY = {**_ATTENTION, "position": ("rotary",)}
_LLAMA3 = {**_ROTARY, "rope_scaling": ("llama3",)}

# A field does something only beside these values; a pair counts only where both fields do.
NEEDS: dict[str, dict[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("n_heads", "n_kv_heads", "head_dim", "output_projection"), _ATTENTION),
    **dict.fromkeys(("causal", "window", "qk_norm", "qkv_bias"), _ATTENTION),
    "attention_dropout": _ATTENTION,
    "projection_bias": {**_ATTENTION, "output_projection": (True,)},
    **dict.fromkeys(("d_ff", "feedforward_bias", "feedforward_output"), _FEEDFORWARD),
    "norm_placement": _NORM,
    "final_norm": _NORM,
    "norm_bias": {"norm": ("layernorm", "batchnorm"), "norm_placement": ("pre", "post")},
    "norm_eps": {**_NORM, "norm_placement": ("pre", "post")},
    "rope_base": _ROTARY,
    "rope_scaling": _ROTARY,
    "rope_factor": {**_ROTARY, "rope_scaling": ("linear", "llama3")},
    "rope_low_frequency_factor": _LLAMA3,
    "rope_high_frequency_factor": _LLAMA3,
    "rope_original_context": _LLAMA3,
    "ngram_rows": {"ngram": (2, 3)},
    "init_std": {"initialisation": ("gpt2", "normal")},
}

Row = dict[str, Any]
Choice = tuple[str, Any]


def is_awake(field: str, row: Mapping[str, Any]) -> bool:
    """Whether `field` does anything in this model."""
    return all(row[other] in values for other, values in NEEDS.get(field, {}).items())


def choices(row: Mapping[str, Any]) -> list[Choice]:
    """The choices that do something in this model."""
    return [(field, row[field]) for field in LEVELS if is_awake(field, row)]


def is_valid(row: Mapping[str, Any]) -> bool:
    """Whether `ModelConfig` accepts the model."""
    try:
        ModelConfig(**row)
    except ConfigError:
        return False
    return True


def contradicts(pair: tuple[Choice, Choice]) -> bool:
    """Whether one choice of the pair puts the other to sleep."""
    (field, value), (other, another) = pair
    first, second = NEEDS.get(field, {}), NEEDS.get(other, {})
    # Only what a field needs can put it to sleep.
    return value not in second.get(field, (value,)) or another not in first.get(other, (another,))


def reach(pair: tuple[Choice, Choice]) -> Row | None:
    """A valid model in which both choices do something, or None when no single change makes one."""
    row = {field: values[0] for field, values in LEVELS.items()}
    for field, _ in pair:
        for other, values in NEEDS.get(field, {}).items():
            row[other] = next(v for v in LEVELS[other] if v in values)
    changes = [{field: v} for field in LEVELS if field not in dict(pair) for v in LEVELS[field]]
    for change in ({}, *changes):
        new = row | dict(pair) | change
        if all(is_awake(field, new) for field, _ in pair) and is_valid(new):
            return new
    return None


def covering_set() -> tuple[list[Row], list[tuple[Choice, Choice]]]:
    """Greedy pairwise cover: start each model from a pair not yet met, then let every other field
    take the value that makes most new pairs meet.

    Returns:
        The models, and the pairs that `ModelConfig` keeps apart.
    """
    chance = random.Random(0)
    number = {
        choice: index
        for index, choice in enumerate((f, v) for f, values in LEVELS.items() for v in values)
    }
    names = list(number)
    missing = dict.fromkeys(range(len(names)), 0)  # choice -> bits of those it has yet to meet
    for a, (field, _) in enumerate(names):
        for b, (other, _) in enumerate(names):
            if field != other:
                missing[a] |= 1 << b

    def gain(row: Row) -> int:
        here = [number[choice] for choice in choices(row)]
        bits = sum(1 << a for a in here)
        return sum((missing[a] & bits).bit_count() for a in here)

    rows: list[Row] = []
    never: list[tuple[Choice, Choice]] = []
    for a, first in enumerate(names):
        for b in range(a + 1, len(names)):
            if not missing[a] >> b & 1:
                continue
            pair = (first, names[b])
            row = None if contradicts(pair) else reach(pair)
            if row is None:
                if not contradicts(pair):
                    never.append(pair)
                missing[a] &= ~(1 << b)
                missing[b] &= ~(1 << a)
                continue
            others = [field for field in LEVELS if field not in dict(pair)]
            for _ in range(2):
                chance.shuffle(others)
                for field in others:
                    row = max(
                        (row | {field: value} for value in LEVELS[field]),
                        key=lambda new: (
                            all(is_awake(name, new) for name, _ in pair) and is_valid(new),
                            gain(new),
                        ),
                    )
            rows.append(row)
            here = [number[choice] for choice in choices(row)]
            bits = sum(1 << c for c in here)
            for c in here:
                missing[c] &= ~bits
    return rows, never


ROWS, NEVER = covering_set()
CONFIGURATIONS = tuple(ModelConfig(**row) for row in ROWS)


def name(config: ModelConfig) -> str:
    """What a test's title says of a model."""
    return "-".join((config.norm, config.position, config.feedforward, f"{config.n_heads}heads"))


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Fill every weight, bias and running statistic, so that nothing hides behind ones and zeros.

    Matrices keep the size of what passes through them, so that the numbers stay comparable.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            if key.endswith("running_var") or ("norm" in key and key.endswith("weight")):
                noise = 0.5 + torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
            elif tensor.dim() == 2 and "embedding" not in key:
                noise /= tensor.shape[1] ** 0.5
            tensor.copy_(noise)
