"""Pairs of texts: read from two columns, made unique, and split so that nothing leaks.

The split is by what is said, not by line: pairs that share a sentence, in whichever column, stay on
the same side. So no sentence that is held out was seen in training in either column.
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from partwise.errors import TextError
from partwise.messages import Notice
from partwise.storage.faults import reading
from partwise.text.pair_config import PairConfig
from partwise.text.utf8 import decoded

Pair = tuple[str, str]

# A block of a file that is read at once (bytes).
BLOCK = 1 << 20

# Pairs that hang together by shared sentences are held out only if they are fewer than this share
# of what is to be held out: else one bundle would be most of it.
BUNDLE = 0.1


@dataclass(frozen=True)
class Pairs:
    """A parallel text.

    Args:
        name: short name.
        spec: opens the same pairs from any folder.
        pairs: source and target.
        notices: what was done with them, for the reader.
    """

    name: str
    spec: str
    pairs: tuple[Pair, ...]
    notices: tuple[Notice, ...] = ()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all pairs in their order."""
        digest = hashlib.sha256()
        for pair in self.pairs:
            digest.update("\t".join(pair).encode("utf-8", "surrogatepass") + b"\n")
        return digest.hexdigest()


@dataclass(frozen=True)
class Split:
    """Pairs to learn from, to choose the best weights by, and to score by."""

    train: tuple[Pair, ...]
    validation: tuple[Pair, ...]
    test: tuple[Pair, ...]


def read_pairs(path: Path, config: PairConfig) -> tuple[Pair, ...]:
    """The pairs of a file: one a line, the two texts between tabs, in UTF-8.

    Blank lines are skipped, and a byte-order mark; spaces around a text are taken away.

    Args:
        path: the file.
        config: which columns.

    Raises:
        TextError: a line has not the columns, or one of its texts is empty; the line is numbered
            from 1. Or the file is not UTF-8, or has no pairs.
        StorageError: it cannot be read.
    """
    pairs = []
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        columns = line.split("\t")
        source, target = _columns(columns, number, path, config)
        pairs.append((source, target))
    if not pairs:
        raise TextError("{path} has no pairs; give a file with two columns and a tab", path=path)
    return tuple(pairs)


def _lines(path: Path) -> Iterable[str]:
    with reading(path), path.open("rb") as file:
        rest, first = "", True
        for block in decoded(file, str(path), "strict", BLOCK):
            lines = (rest + (block.removeprefix("\ufeff") if first else block)).split("\n")
            rest, first = lines.pop(), False
            yield from (line.removesuffix("\r") for line in lines)
        yield rest


def _columns(columns: Sequence[str], number: int, path: Path, config: PairConfig) -> Pair:
    places = (config.source_column or 1, config.target_column or 2)
    if config.source_column is None and len(columns) != 2:
        if len(columns) == 1:
            raise TextError(
                "{path}, line {line}: there is no tab, and two columns are needed; put a tab "
                "between the two texts",
                path=path,
                line=number,
            )
        raise TextError(
            "{path}, line {line}: {count} columns where 2 are needed; choose two of them with "
            "--data.source-column and --data.target-column",
            path=path,
            line=number,
            count=len(columns),
        )
    if len(columns) < max(places):
        raise TextError(
            "{path}, line {line}: {count} columns, and column {wanted} is asked for",
            path=path,
            line=number,
            count=len(columns),
            wanted=max(places),
        )
    texts = [columns[place - 1].strip() for place in places]
    for place, text in zip(places, texts, strict=True):
        if not text:
            raise TextError(
                "{path}, line {line}: column {column} is empty; give both texts or leave the "
                "line out",
                path=path,
                line=number,
                column=place,
            )
    return texts[0], texts[1]


def unique(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Each pair once, the first of those that are the same in what they say (see `sense`)."""
    seen = set()
    kept = []
    for source, target in pairs:
        said = (sense(source), sense(target))
        if said not in seen:
            seen.add(said)
            kept.append((source, target))
    return tuple(kept)


def sense(text: str) -> str:
    """What two sentences have in common that differ in case, in spaces or in how they end."""
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    kept = folded.strip(" .,:;!?…\"'«»“”‘’()[]。，：；！？")
    return kept or folded


def split(pairs: Sequence[Pair], config: PairConfig, name: str) -> Split:
    """Hold out pairs, none of whose sentences (see `sense`) stands in any other part.

    Which ones follows from the seed and from what they say alone, not from their order.

    Args:
        pairs: unique ones.
        config: the shares and the seed.
        name: what a message calls them.

    Raises:
        TextError: there are too few, or they all hang together.
    """
    bundles = sorted(
        _bundles(pairs),
        key=lambda bundle: hashlib.sha256(
            f"{config.split_seed}\n{min(sense(pairs[i][0]) for i in bundle)}".encode()
        ).digest(),
    )
    parts: list[set[int]] = []
    taken: set[int] = set()
    for share in (config.test_fraction, config.val_fraction):
        wanted = max(1, round(share * len(pairs)))
        largest = max(1, int(BUNDLE * wanted))
        part: set[int] = set()
        for bundle in bundles:
            if len(part) >= wanted:
                break
            if len(bundle) <= largest and not taken & set(bundle):
                part |= set(bundle)
                taken |= set(bundle)
        parts.append(part)
    test, validation = ([pairs[i] for i in sorted(part)] for part in parts)
    train = [pair for i, pair in enumerate(pairs) if i not in taken]
    if not test or not validation or len(train) < 2:
        raise TextError(
            "{name} has {count} pairs, of which none can be held out without a sentence that the "
            "others hold too; give more pairs",
            name=name,
            count=len(pairs),
        )
    return Split(tuple(train), tuple(validation), tuple(test))


def _bundles(pairs: Sequence[Pair]) -> list[list[int]]:
    """Numbers of pairs that hang together by the sentences they share, in either column."""
    parent = list(range(len(pairs)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[str, int] = {}
    for i, pair in enumerate(pairs):
        for text in pair:
            j = first.setdefault(sense(text), i)
            parent[root(i)] = root(j)
    bundles: dict[int, list[int]] = {}
    for i in range(len(pairs)):
        bundles.setdefault(root(i), []).append(i)
    return list(bundles.values())
