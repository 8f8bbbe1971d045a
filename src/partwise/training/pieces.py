"""Short texts first: most of a run reads pieces of its texts, and only the end whole ones.

What a model learns first lies within few tokens, and attention over few costs little. What it knows
of long texts it then learns soon, where positions are relative to each other (rotary, ALiBi); a
table of learned positions knows nothing of the later ones before.

A text is cut, not drawn anew: batch, order and readings of the text stay what they are. While
pieces are read, evaluations are in windows of their length: of longer ones the model knows nothing.

Source: Press, Smith, Lewis, "Shortformer: Better Language Modeling Using Shorter Inputs", 2021,
section 3; Li, Zhang, He, "The Stability-Efficiency Dilemma: Investigating Sequence Length Warmup
for Training GPT Models", 2022.
"""

from torch import Tensor

from partwise.errors import ConfigError
from partwise.messages import Notice
from partwise.training.config import TrainConfig


def piece_length(
    step: int, total: int | None, config: TrainConfig, context_length: int
) -> int | None:
    """Tokens of each piece in the step after `step`: `short_context` while step < share * total.

    Args:
        step: steps done.
        total: steps of the whole run; None while it is not known, and then texts are short.
        config: the settings.
        context_length: tokens of a whole text.

    Returns:
        The length; None where texts stay whole.
    """
    short = config.short_context
    if short is None or short >= context_length:
        return None
    return short if total is None or step < config.short_share * total else None


def cut(inputs: Tensor, targets: Tensor, length: int | None) -> tuple[Tensor, Tensor]:
    """Texts (B, T) as pieces (B T / length, length) that see nothing of each other; None: whole."""
    if length is None:
        return inputs, targets
    return inputs.reshape(-1, length), targets.reshape(-1, length)


def change(length: int | None, context_length: int) -> Notice:
    """What to say where texts get another length."""
    return Notice(
        "texts of {tokens:,} tokens from here on, in evaluations too (short_context)",
        tokens=length or context_length,
    )


def check_short(config: TrainConfig, context_length: int) -> None:
    """Refuse short texts that do not fill a whole one.

    Raises:
        ConfigError: the context is no multiple of them.
    """
    short = config.short_context
    if short is None or short >= context_length or context_length % short == 0:
        return
    raise ConfigError(
        "context_length={context} is no multiple of short_context={short}; short_context={fits} "
        "would fit",
        context=context_length,
        short=short,
        fits=fitting(short, context_length),
    )


def fitting(short: int, context_length: int) -> int:
    """The longest length up to `short` whose pieces fill a context."""
    return next(length for length in range(short, 0, -1) if context_length % length == 0)
