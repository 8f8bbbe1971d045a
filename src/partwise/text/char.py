"""One token a character: the tokenizer that a reader can check by eye."""

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from partwise.errors import TextError
from partwise.text.dtypes import dtype_for
from partwise.text.stream import StreamDecoder, Utf8Stream

# One past the last code point there is.
POINTS = 0x110000


class CharTokenizer:
    """id(c) = the rank of c among the text's characters, sorted by code point.

    Args:
        characters: every character that gets a token, in any order; repeated ones count once.

    Raises:
        TextError: there is none, or one is half of a surrogate pair, which no text file can hold.
    """

    unit = "characters"

    def __init__(self, characters: Iterable[str]) -> None:
        self.characters = "".join(sorted(set("".join(characters))))
        points = _code_points(self.characters)
        if not len(points):
            raise TextError("a character tokenizer needs at least one character; give a text")
        if np.any((points >= 0xD800) & (points <= 0xDFFF)):
            raise TextError("half of a surrogate pair is not a character; give whole characters")
        self.vocab_size = len(points)
        self.name = f"char-{self.vocab_size}"
        self._known = np.zeros(POINTS, np.bool_)
        self._known[points] = True
        self._ids = np.zeros(POINTS, dtype_for(self.vocab_size))
        self._ids[points] = np.arange(len(points))
        self._bytes = [character.encode("utf-8") for character in self.characters]
        # For a text of ASCII alone, bytes.translate is the fastest table there is.
        self._ascii_known = bytes(points[points < 0x80].astype(np.uint8))
        self._ascii_ids = self._ids[:0x100].astype(np.uint8).tobytes()

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the JSON form (64 hex digits)."""
        return hashlib.sha256(self.to_json().encode("utf-8")).hexdigest()

    def encode(
        self, text: str, *, unknown: Literal["refuse", "skip"] = "refuse"
    ) -> npt.NDArray[np.int64]:
        """The ids of `text`, one a character.

        Args:
            text: any text.
            unknown: refuse a character without a token, or leave it out.

        Returns:
            ids, (characters,).

        Raises:
            TextError: a character has no token and `unknown` is "refuse"; the line names some.
        """
        return self._block(text, unknown).astype(np.int64)

    def encode_blocks(
        self, texts: Iterable[str], *, unknown: Literal["refuse", "skip"] = "refuse"
    ) -> Iterator[npt.NDArray[Any]]:
        """The ids of the joined `texts`, block by block, in the narrowest dtype."""
        for text in texts:
            yield self._block(text, unknown)

    def _block(self, text: str, unknown: Literal["refuse", "skip"]) -> npt.NDArray[Any]:
        if text.isascii() and self.vocab_size <= 0x100:
            data = text.encode("ascii")
            if not data.translate(None, self._ascii_known):
                return np.frombuffer(data.translate(self._ascii_ids), np.uint8)
        points = _code_points(text)
        known = self._known.take(points)
        if not known.all():
            if unknown == "refuse":
                raise unknown_characters(self.name, map(int, np.unique(points[~known])))
            points = points[known]
        ids: npt.NDArray[Any] = self._ids.take(points)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`."""
        return "".join(self.characters[id] for id in ids)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The text of `ids` as UTF-8."""
        return b"".join(self._bytes[id] for id in ids)

    def stream(self, after: Iterable[int] = ()) -> StreamDecoder:
        """A decoder for ids that arrive one at a time, behind those of `after`."""
        return Utf8Stream(self._bytes.__getitem__, after=after)

    def unknown_to(self, points: npt.NDArray[np.uint32]) -> list[int]:
        """Those of the code points `points` that have no token."""
        missing: list[int] = points[~self._known[points]].tolist()
        return missing

    def to_json(self) -> str:
        """The tokenizer as JSON, for `load_tokenizer`."""
        value = {"kind": "partwise.tokenizer", "version": 1, "type": "char"}
        return json.dumps({**value, "characters": self.characters}, ensure_ascii=False)


def named(points: Iterable[int]) -> str:
    """A few of the characters with these code points, each with its number, for a message."""
    known = list(points)
    shown = [
        f"{chr(point)!r} (U+{point:04X})" if chr(point).isprintable() else f"U+{point:04X}"
        for point in known[:5]
    ]
    return ", ".join(shown) + (f", … ({len(known):,})" if len(known) > len(shown) else "")


def unknown_characters(name: str, points: Iterable[int]) -> TextError:
    """The error that names characters, given as code points, which tokenizer `name` lacks."""
    return TextError(
        "the tokenizer {name} does not know {characters}; use other characters, or --unknown skip "
        "to leave them out",
        name=name,
        characters=named(points),
    )


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    # A surrogate can come from a prompt; it is passed here so that it can be named as unknown.
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
