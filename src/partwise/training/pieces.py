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

from typing import TYPE_CHECKING

from partwise.errors import ConfigError
from partwise.messages import Notice
from partwise.training.config import TrainConfig

if TYPE_CHECKING:
    from torch import Tensor  # a command's help asks for lengths, and torch takes a second


def reads_short(config: TrainConfig, context_length: int) -> bool:
    """Whether some steps read pieces of their texts.

    Args:
        config: the settings.
        context_length: tokens of a whole text.
    """
    short = config.short_context
    return short is not None and short < context_length and config.short_share > 0


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
    if not reads_short(config, context_length):
        return None
    early = total is None or step < config.short_share * total
    return config.short_context if early else None


def cut(inputs: "Tensor", targets: "Tensor", length: int | None) -> "tuple[Tensor, Tensor]":
    """Texts (B, T) as pieces (B T / length, length) that see nothing of each other; None: whole."""
    if length is None:
        return inputs, targets
    return inputs.reshape(-1, length), targets.reshape(-1, length)


def about_pieces(config: TrainConfig, context_length: int, *, learned: bool) -> Notice | None:
    """What to say of short texts before a run; arguments as above.

    Args:
        config: the settings.
        context_length: tokens of a whole text.
        learned: whether the model learns what each position means.
    """
    if not reads_short(config, context_length):
        return None
    values = {
        "share": config.short_share,
        "short": config.short_context,
        "context": context_length,
    }
    if learned:
        return Notice(
            "texts of {short:,} tokens in the first {share:.0%} of the steps, in evaluations too; "
            "what positions from there to {context:,} mean is learned only in the rest "
            "(short_context, or position=rotary)",
            **values,
        )
    return Notice(
        "texts of {short:,} tokens in the first {share:.0%} of the steps, in evaluations too; then "
        "of {context:,} (short_context)",
        **values,
    )


def check_short(config: TrainConfig, context_length: int) -> None:
    """Refuse short texts that do not fill a whole one.

    Raises:
        ConfigError: the context is no multiple of them.
    """
    short = config.short_context
    if short is None or short >= context_length or context_length % short == 0:
        return
    fits = fitting(short, context_length)
    raise ConfigError(
        "context_length={context} is no multiple of short_context={short}; short_context={fits} "
        "would fit",
        context=context_length,
        short=short,
        # Pieces of a few tokens teach nothing: rather whole texts.
        fits=fits if 2 * fits > short else context_length,
    )


def fitting(short: int, context_length: int) -> int:
    """The longest length up to `short` whose pieces fill a context."""
    return next(length for length in range(short, 0, -1) if context_length % length == 0)
