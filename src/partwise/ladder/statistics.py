"""How sure a difference is: paired seeds, their standard error, and a t interval for few of them.

Two rungs (or a rung and its variant) are trained with the same seeds, so seed by seed they read the
same batches in the same order. The difference is taken seed by seed and only then averaged:
`mean(d) ± t(0.975, n - 1) · sd(d) / √n`. What the batches do to both sides falls out of `d`.

Source: Student, 1908, "The probable error of a mean", Biometrika 6(1), for the interval; the method
is described for readers in docs/ladder.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from partwise.messages import message

Verdict = Literal["lower", "higher", "noise", "one seed", "none"]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Spread:
    """Mean and scatter of one figure over the seeds.

    Args:
        n: how many seeds.
        mean: their mean (nats a token); NaN without any.
        sd: standard deviation with n - 1 below; None with fewer than two seeds.
        standard_error: sd / √n: how far the mean itself may be off; None likewise.
    """

    n: int
    mean: float
    sd: float | None
    standard_error: float | None


@dataclass(frozen=True)
class Difference:
    """A paired difference, `after - before`, with what can be said of it.

    Args:
        seeds: the seeds that both sides have.
        mean: mean of the seed-by-seed differences (nats a token); below 0 is an improvement.
        sd: their standard deviation; None with fewer than two seeds.
        standard_error: sd / √n; None likewise.
        low, high: the 95 % t interval of the mean; None likewise.
    """

    seeds: tuple[int, ...]
    mean: float
    sd: float | None
    standard_error: float | None
    low: float | None
    high: float | None

    @property
    def verdict(self) -> Verdict:
        """`noise` when the interval holds 0; `one seed` when there is nothing to judge it by."""
        if not self.seeds:
            return "none"
        if self.low is None or self.high is None:
            return "one seed"
        if self.low > 0:
            return "higher"
        if self.high < 0:
            return "lower"
        return "noise"

    def __str__(self) -> str:
        """The verdict in words, in the reader's language."""
        if self.verdict == "none":
            return message("no seed in common, so no difference")
        if self.verdict == "one seed":
            return message("one seed cannot tell; try --seeds 3")
        if self.verdict == "noise":
            return message("within noise at {n} seeds", n=len(self.seeds))
        if self.verdict == "lower":
            return message("lower, beyond noise at {n} seeds", n=len(self.seeds))
        return message("higher, beyond noise at {n} seeds", n=len(self.seeds))


def spread(values: Sequence[float]) -> Spread:
    """Mean, standard deviation (n - 1) and standard error of the mean."""
    n = len(values)
    mean = math.fsum(values) / n if n else math.nan
    if n < 2:
        return Spread(n, mean, None, None)
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    return Spread(n, mean, sd, sd / math.sqrt(n))


def paired(before: Mapping[int, float], after: Mapping[int, float]) -> Difference:
    """`after - before`, seed by seed.

    Args:
        before: seed -> figure (nats a token).
        after: seed -> figure of the other side; seeds that only one side has are left out.

    Returns:
        The mean difference with its standard error and 95 % interval.
    """
    seeds = tuple(sorted(before.keys() & after.keys()))
    whole = spread([after[seed] - before[seed] for seed in seeds])
    if whole.standard_error is None:
        return Difference(seeds, whole.mean, None, None, None, None)
    half = t_quantile(0.5 + CONFIDENCE / 2, whole.n - 1) * whole.standard_error
    return Difference(
        seeds, whole.mean, whole.sd, whole.standard_error, whole.mean - half, whole.mean + half
    )


def t_probability(t: float, degrees: int) -> float:
    """P(T <= t) for Student's t with a whole number of degrees of freedom, exactly.

    With θ = arctan(t / √ν), the probability that |T| <= t is a finite sum: for odd ν
    2/π (θ + sin θ (cos θ + 2/3 cos³ θ + … )), for even ν sin θ (1 + 1/2 cos² θ + 3/8 cos⁴ θ + …).

    Source: Abramowitz and Stegun, 1964, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    theta = math.atan2(t, math.sqrt(degrees))
    cosine = math.cos(theta)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 + odd, degrees - 1, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    within = math.sin(theta) * total
    if odd:
        within = 2 / math.pi * (theta + within)
    return 0.5 + within / 2


def t_quantile(probability: float, degrees: int) -> float:
    """The t with P(T <= t) = probability, found by halving an interval of `t_probability`.

    Args:
        probability: between 0 and 1, ends excluded.
        degrees: degrees of freedom, 1 or more.
    """
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while t_probability(high, degrees) < probability:
        low, high = high, 2 * high
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        if t_probability(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2
