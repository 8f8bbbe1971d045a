"""What a ladder is told: which rungs, how many seeds, which variants, where it is kept."""

import re
from dataclasses import dataclass
from typing import Literal

from partwise.errors import ConfigError
from partwise.settings import at_least_one, check, not_negative, offer, option

Device = Literal["auto", "cpu", "cuda", "mps"]
LadderPrecision = Literal["auto", "float32", "bfloat16"]

RUNG_NAMES = ("head", "heads", "feedforward", "residual", "layernorm", "scaled")

MOST_SEEDS = 1000


@dataclass(frozen=True)
class LadderConfig:
    """One climb.

    Raises:
        ConfigError: a rung that does not exist, or a count out of range.
    """

    to: int | None = option(None, "climb from rung 1 to this one; none: to 5")
    only: str | None = option(None, "these rungs alone, by number or name, e.g. 4,5")
    seeds: int = option(1, "train each rung with this many seeds, the same ones for every rung")
    without: tuple[str, ...] = option(
        (), "train each rung also without this part (residual, mask, ...); may be given again"
    )
    swap: tuple[str, ...] = option(
        (),
        "train each rung also with FIELD=VALUE, any field of model or training; may be given again",
    )
    each: bool = option(False, "one variant for each change instead of one that has them all")
    steps: int | None = option(None, "train every rung for this many steps; none: 5,000")
    show: bool = option(False, "print what each rung adds to the one below it; train nothing")
    knock_out: bool = option(
        False, "measure trained rungs with each part silenced in turn; train what is missing"
    )
    depth: bool = option(
        False, "measure deep stacks before training, by layer, and race pre- against post-norm"
    )
    again: bool = option(False, "train finished rungs again")
    name: str | None = option(None, "name of the ladder's folder; none: the corpus's name")
    workers: int | None = option(
        None, "processes that train small rungs at once; none: one a core; 0: none but this one"
    )
    device: Device = option("auto", "where rung 6 trains; small rungs train on the CPU")
    dtype: LadderPrecision = option(
        "auto", "numbers that rung 6 is computed in; the small rungs are float32"
    )

    def __post_init__(self) -> None:
        check(self)
        last = len(RUNG_NAMES)
        if self.to is not None and not 1 <= self.to <= last:
            raise ConfigError("there is no rung {rung}; give 1 to {last}", rung=self.to, last=last)
        if self.to is not None and self.only is not None:
            raise ConfigError(
                "to={to} and only={only} both choose the rungs; give one of them",
                to=self.to,
                only=self.only,
            )
        at_least_one(self, "seeds", "steps")
        if self.seeds > MOST_SEEDS:
            raise ConfigError(
                "seeds={value} is a count of seeds, not a seed; give {most} or fewer",
                value=self.seeds,
                most=MOST_SEEDS,
            )
        not_negative(self, "workers")
        _ = self.rungs

    @property
    def rungs(self) -> tuple[int, ...]:
        """The chosen rungs, lowest first."""
        if self.only is None:
            return tuple(range(1, (5 if self.to is None else self.to) + 1))
        words = [word for word in re.split(r"[,\s]+", self.only) if word]
        if not words:
            raise ConfigError("only is empty; name rungs, e.g. 4,5")
        return tuple(sorted({_rung(word) for word in words}))


def _rung(word: str) -> int:
    last = len(RUNG_NAMES)
    if word in RUNG_NAMES:
        return RUNG_NAMES.index(word) + 1
    if word.isdecimal() and 1 <= int(word) <= last:
        return int(word)
    if word.lstrip("+-").isdecimal():
        raise ConfigError("there is no rung {rung}; give 1 to {last}", rung=word, last=last)
    raise ConfigError(
        "there is no rung {rung!r}; {offer}",
        rung=word,
        offer=offer(word, RUNG_NAMES),
    )
