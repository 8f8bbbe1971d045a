"""How the best translation is looked for: how wide, how long, and what length is worth."""

from dataclasses import dataclass

from partwise.errors import ConfigError
from partwise.settings import check, option


@dataclass(frozen=True)
class SearchConfig:
    """Beam search; with a beam of 1 it is greedy.

    Raises:
        ConfigError: a value outside its range.

    Source: Vaswani et al. (2017), section 6.1, for the defaults.
    """

    beam: int = option(4, "unfinished translations that are followed at once; 1: greedy")
    length_penalty: float = option(
        0.6, "log-probabilities are divided by ((5 + length) / 6) to this power; 0: not at all"
    )
    longer_by: int = option(50, "longest translation, beyond the length of its source (tokens)")

    def __post_init__(self) -> None:
        check(self)
        if self.beam < 1:
            raise ConfigError(
                "{name}={value} is too small; give 1 or more", name="beam", value=self.beam
            )
        if not 0 <= self.length_penalty <= 10:
            raise ConfigError(
                "length_penalty={value} must be from 0 to 10", value=self.length_penalty
            )
        if self.longer_by < 0:
            raise ConfigError(
                "{name}={value} is negative; give 0 or more",
                name="longer_by",
                value=self.longer_by,
            )
