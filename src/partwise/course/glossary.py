"""The terms of all lessons: one word for one thing, in each language."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from partwise.course.cells import Words

FILE = Path(__file__).parent / "glossary.toml"


@dataclass(frozen=True)
class Term:
    """One term.

    Args:
        id: its name in the glossary.
        zh, en: how the lessons call it.
        says: what it is, in a sentence.
        avoid_zh, avoid_en: other words for it, which the lessons do not use.
    """

    id: str
    zh: str
    en: str
    says: Words
    avoid_zh: tuple[str, ...]
    avoid_en: tuple[str, ...]


@cache
def terms() -> tuple[Term, ...]:
    """Every term, in the glossary's order."""
    found = tomllib.loads(FILE.read_text(encoding="utf-8"))["terms"]
    return tuple(
        Term(
            id=term["id"],
            zh=term["zh"],
            en=term["en"],
            says=Words(**term["says"]),
            avoid_zh=tuple(term.get("avoid", {}).get("zh", ())),
            avoid_en=tuple(term.get("avoid", {}).get("en", ())),
        )
        for term in found
    )
