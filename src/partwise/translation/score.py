"""How good translations are, on pairs that were held out, beside what costs nothing: copying."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from partwise.messages import Notice
from partwise.text.pairs import Pair

# BLEU compares up to so many words in a row, its own default.
ORDER = 4

# Kana, Thai and Lao, Burmese, Khmer.
SPACELESS = (
    ("\u3041", "\u30ff"),
    ("\u0e00", "\u0eff"),
    ("\u1000", "\u109f"),
    ("\u1780", "\u17ff"),
)


@dataclass(frozen=True)
class Score:
    """How near a system's translations are to the given ones.

    Args:
        system: what translated: `encoder-decoder`, `decoder-only` or `copy`.
        pairs: held-out pairs.
        exact: share of the translations that are the given ones, character for character.
        bleu: 0 to 100; None without the package sacrebleu, and for texts of fewer words than it
            compares in a row.
        chrf: 0 to 100; None without the package.
        signature: sacreBLEU's own description of how BLEU was computed.
    """

    system: str
    pairs: int
    exact: float
    bleu: float | None = None
    chrf: float | None = None
    signature: str | None = None


def scored(system: str, written: Sequence[str], pairs: Sequence[Pair]) -> Score:
    """The score of the translations of some pairs' sources.

    Args:
        system: what translated.
        written: a translation of each source.
        pairs: the sources and the translations that were given.

    Source: BLEU, Papineni et al. (2002); chrF, Popović (2015); both as Post (2018), sacreBLEU,
    computes them.
    """
    given = [target for _, target in pairs]
    exact = sum(map(str.__eq__, written, given)) / len(given)
    judge = _sacrebleu()
    if judge is None:
        return Score(system, len(pairs), exact)
    chrf = judge.CHRF().corpus_score(list(written), [given]).score
    words = words_of(given)
    if words == "13a" and all(len(text.split()) < ORDER for text in given):
        return Score(system, len(pairs), exact, None, chrf)
    bleu = judge.BLEU(tokenize=words, max_ngram_order=ORDER)
    value = bleu.corpus_score(list(written), [given]).score
    return Score(system, len(pairs), exact, value, chrf, str(bleu.get_signature()))


def words_of(texts: Sequence[str]) -> str:
    """How sacreBLEU is to cut these texts into words.

    Texts of Chinese characters have no spaces between their words and are cut at each character,
    and so are those of other scripts without spaces; all others are cut as at the WMT contests.
    """
    letters = [letter for text in texts for letter in text if letter.isalpha()]
    chinese = sum("\u3400" <= letter <= "\u9fff" for letter in letters)
    others = sum(any(first <= letter <= last for first, last in SPACELESS) for letter in letters)
    if 3 * (chinese + others) <= len(letters):
        return "13a"
    return "char" if 20 * others > len(letters) else "zh"


def copied(pairs: Sequence[Pair]) -> Score:
    """The score of giving each source back as it is."""
    return scored("copy", [source for source, _ in pairs], pairs)


def unscored() -> Notice | None:
    """What to say where BLEU cannot be computed; None where it can."""
    if _sacrebleu() is not None:
        return None
    return Notice('BLEU needs the package sacrebleu: pip install "partwise[translate]"')


def _sacrebleu() -> Any:
    try:
        return importlib.import_module("sacrebleu.metrics")
    except ImportError:
        return None
