"""How hard a text is to foretell: the loss of a table of what follows each four tokens.

A second's count tells what no law can know before it has seen the text: Shakespeare costs more nats
a character than Python source does, and a small text more than a large one.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

# Tokens that are counted; more change little.
COUNTED = 2_000_000
JUDGED = 100_000

# A long text is looked at in so many places.
STRETCHES = 40

# Tokens of the longest stretches that are counted.
LONGEST = 5

# Each count is drawn towards the shorter context's as if that had been seen so often.
DRAWN = 5.0


def surprise(train: Any, validation: Any, vocab_size: int) -> float:
    """Mean of -log p(token | the four before) over the validation part (nats a token).

    p(d | a b c) = (count(a b c d) + k p(d | b c)) / (count(a b c) + k), and so on, from four tokens
    before down to none, and to all tokens alike.

    Args:
        train: tokens that are counted; a slice of it is an array.
        validation: tokens that are foretold.
        vocab_size: different tokens V.

    Source: MacKay and Peto, "A Hierarchical Dirichlet Language Model", 1995.
    """
    seen = _some(train, COUNTED)
    judged = _some(validation, JUDGED)
    longest = LONGEST
    while vocab_size**longest > 2**62:
        longest -= 1  # such a stretch has no number of its own in 64 bits
    chance = np.full(max(0, len(judged) - longest + 1), 1 / vocab_size)
    for length in range(1, longest + 1):
        asked = _keys(judged, length, vocab_size)[longest - length :]
        before: Any = float(len(seen))
        if length > 1:
            before = _counts(_keys(seen, length - 1, vocab_size), asked // vocab_size)
        found = _counts(_keys(seen, length, vocab_size), asked)
        chance = (found + DRAWN * chance) / (before + DRAWN)
    return float(-np.log(chance).mean()) if len(chance) else float(np.log(vocab_size))


def _some(tokens: Any, count: int) -> Ids:
    """About `count` tokens in stretches spread evenly over all of them; all where they are fewer.

    Where stretches meet, a few tokens follow each other that do not in the text.
    """
    if len(tokens) <= count:
        return np.asarray(tokens[:], dtype=np.int64)
    each = count // STRETCHES
    starts = np.linspace(0, len(tokens) - each, STRETCHES).astype(int)
    return np.concatenate([tokens[start : start + each] for start in starts]).astype(np.int64)


def _keys(tokens: Ids, length: int, vocab_size: int) -> Ids:
    """A number for each stretch of so many tokens; the last token varies fastest."""
    count = max(0, len(tokens) - length + 1)
    keys = np.zeros(count, np.int64)
    for place in range(length):
        keys = keys * vocab_size + tokens[place : place + count]
    return keys


def _counts(seen: Ids, asked: Ids) -> npt.NDArray[np.float64]:
    """How often each of `asked` occurs in `seen`."""
    values, counts = np.unique(seen, return_counts=True)
    places = np.searchsorted(values, asked).clip(max=max(0, len(values) - 1))
    if not len(values):
        return np.zeros(len(asked))
    return np.where(values[places] == asked, counts[places], 0).astype(np.float64)
