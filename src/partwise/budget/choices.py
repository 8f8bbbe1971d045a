"""What is chosen for the user, each choice with its reason; pure functions of what is known.

Whatever was said stays as it was said.
"""

import math
from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any

from partwise.budget.recipes import RECIPES, Recipe, recipe
from partwise.errors import ConfigError
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.parameters import count_parameters
from partwise.model.presets import preset
from partwise.training.config import TrainConfig
from partwise.training.pieces import fitting
from partwise.training.plan import foreseen

DEFAULT = "small"

# A run of this many steps shows what a model can do, when nothing says how long it may take.
STEPS = 2000

# A step reads about this many tokens: small models gain from many steps rather than long ones.
TOKENS_A_STEP = 4096

# Limits that say how long a run is; the others say when it may end earlier.
LENGTHS = ("epochs", "tokens", "minutes")

# Steps below which a recipe of short texts first learns more from half its context.
FEW = 1000

# A run is looked at this often, unless that costs more than it tells.
EVALUATIONS = 8

# An evaluation costs a third of training on the same tokens; together they may take this share of
# the training.
EVALUATED_SHARE = 0.1

# More validation text than this tells little that a sample of it does not.
EVALUATED_TOKENS = 1 << 18


@dataclass(frozen=True)
class Chosen:
    """Settings and the lines that explain them."""

    model: ModelConfig
    train: TrainConfig
    notices: tuple[Notice, ...]


def start(preset_name: str | None, recipe_name: str | None) -> Recipe:
    """The model and training that everything said is laid over.

    Raises:
        ConfigError: an unknown name, or both given.
    """
    if preset_name is not None and recipe_name is not None:
        raise ConfigError(
            "--preset={preset} and --recipe={recipe} both choose the model; give one of them",
            preset=preset_name,
            recipe=recipe_name,
        )
    if recipe_name is not None:
        return recipe(recipe_name)
    if preset_name is None or preset_name in RECIPES:
        return recipe(preset_name or DEFAULT)
    model = preset(preset_name)
    batch_size = max(1, TOKENS_A_STEP // model.context_length)
    return Recipe(model, TrainConfig(steps=STEPS, batch_size=batch_size, lr=rate_for(model)))


def rate_for(model: ModelConfig) -> float:
    """`0.003239 - 0.0001395 ln(N)` for N parameters, to two digits: the peak rate of AdamW.

    Source: Kaplan et al., 2020, "Scaling Laws for Neural Language Models", appendix D.6.
    """
    rate = 0.003239 - 0.0001395 * math.log(count_parameters(model))
    return float(f"{max(rate, 1e-4):.1e}")


def fit_to_text(
    model: ModelConfig, said: Set[str], train_tokens: int, validation_tokens: int
) -> tuple[ModelConfig, list[Notice]]:
    """The model with a context that both parts of the text can fill.

    Args:
        model: the model.
        said: its fields that the user named; a context that was named is left for the text's own
            check to refuse.
        train_tokens, validation_tokens: tokens in each part.
    """
    longest = min(train_tokens, validation_tokens) - 1
    if "context_length" in said or longest < 1 or model.context_length <= longest:
        return model, []
    context = 1 << (longest.bit_length() - 1)
    shorter = replace(model, context_length=context)
    notice = Notice(
        "context of {context} tokens instead of {before}: the text's shorter part has "
        "{tokens} tokens",
        context=context,
        before=model.context_length,
        tokens=longest + 1,
    )
    return shorter, [notice]


def fit_to_steps(
    model: ModelConfig,
    begin: Recipe,
    train: TrainConfig,
    said_of_model: Set[str],
    said_of_training: Set[str],
    train_tokens: int,
) -> tuple[ModelConfig, list[Notice]]:
    """A recipe of short texts first in half its context, where its steps are few.

    Few steps read few of the whole texts, and the fewer texts there are in a step, the more of them
    it takes: docs/experiments.md has what that costs.

    Args:
        model: with a context that the text can fill.
        begin: the recipe.
        train: its training with everything said laid over it.
        said_of_model, said_of_training: fields that the user named.
        train_tokens: tokens of the training part.
    """
    short, context = begin.train.short_context, model.context_length
    if short is None or "context_length" in said_of_model or context < 4 * short:
        return model, []
    end = foreseen(_ends(train, said_of_training), train_tokens, train.batch_size * context)
    if end is None or end[0] >= FEW:
        return model, []
    notice = Notice(
        "context of {context} tokens instead of {before}: {steps:,} steps are few to learn a "
        "longer one",
        context=context // 2,
        before=context,
        steps=end[0],
    )
    return replace(model, context_length=context // 2), [notice]


def _ends(train: TrainConfig, said: Set[str]) -> TrainConfig:
    """The training with the lengths that were asked for; a recipe's own would cut them short."""
    if not said & {"steps", *LENGTHS}:
        return train
    others: dict[str, Any] = dict.fromkeys({"steps", "epochs", "tokens"} - said)
    return replace(train, **others)


def fit_training(
    train: TrainConfig, said: Set[str], context: int, train_tokens: int, validation_tokens: int
) -> tuple[TrainConfig, list[Notice]]:
    """The training with a length, and with evaluations that do not cost more than they tell.

    Args:
        train: the training, with everything said laid over it.
        said: its fields that the user named.
        context: tokens a sequence.
        train_tokens, validation_tokens: tokens in each part of the text.
    """
    notices = []
    train = _ends(train, said)
    steps = train.steps
    if steps is not None and "warmup_steps" not in said:
        train = replace(train, warmup_steps=min(train.warmup_steps, steps // 10))
    sample = train.eval_tokens or EVALUATED_TOKENS
    if "eval_tokens" not in said and validation_tokens > sample:
        train = replace(train, eval_tokens=sample)
        notices.append(
            Notice(
                "validation loss on a fixed sample of {sample:,} of {all:,} tokens, so that it "
                "takes little of the time (--train.eval-tokens)",
                sample=sample,
                all=validation_tokens,
            )
        )
    trained = train.batch_size * context
    # A recipe that is to be fast says it itself.
    if "eval_every" not in said and train.eval_every == TrainConfig.eval_every:
        evaluated = min(validation_tokens, train.eval_tokens or validation_tokens)
        often = train.eval_every if steps is None else math.ceil(steps / EVALUATIONS)
        rarely = math.ceil(evaluated / 3 / EVALUATED_SHARE / trained)
        every = max(1, rarely, min(train.eval_every, often))
        train = replace(train, eval_every=every if steps is None else min(every, steps))
    if not said & {"steps", "target_loss", "patience", *LENGTHS} and steps is not None:
        if train.epochs is not None and train.epochs * train_tokens < steps * trained:
            about = Notice(
                "the text {epochs:g} times, since nothing says how long; this recipe has it by "
                "heart soon after (--train.epochs, --steps)",
                epochs=train.epochs,
            )
        else:
            about = Notice(
                "{steps:,} steps, since nothing says how long (--steps, --minutes)", steps=steps
            )
        notices.append(about)
    return train, notices


def fit_texts(
    train: TrainConfig, begin: Recipe, said: Set[str], context: int
) -> tuple[TrainConfig, list[Notice]]:
    """A recipe of short texts first in another context: a step reads as many of them, and they
    fill it.

    Args:
        train: the recipe's training with everything said laid over it.
        begin: the recipe.
        said: fields of the training that the user named; a length that was named is left for the
            training's own check to refuse.
        context: tokens of a whole text.
    """
    short, before = begin.train.short_context, begin.model.context_length
    if short is None or context == before:
        return train, []
    if "batch_size" not in said:
        tokens = train.batch_size * before
        # A context that is shorter still is read in as many texts, not in as many tokens.
        parts = max(1, round(tokens / max(context, min(short, before)) / train.accumulation))
        train = replace(train, batch_size=train.accumulation * parts)
    if "short_context" not in said:
        fits = fitting(min(short, context), context)
        # Where only much shorter ones would fill it, there are none.
        train = replace(train, short_context=fits if short < 2 * fits < 2 * context else None)
    texts = Notice(
        "{batch_size} texts a step, to suit a context of {context} tokens",
        batch_size=train.batch_size,
        context=context,
    )
    return train, [texts]


def choose(
    begin: Recipe,
    model: ModelConfig,
    train: TrainConfig,
    *,
    name: str,
    fine_tuned: bool = False,
    said_of_model: Set[str],
    said_of_training: Set[str],
    train_tokens: int,
    validation_tokens: int,
    vocab_size: int,
) -> Chosen:
    """All that the user left open.

    Args:
        begin: what `start` gave.
        model, train: the same with everything said laid over it.
        name: the preset's or recipe's name, or the earlier run's.
        fine_tuned: whether training begins with an earlier run's weights.
        said_of_model, said_of_training: fields that the user named.
        train_tokens, validation_tokens: tokens in each part of the text.
        vocab_size: different tokens of the text.
    """
    if "vocab_size" not in said_of_model:
        model = replace(model, vocab_size=vocab_size)
    model, about_context = fit_to_text(model, said_of_model, train_tokens, validation_tokens)
    resized = {"n_layers", "d_model", "d_ff"} & said_of_model
    if resized and "lr" not in said_of_training:
        train = replace(train, lr=rate_for(model))
    model, about_steps = fit_to_steps(
        model, begin, train, said_of_model, said_of_training, train_tokens
    )
    train, about_texts = fit_texts(train, begin, said_of_training, model.context_length)
    train, about_training = fit_training(
        train, said_of_training, model.context_length, train_tokens, validation_tokens
    )
    usual = replace(begin.model, vocab_size=model.vocab_size, context_length=model.context_length)
    about_model = [_about_model(model, name, changed=model != usual, fine_tuned=fine_tuned)]
    notices = (*about_model, *about_context, *about_steps, *about_texts, *about_training)
    return Chosen(model, train, notices)


def _about_model(model: ModelConfig, name: str, *, changed: bool, fine_tuned: bool) -> Notice:
    parameters = count_parameters(model)
    if name == DEFAULT and not changed and not fine_tuned:
        return Notice(
            "model {name}: {parameters:,} parameters, which two CPU cores train in minutes "
            "(--preset, --model.*)",
            name=name,
            parameters=parameters,
        )
    return Notice(
        "model {name}, with changes: {parameters:,} parameters, {layers} layers of width {width}, "
        "context of {context} tokens"
        if changed
        else "model {name}: {parameters:,} parameters, {layers} layers of width {width}, context "
        "of {context} tokens",
        name=name,
        parameters=parameters,
        layers=model.n_layers,
        width=model.d_model,
        context=model.context_length,
    )


def about_machine(train: TrainConfig, device: str) -> tuple[Notice, ...]:
    """Why the training runs where it does, where that was left open.

    Args:
        train: the training.
        device: where it will run: "cpu", "cuda", "mps".
    """
    notices = []
    if train.device == "auto" and device == "cpu":
        notices.append(Notice("cpu: there is no GPU here that torch can use (--device)"))
    elif train.device == "auto":
        notices.append(Notice("{device}: the fastest device here (--device)", device=device))
    return tuple(notices)
