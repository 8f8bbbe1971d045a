"""How the best translation is looked for: how wide, how long, and what length is worth."""

from dataclasses import dataclass

from partwise.errors import ConfigError
from partwise.settings import at_least_one, check, not_negative, option


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
        at_least_one(self, "beam")
        not_negative(self, "longer_by")
        if not 0 <= self.length_penalty <= 10:
            raise ConfigError(
                "length_penalty={value} must be from 0 to 10", value=self.length_penalty
            )
