"""Where a ladder stands and what it learns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """What every process of a ladder knows.

    Args:
        folder: the ladder's folder.
        text: the text (see `open_source`).
        offline: never download a corpus.
        language: what messages are written in.
    """

    folder: str
    text: str
    offline: bool
    language: str
