"""One token a byte of UTF-8: 256 tokens are enough for every text there is."""

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from partwise.errors import TextError
from partwise.text.stream import StreamDecoder, Utf8Stream


class ByteTokenizer:
    """id(b) = b, for every byte b of the text's UTF-8."""

    name = "byte"
    unit = "bytes"
    vocab_size = 256

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the JSON form (64 hex digits)."""
        return hashlib.sha256(self.to_json().encode("utf-8")).hexdigest()

    def encode(
        self, text: str, *, unknown: Literal["refuse", "skip"] = "refuse"
    ) -> npt.NDArray[np.int64]:
        """The bytes of `text`.

        Args:
            text: any text.
            unknown: refuse half of a surrogate pair, which has no UTF-8, or leave it out.

        Returns:
            ids, (bytes,).

        Raises:
            TextError: the text holds half of a surrogate pair and `unknown` is "refuse".
        """
        return np.frombuffer(utf8(text, unknown), np.uint8).astype(np.int64)

    def encode_blocks(
        self, texts: Iterable[str], *, unknown: Literal["refuse", "skip"] = "refuse"
    ) -> Iterator[npt.NDArray[Any]]:
        """The bytes of the joined `texts`, block by block, one byte each."""
        for text in texts:
            yield np.frombuffer(utf8(text, unknown), np.uint8)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, with U+FFFD for bytes that are not UTF-8."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes that `ids` are."""
        return bytes(map(int, ids))

    def stream(self, after: Iterable[int] = ()) -> StreamDecoder:
        """A decoder for ids that arrive one at a time, behind those of `after`."""
        return Utf8Stream(lambda id: bytes((int(id),)), after=after)

    def to_json(self) -> str:
        """The tokenizer as JSON, for `load_tokenizer`."""
        return json.dumps({"kind": "partwise.tokenizer", "version": 1, "type": "byte"})


def utf8(text: str, unknown: Literal["refuse", "skip"]) -> bytes:
    """`text` as UTF-8.

    Raises:
        TextError: the text holds half of a surrogate pair and `unknown` is "refuse".
    """
    try:
        return text.encode("utf-8", "strict" if unknown == "refuse" else "ignore")
    except UnicodeEncodeError as error:
        raise TextError(
            "character {place} is U+{point:04X}, half of a surrogate pair; give whole characters, "
            "or --unknown skip to leave it out",
            place=error.start + 1,
            point=ord(text[error.start]),
        ) from error
