"""What is measured, and how: in turn, several times, so that a drifting machine harms all alike."""

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from partwise.messages import Notice


@dataclass(frozen=True)
class Case:
    """One figure.

    Args:
        group: the benchmark that it belongs to, e.g. "training".
        name: what is measured, in the words of a table's row.
        unit: of the figure, e.g. "tokens/s".
        measure: takes the figure once.
        baseline: whether the group's ratios are against this one.
    """

    group: str
    name: Notice
    unit: str
    measure: Callable[[], float]
    baseline: bool = False


@dataclass
class Series:
    """A case and the figures that were taken of it.

    Args:
        case: the case.
        figures: one for each round.
    """

    case: Case
    figures: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.figures)


@dataclass(frozen=True)
class Round:
    """A figure was taken.

    Args:
        number: the round, from 1.
        rounds: of how many.
        case: what was measured.
        figure: the figure.
    """

    number: int
    rounds: int
    case: Case
    figure: float


def alternate(cases: Sequence[Case], rounds: int) -> Iterator[Round]:
    """Take every case's figure in turn: a b c, a b c, …"""
    for number in range(1, rounds + 1):
        for case in cases:
            yield Round(number, rounds, case, case.measure())


def ratio(series: Series, baseline: Series) -> float:
    """The median over rounds of this case's figure by the baseline's of the same round."""
    pairs = zip(series.figures, baseline.figures, strict=True)
    return statistics.median(mine / base for mine, base in pairs)


def load() -> float | None:
    """Processes that were running or waiting over the last minute; None where unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
