"""What `partwise bench` can be told."""

from dataclasses import dataclass

from partwise.errors import ConfigError
from partwise.settings import at_least_one, check, option


@dataclass(frozen=True)
class BenchConfig:
    """How the figures are taken.

    Raises:
        ConfigError: no rounds, or no time.
    """

    rounds: int = option(5, "how often each figure is taken")
    seconds: float = option(4.0, "length of one measurement of training or sampling (seconds)")
    megabytes: int = option(100, "text that preparation is measured on (MB)")

    def __post_init__(self) -> None:
        check(self)
        at_least_one(self, "rounds", "megabytes")
        if not 0 < self.seconds < 3600:
            raise ConfigError(
                "seconds={value} is not the length of a measurement; give more than 0 and less "
                "than 3600",
                value=self.seconds,
            )
