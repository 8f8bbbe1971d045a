"""Where a ladder stands and what it learns."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Place:
    """What every process of a ladder knows.

    Args:
        folder: the ladder's folder.
        text: the text (see `open_source`).
        offline: never download a corpus.
        language: what messages are written in.
        words: templates that are said otherwise to its readers (see `use_words`).
        fingerprint: SHA-256 that the text must have; empty: any.
    """

    folder: str
    text: str
    offline: bool
    language: str
    words: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""
