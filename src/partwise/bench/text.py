"""A text to measure on: English-like words, the same on every machine, from no corpus."""

from pathlib import Path

import numpy as np

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def write_words(path: Path, megabytes: int) -> None:
    """Write `megabytes` MB of words whose frequencies fall as their rank rises.

    Source: Zipf, 1949, "Human Behavior and the Principle of Least Effort" (frequency ~ 1 / rank).
    """
    draw = np.random.default_rng(1)
    lengths = draw.integers(1, 11, 20_000)
    letters = draw.zipf(1.3, int(lengths.sum())) % len(LETTERS)
    flat = "".join(LETTERS[place] for place in letters)
    ends = np.cumsum(lengths)
    words = [
        flat[end - length : end]
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
    ]
    wanted, written = megabytes * 1_000_000, 0
    with path.open("wb") as file:
        while written < wanted:
            ranks = draw.zipf(1.2, 100_000) % len(words)
            line_ends = draw.random(100_000) < 0.1
            block = "".join(
                words[rank] + ("\n" if end else " ")
                for rank, end in zip(ranks.tolist(), line_ends.tolist(), strict=True)
            )
            part = block.encode("ascii")[: wanted - written]
            file.write(part)
            written += len(part)
