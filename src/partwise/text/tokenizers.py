"""A tokenizer cuts a text into numbered tokens and puts tokens back into text."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from partwise.errors import TextError
from partwise.storage import read_small, refuse_pickle
from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer
from partwise.text.stream import StreamDecoder


class Tokenizer(Protocol):
    """What every tokenizer does.

    Attributes:
        name: how a message calls it, such as "char-65".
        unit: what its tokens are, for a message: "characters", "bytes" or "tokens".
        vocab_size: number of different tokens; ids are 0 .. vocab_size - 1.
        fingerprint: SHA-256 of what decides its ids (64 hex digits).
    """

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...

    def encode(
        self, text: str, *, unknown: Literal["refuse", "skip"] = "refuse"
    ) -> npt.NDArray[np.int64]:
        """The ids of `text`, (tokens,)."""

    def encode_blocks(
        self, texts: Iterable[str], *, unknown: Literal["refuse", "skip"] = "refuse"
    ) -> Iterator[npt.NDArray[Any]]:
        """The ids of the joined `texts`, block by block, in constant memory."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the text of `ids`, also where they are not UTF-8."""

    def to_json(self) -> str:
        """The tokenizer as JSON, for `load_tokenizer`."""

    def stream(self, after: Iterable[int] = ()) -> StreamDecoder:
        """A decoder for ids that arrive one at a time, behind those of `after`."""


def load_tokenizer(path: Path, *, special_tokens: bool = False) -> Tokenizer:
    """The tokenizer that a JSON file describes: one of ours, or any `tokenizer.json`.

    Args:
        path: the file.
        special_tokens: read the names of special tokens in a text as those tokens.

    Raises:
        TextError: the file is not a tokenizer.
        StorageError: the file is missing or a pickle.
    """
    refuse_pickle(path)
    data = read_small(path)
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TextError("{path} is not JSON; give a tokenizer.json", path=path) from error
    if isinstance(value, dict) and value.get("kind") == "partwise.tokenizer":
        if value.get("version") != 1:
            raise TextError(
                "{path} has tokenizer version {version} and this Partwise reads 1; upgrade "
                "Partwise",
                path=path,
                version=value.get("version"),
            )
        if value.get("type") == "byte":
            return ByteTokenizer()
        if value.get("type") == "char" and isinstance(value.get("characters"), str):
            return CharTokenizer(value["characters"])
    if isinstance(value, dict) and isinstance(value.get("model"), dict):
        # The one import that costs time, made only when such a file is met.
        from partwise.text.bpe import BPETokenizer

        return BPETokenizer(data.decode("utf-8"), label=str(path), special_tokens=special_tokens)
    raise TextError("{path} does not describe a tokenizer; give a tokenizer.json", path=path)
