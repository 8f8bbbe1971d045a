"""What a run of this size and length will reach: a law fitted to runs that were measured.

loss = surprise * (floor + model * N^-p + data * D'^-q)

N are the parameters that are computed with, D' is what the D tokens of the run are worth where the
text of U tokens is read more than once: U + U r (1 - exp(-(D / U - 1) / r)). Before D tokens are
trained on, `surprise` says how hard the text is (see `surprise.py`).

Source: Hoffmann et al., "Training Compute-Optimal Large Language Models", 2022, section 3.3;
Muennighoff et al., "Scaling Data-Constrained Language Models", 2023, section 3.
"""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Where the fitted constants are kept; `partwise bench dial --fit true` writes them.
FILE = Path(__file__).with_name("law.json")

# The exponents that are tried. What multiplies them then follows by least squares.
_POWERS = [round(0.10 + 0.05 * step, 2) for step in range(19)]
_REPEATS = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]

# Text factors and the others are found in turn, so often.
_TURNS = 12

# Half the width of an interval that holds nine runs of ten, in deviations of a normal law.
NINE_OF_TEN = 1.645


@dataclass(frozen=True)
class Point:
    """A run that was measured.

    Args:
        text: which text.
        parameters: N.
        tokens: D, trained on.
        text_tokens: U, of the training part.
        surprise: of the text (nats a token).
        loss: of the validation part at the run's end (nats a token).
        earlier: whether it was a run of an earlier form of the family, which says how sizes and
            lengths compare, and nothing of how low today's runs come.
    """

    text: str
    parameters: int
    tokens: int
    text_tokens: int
    surprise: float
    loss: float
    earlier: bool = False


@dataclass(frozen=True)
class Law:
    """The constants.

    Args:
        floor, model, model_power, data, data_power, repeats: see above; `repeats` is r.
        spread: deviation of a text's runs from the law, as a share of the loss.
        between: deviation of the texts from what their surprise foretells, as a share of the loss;
            the wider the fewer texts there were.
        runs: how many it was fitted to, earlier ones among them.
    """

    floor: float
    model: float
    model_power: float
    data: float
    data_power: float
    repeats: float
    spread: float
    between: float
    runs: int

    def loss(self, parameters: int, tokens: float, text_tokens: int, surprise: float) -> float:
        """What a run should reach (nats a token); arguments as in `Point`."""
        worth = worth_of(tokens, text_tokens, self.repeats)
        of_model: float = self.model * parameters**-self.model_power
        of_data: float = self.data * worth**-self.data_power
        return surprise * (self.floor + of_model + of_data)

    def interval(self, loss: float) -> tuple[float, float]:
        """Where nine of ten runs end that should reach `loss`."""
        off = NINE_OF_TEN * math.hypot(self.spread, self.between)
        return loss * (1 - off), loss * (1 + off)


def worth_of(tokens: float, text_tokens: int, repeats: float) -> float:
    """D': the new text that `tokens` of a text of `text_tokens` are worth."""
    if tokens <= text_tokens:
        return tokens
    again = tokens / text_tokens - 1
    return text_tokens * (1 + repeats * (1 - math.exp(-again / repeats)))


def fit(points: Sequence[Point]) -> Law:
    """The law with the least squared deviation from the points, each as a share of its loss.

    Powers and repeats are those of a grid. The floor and both factors, none of which may be below
    zero, follow from them, and so does a factor for each text: what its surprise does not foretell.
    The factors of today's texts have a mean of one; an earlier form's texts have their own.

    Args:
        points: of two sizes and three lengths at least, today's among them.
    """
    import numpy as np

    losses = np.array([point.loss for point in points])
    hard = np.array([point.surprise for point in points])
    sizes = np.array([point.parameters for point in points], float)
    texts = sorted({(point.earlier, point.text) for point in points})
    text = np.array([texts.index((point.earlier, point.text)) for point in points])
    today = [number for number, (earlier, _) in enumerate(texts) if not earlier]
    of_text = (text[:, None] == np.arange(len(texts))).astype(float)  # (points, texts)
    tried = list(itertools.product(_REPEATS, _POWERS, _POWERS))
    worth = np.array([[worth_of(p.tokens, p.text_tokens, r) for p in points] for r in _REPEATS])
    worth = worth.repeat(len(tried) // len(_REPEATS), axis=0)  # (tried, points)
    _, model_powers, data_powers = np.array(tried).T[:, :, None]
    terms = np.stack((np.ones_like(worth), sizes**-model_powers, worth**-data_powers), axis=2)
    terms *= (hard / losses)[:, None]  # (tried, points, 3)
    own = np.ones((len(tried), len(texts)))
    for _ in range(_TURNS):
        # Least squares by QR, for all powers at once.
        basis, upper = np.linalg.qr(terms * own[:, text, None])
        factors = np.linalg.solve(upper, basis.sum(axis=1)[:, :, None])  # (tried, 3, 1)
        shares = (terms @ factors)[:, :, 0]
        own = shares @ of_text / (np.square(shares) @ of_text)
        own /= np.exp(np.log(np.abs(own[:, today])).mean(axis=1, keepdims=True))
    offs = np.square(shares * own[:, text] - 1).sum(axis=1)
    offs[(factors < 0).any(axis=(1, 2))] = np.inf
    best = int(offs.argmin())
    off = float(offs[best])
    if off == np.inf:
        raise ValueError("no law of this form fits the points")
    repeats, model_power, data_power = tried[best]
    floor, model, data = factors[best, :, 0]
    freedom = max(1, len(points) - 6 - (len(texts) - 1))
    return Law(
        floor=float(floor),
        model=float(model),
        model_power=model_power,
        data=float(data),
        data_power=data_power,
        repeats=repeats,
        spread=math.sqrt(off / freedom),
        between=_between(own[best, today]),
        runs=len(points),
    )


def _between(factors: Any) -> float:
    """The deviation of texts' factors, wider the fewer texts there are.

    s sqrt(1 + 1 / n) t / z, for the mean and the deviation s of n texts are themselves not known
    well; t is Student's quantile with n - 1 degrees of freedom where z is the normal law's.
    """
    count = len(factors)
    if count < 2:
        return 0.0
    wider = student(count - 1) / NINE_OF_TEN
    return float(factors.std(ddof=1)) * math.sqrt(1 + 1 / count) * wider


def student(freedom: int) -> float:
    """Half the width of an interval that holds nine of ten, in deviations of Student's law.

    Exact for one and two degrees of freedom, from three on within 0.4 %.

    Source: Fisher and Cornish, "The Percentile Points of Distributions Having Known Cumulants",
    1960, from three degrees on.
    """
    if freedom == 1:
        return math.tan(0.45 * math.pi)
    if freedom == 2:
        return 0.9 * math.sqrt(2 / 0.19)
    z = NINE_OF_TEN
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def standing() -> Law:
    """The law as it was fitted last."""
    return Law(**json.loads(FILE.read_text(encoding="utf-8")))


def text_of(law: Law) -> str:
    """A law as the file holds it."""
    return json.dumps(asdict(law), indent=2) + "\n"
