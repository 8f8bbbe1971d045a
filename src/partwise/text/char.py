"""One token a character: the tokenizer that a reader can check by eye."""

import functools
import hashlib
import json
from collections.abc import Iterable
from typing import Literal

import numpy as np
import numpy.typing as npt

from partwise.errors import TextError
from partwise.text.stream import StreamDecoder


class CharTokenizer:
    """id(c) = the rank of c among the text's characters, sorted by code point.

    Args:
        characters: every character that gets a token, in any order; repeated ones count once.

    Raises:
        TextError: there is none, or one is half of a surrogate pair, which no text file can hold.
    """

    unit = "characters"

    def __init__(self, characters: Iterable[str]) -> None:
        self.characters = "".join(sorted(set(characters)))
        points = _code_points(self.characters)
        if not len(points):
            raise TextError("a character tokenizer needs at least one character; give a text")
        if np.any((points >= 0xD800) & (points <= 0xDFFF)):
            raise TextError("half of a surrogate pair is not a character; give whole characters")
        self.vocab_size = len(points)
        self.name = f"char-{self.vocab_size}"
        self._points = points
        # -1 for what is unknown; one row more than the last character, for all that lie beyond it.
        self._ids = np.full(int(points[-1]) + 2, -1, np.int32)
        self._ids[points] = np.arange(len(points), dtype=np.int32)
        self._bytes = [character.encode("utf-8") for character in self.characters]

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
        points = _code_points(text)
        ids = self._ids[np.minimum(points, len(self._ids) - 1)]
        missing = ids < 0
        if missing.any():
            if unknown == "refuse":
                raise unknown_characters(self.name, map(int, np.unique(points[missing])))
            ids = ids[~missing]
        return ids.astype(np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`."""
        return "".join(self.characters[token] for token in ids)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The text of `ids` as UTF-8."""
        return b"".join(self._bytes[token] for token in ids)

    def stream(self) -> StreamDecoder:
        """A decoder for ids that arrive one at a time."""
        return StreamDecoder(self._bytes.__getitem__)

    def unknown_to(self, points: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Those of the code points `points` that have no token."""
        return points[self._ids[np.minimum(points, len(self._ids) - 1)] < 0]

    def to_json(self) -> str:
        """The tokenizer as JSON, for `load_tokenizer`."""
        value = {"kind": "partwise.tokenizer", "version": 1, "type": "char"}
        return json.dumps({**value, "characters": self.characters}, ensure_ascii=False)


def unknown_characters(name: str, points: Iterable[int]) -> TextError:
    """The error that names characters, given as code points, which tokenizer `name` lacks."""
    known = list(points)
    shown = [
        f"{chr(point)!r} (U+{point:04X})" if chr(point).isprintable() else f"U+{point:04X}"
        for point in known[:5]
    ]
    return TextError(
        "the tokenizer {name} does not know {characters}{more}; use other characters, or "
        "--unknown skip to leave them out",
        name=name,
        characters=", ".join(shown),
        more=f" … ({len(known)})" if len(known) > len(shown) else "",
    )


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    # A surrogate can come from a prompt; it is passed here so that it can be named as unknown.
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
