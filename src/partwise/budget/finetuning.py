"""What is chosen for a training that begins with a trained model, each choice with its reason.

| | a run | a model made elsewhere |
|---|---|---|
| peak rate, all weights | 0.3 of the run's own | 0.1 of `rate_for` |
| peak rate, LoRA | the run's own | `rate_for` |
| steps | 3 readings of the text, from 100 to 2,000 | the same |
| context | the model's, at most 1,024 tokens | the same |

A model that is trained on is easily made to forget, so its weights move slowly. Additions start at
zero beside weights that stay, and take the rate of a first training; that LoRA asks for about ten
times the rate of all weights is also what Schulman et al. found (2025, "LoRA Without Regret").
"""

import math
from collections.abc import Set
from dataclasses import replace

from partwise.budget.choices import (
    LENGTHS,
    STEPS,
    TOKENS_A_STEP,
    Chosen,
    choose,
    fit_to_text,
    rate_for,
)
from partwise.budget.recipes import Recipe
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.lora_config import LoraConfig
from partwise.model.parameters import count_parameters
from partwise.training.config import TrainConfig

# The share of the first training's peak rate at which all weights are trained on.
GENTLER = 0.3

# The same of `rate_for`, for models of which only the size is known; those are trained long.
GENTLER_ELSEWHERE = 0.1

# The text is read this often, but for no fewer steps than this.
READINGS = 3
FEWEST_STEPS = 100

# Longer sequences cost memory that few machines have, and few texts need them.
LONGEST_CONTEXT = 1024


def start_from(
    model: ModelConfig, train: TrainConfig | None, lora: LoraConfig | None = None
) -> Recipe:
    """The model and training that everything said is laid over.

    Args:
        model: the trained model's config.
        train: how it was trained; None where it was made elsewhere.
        lora: what is trained in place of its weights, if anything.
    """
    shorter = replace(model, context_length=min(model.context_length, LONGEST_CONTEXT))
    batch_size = max(1, TOKENS_A_STEP // shorter.context_length)
    first = train or TrainConfig(lr=rate_for(model), batch_size=batch_size)
    share = 1.0 if lora is not None and lora.on else share_of(train)
    gentler = replace(
        first,
        steps=STEPS,
        epochs=None,
        tokens=None,
        minutes=None,
        target_loss=None,
        short_context=None,  # what short texts teach, the model knows
        lr=_short(share * first.lr),
        muon_lr=_short(share * first.muon_lr),
    )
    return Recipe(shorter, gentler)


def share_of(train: TrainConfig | None) -> float:
    """The share of a first training's rate at which all weights are trained on."""
    return GENTLER_ELSEWHERE if train is None else GENTLER


def choose_further(
    begin: Recipe,
    model: ModelConfig,
    train: TrainConfig,
    *,
    name: str,
    earlier: ModelConfig,
    elsewhere: bool,
    lora: LoraConfig,
    said_of_model: Set[str],
    said_of_training: Set[str],
    train_tokens: int,
    validation_tokens: int,
) -> Chosen:
    """All that the user left open.

    Args:
        begin: what `start_from` gave.
        model, train: the same with everything said laid over it.
        name: the trained model's.
        earlier: its config.
        elsewhere: it was not trained here.
        lora: what is trained in place of its weights, if anything.
        said_of_model, said_of_training: fields that the user named.
        train_tokens, validation_tokens: tokens in each part of the text.
    """
    if not said_of_training & {"steps", *LENGTHS}:
        fitting, _ = fit_to_text(model, said_of_model, train_tokens, validation_tokens)
        reading = train_tokens / (train.batch_size * fitting.context_length)
        steps = min(STEPS, max(FEWEST_STEPS, math.ceil(READINGS * reading)))
        train = replace(train, steps=steps)
    chosen = choose(
        begin,
        model,
        train,
        name=name,
        fine_tuned=True,
        said_of_model=said_of_model,
        said_of_training=said_of_training,
        train_tokens=train_tokens,
        validation_tokens=validation_tokens,
        vocab_size=earlier.vocab_size,
    )
    notices = list(chosen.notices[:1])
    shortened = begin.model.context_length < earlier.context_length
    if shortened and "context_length" not in said_of_model:
        notices.append(
            Notice(
                "trained with a context of {context} tokens of the model's {before}, which costs "
                "less memory (--model.context-length)",
                context=begin.model.context_length,
                before=f"{earlier.context_length:,}",
            )
        )
    if lora.on:
        notices.append(_about_lora(chosen, lora))
    if "lr" not in said_of_training:
        notices.append(_about_rate(chosen, elsewhere, lora))
    return replace(chosen, notices=(*notices, *chosen.notices[1:]))


def _about_lora(chosen: Chosen, lora: LoraConfig) -> Notice:
    return Notice(
        "LoRA: {trained:,} parameters are trained in place of {all:,}, which stay as they are",
        trained=lora.parameters(chosen.model),
        all=count_parameters(chosen.model),
    )


def _about_rate(chosen: Chosen, elsewhere: bool, lora: LoraConfig) -> Notice:
    if lora.on:
        return Notice(
            "learning rate {lr:g}, that of a first training, as the additions are new (--lr)",
            lr=chosen.train.lr,
        )
    if elsewhere:
        return Notice(
            "learning rate {lr:g}, {share:.0%} of what suits a new model of this size, so that "
            "what was learned is kept (--lr)",
            lr=chosen.train.lr,
            share=GENTLER_ELSEWHERE,
        )
    return Notice(
        "learning rate {lr:g}, {share:.0%} of the first training's, so that what was learned is "
        "kept (--lr)",
        lr=chosen.train.lr,
        share=GENTLER,
    )


def _short(rate: float) -> float:
    return float(f"{rate:.1e}")
