"""What holds for every model, and the few choices of parts for which it cannot: one table.

The tests go through the covering set of models and hold every guarantee that is not excluded here;
where a row stands, they hold that it has to.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from partwise.messages import Notice
from partwise.model.config import ModelConfig

Guarantee = Literal[
    "causal",  # in training and in evaluation, no output depends on a later token
    "cached",  # reading a text token by token with a KV cache gives the logits of reading it whole
    "past_context",  # the cached text may be longer than context_length, without end
    "accumulation",  # gradients of a batch's parts add up to the whole batch's (dropout aside)
    "saved",  # weights that are saved and loaded give the same logits, bit for bit
    "deterministic_evaluation",  # in evaluation, the same ids give the same logits, bit for bit
    "compiled",  # torch.compile changes no logit by more than rounding
]
GUARANTEES: tuple[Guarantee, ...] = get_args(Guarantee)


@dataclass(frozen=True)
class Exclusion:
    """`guarantee` does not hold for the models of which `applies` is true, for this `reason`."""

    guarantee: Guarantee
    applies: Callable[[ModelConfig], bool]
    reason: Notice


def has_batchnorm(config: ModelConfig) -> bool:
    """Whether a BatchNorm stands anywhere in the model."""
    return config.norm == "batchnorm" and (config.norm_placement != "none" or config.final_norm)


EXCLUSIONS: tuple[Exclusion, ...] = (
    Exclusion(
        "causal",
        lambda config: config.attention and not config.causal,
        Notice("causal=false: attention sees later tokens too, and is meant to"),
    ),
    Exclusion(
        "causal",
        has_batchnorm,
        Notice("BatchNorm: in training its mean and variance are taken over later tokens too"),
    ),
    Exclusion(
        "cached",
        lambda config: not config.causal,
        Notice("causal=false: a new token would change what earlier ones have seen"),
    ),
    Exclusion(
        "past_context",
        lambda config: not config.causal,
        Notice("causal=false: there is no cache to go on with"),
    ),
    Exclusion(
        "past_context",
        lambda config: config.window is None,
        Notice("window=none: every token stays in the cache, which is full at context_length"),
    ),
    Exclusion(
        "past_context",
        lambda config: config.position in ("learned", "sinusoidal"),
        Notice("learned and sinusoidal positions are a table that ends at context_length"),
    ),
    Exclusion(
        "accumulation",
        has_batchnorm,
        Notice("BatchNorm: each part of a batch has a mean and a variance of its own"),
    ),
)


def excluded(guarantee: Guarantee, config: ModelConfig) -> str | None:
    """Why `guarantee` does not hold for the model, in the reader's language; None: it holds."""
    for row in EXCLUSIONS:
        if row.guarantee == guarantee and row.applies(config):
            return str(row.reason)
    return None
