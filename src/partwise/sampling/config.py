"""How text is drawn from a model: how bold, how long, where to stop, and from which seed."""

import math
from dataclasses import dataclass
from typing import Literal

from partwise.errors import ConfigError
from partwise.settings import above_zero, at_least_one, check, not_negative, option

Unknown = Literal["refuse", "skip"]
SampleDtype = Literal["auto", "float32", "bfloat16", "int8"]

# How much text is drawn when neither `chars` nor `tokens` says.
DEFAULT_CHARS = 500


@dataclass(frozen=True)
class SampleConfig:
    """The sampling of one prompt. A sample ends at whichever limit is met first.

    Filters work in this order: repetition penalty, temperature, top-k, top-p, min-p; each sees what
    the one before it kept.

    Raises:
        ConfigError: a value outside its range, or an empty stop string.
    """

    temperature: float = option(
        0.8, "logits are divided by it before the draw; 0: always the likeliest token"
    )
    greedy: bool = option(False, "always the likeliest token, whatever the temperature")
    top_k: int | None = option(None, "draw among this many likeliest tokens; none: all")
    top_p: float | None = option(
        None, "draw among the fewest likeliest tokens that hold this share of probability; none: 1"
    )
    min_p: float | None = option(
        None, "draw among tokens at least this share as likely as the likeliest; none: 0"
    )
    repetition_penalty: float = option(
        1.0, "tokens that occurred have positive logits divided, negative ones times this; 1: off"
    )
    stop: tuple[str, ...] = option((), "end before the first of these texts appears")
    seed: int = option(1, "seed of the draws; each sample has its own stream of it")
    chars: int | None = option(
        None, "characters to add to the prompt; none: 500 unless tokens is set"
    )
    tokens: int | None = option(None, "tokens to add to the prompt; none: no limit")
    count: int = option(1, "samples drawn at once")
    unknown: Unknown = option(
        "refuse", "characters of the prompt that the model never saw: refuse them, or skip them"
    )
    cache: bool = option(True, "keep keys and values instead of computing them anew")
    dtype: SampleDtype = option(
        "auto",
        "numbers that weights are held in; auto: as trained, or on a CPU bfloat16 for a long text; "
        "int8: on a CPU alone",
    )

    def __post_init__(self) -> None:
        check(self)
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(
                "temperature={value} must be 0 or a finite number above 0; 0 takes the likeliest "
                "token",
                value=self.temperature,
            )
        above_zero(self, "repetition_penalty")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(
                "top_p={value} is not a share; give more than 0 and at most 1", value=self.top_p
            )
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ConfigError("{name}={value} must be from 0 to 1", name="min_p", value=self.min_p)
        at_least_one(self, "top_k", "count")
        not_negative(self, "seed", "chars", "tokens")
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise ConfigError(
                    "stop={value!r} is not a text to stop at; give one or more characters",
                    value=text,
                )

    @property
    def takes_likeliest(self) -> bool:
        """Whether the likeliest token is always taken, so that nothing is left to chance."""
        return self.greedy or self.temperature == 0

    @property
    def char_limit(self) -> int | None:
        """Characters that a sample may have; None when `tokens` alone limits it."""
        if self.chars is None and self.tokens is None:
            return DEFAULT_CHARS
        return self.chars
