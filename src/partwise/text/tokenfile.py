"""Token files: tokens on disk, memory-mapped, in shards, with a header that says what they are.

A token file is a folder: `header.json`, and shards `00000.bin`, `00001.bin`, ... of little-endian
whole numbers, as narrow as the vocabulary permits (1, 2 or 4 bytes).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from partwise.errors import StorageError, TextError
from partwise.messages import Notice
from partwise.storage import read_json, sha256_file, write_folder, write_json
from partwise.storage.faults import writing
from partwise.text.dtypes import dtype_for
from partwise.text.tokenizers import Tokenizer

KIND = "partwise.tokens"
VERSION = 1
HEADER = "header.json"

Ids = npt.NDArray[Any]


@dataclass(frozen=True)
class Header:
    """What a token file holds.

    Args:
        dtype: "u1", "<u2" or "<u4".
        vocab_size: number of different tokens.
        tokens: number of tokens in all shards.
        tokenizer: name of the tokenizer.
        tokenizer_fingerprint: its fingerprint.
        unit: what its tokens are: "characters", "bytes" or "tokens".
        text: name of the text.
        text_fingerprint: SHA-256 of the text.
        shards: of each shard its file name, its tokens and its SHA-256.
    """

    dtype: str
    vocab_size: int
    tokens: int
    tokenizer: str
    tokenizer_fingerprint: str
    unit: str
    text: str
    text_fingerprint: str
    shards: tuple[tuple[str, int, str], ...]


class TokenFile:
    """The tokens of one text, read from disk as they are needed.

    Args:
        folder: the token file.
        tokenizer: the tokenizer it must have been made with; None takes any.
        verify: also read every shard and compare its checksum.

    Raises:
        TextError: it was made with another tokenizer; the line names both.
        StorageError: a file is missing, cut short, changed, or of a newer version.
    """

    def __init__(
        self, folder: Path, tokenizer: Tokenizer | None = None, *, verify: bool = False
    ) -> None:
        self.folder = folder
        _, value = read_json(folder / HEADER, kind=KIND, newest=VERSION)
        shards = tuple((str(n), int(t), str(s)) for n, t, s in value.pop("shards"))
        self.header = Header(**value, shards=shards)
        if tokenizer is not None and self.header.tokenizer_fingerprint != tokenizer.fingerprint:
            raise TextError(
                "{folder} was prepared with the tokenizer {found} ({found_mark}) and not with "
                "{wanted} ({wanted_mark}); prepare the text again with the one that is used",
                folder=folder,
                found=self.header.tokenizer,
                found_mark=self.header.tokenizer_fingerprint[:8],
                wanted=tokenizer.name,
                wanted_mark=tokenizer.fingerprint[:8],
            )
        dtype = np.dtype(self.header.dtype)
        self._shards: list[Ids] = []
        for name, tokens, sha256 in shards:
            path = folder / name
            size = path.stat().st_size if path.is_file() else 0
            if size != tokens * dtype.itemsize or (verify and sha256_file(path) != sha256):
                raise StorageError(
                    "{path} is torn: it is not the {tokens} tokens that were written; delete "
                    "{folder} and prepare the text again",
                    path=path,
                    tokens=f"{tokens:,}",
                    folder=folder,
                )
            self._shards.append(np.memmap(path, dtype, "r", shape=(tokens,)).view(np.ndarray))
        self._ends = np.cumsum([tokens for _, tokens, _ in shards], dtype=np.int64)

    def __len__(self) -> int:
        return self.header.tokens

    def view(self, start: int = 0, stop: int | None = None) -> "TokenView":
        """The tokens from `start` to before `stop`; nothing is read yet."""
        return TokenView(self, *slice(start, stop).indices(len(self))[:2])

    def read(self, start: int, stop: int) -> Ids:
        """The tokens from `start` to before `stop`; a copy only where they span shards."""
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right").tolist()
        parts = []
        for number in range(first, last + 1):
            before = int(self._ends[number - 1]) if number else 0
            parts.append(self._shards[number][max(start - before, 0) : stop - before])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def rows(self, starts: npt.NDArray[np.int64], length: int) -> Ids:
        """`read(start, start + length)` for each of `starts`, one a row; always a copy."""
        ends = np.concatenate([starts, starts + (length - 1)])
        shard = np.searchsorted(self._ends, ends, side="right")
        if len(starts) == 0 or shard.min() != shard.max():
            parts = [self.read(start, start + length) for start in starts.tolist()]
            return np.stack(parts) if parts else np.empty((0, length), self.header.dtype)
        # All in one shard, as in every text of a usual size: one look-up instead of one a row.
        number = int(shard[0])
        before = int(self._ends[number - 1]) if number else 0
        found: Ids = self._shards[number][(starts - before)[:, None] + np.arange(length)]
        return found


class TokenView:
    """A part of a token file; `view[a:b]` reads tokens a to b - 1 of it.

    Args:
        file: the token file.
        start: the part's first token.
        stop: the token after its last.
    """

    def __init__(self, file: TokenFile, start: int, stop: int) -> None:
        self.file = file
        self.start = start
        self.stop = max(start, stop)

    def count(self, number: int) -> Notice:
        """`number` tokens of this text as a reader calls them: characters, bytes or tokens."""
        shown = f"{number:,}"
        unit = self.file.header.unit
        if unit == "characters":
            return Notice("{count} characters", count=shown)
        return (
            Notice("{count} bytes", count=shown)
            if unit == "bytes"
            else Notice("{count} tokens", count=shown)
        )

    def __len__(self) -> int:
        return self.stop - self.start

    def rows(self, starts: npt.NDArray[np.int64], length: int) -> Ids:
        """`length` tokens from each of `starts` on, one row each (starts, length); a copy."""
        return self.file.rows(self.start + starts, length)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Ids: ...
    def __getitem__(self, place: int | slice) -> int | Ids:
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            if step != 1:
                return self[:][place]
            if stop <= start:
                return np.empty(0, self.file.header.dtype)
            return self.file.read(self.start + start, self.start + stop)
        found = range(self.start, self.stop)[place]
        return int(self.file.read(found, found + 1)[0])


def write_tokens(
    folder: Path,
    blocks: Iterable[Ids],
    *,
    tokenizer: Tokenizer,
    text: str,
    text_fingerprint: str,
    shard_tokens: int,
) -> None:
    """Write a token file, whole or not at all.

    Args:
        folder: the token file.
        blocks: the tokens, piece by piece; no more than a piece is held in memory.
        tokenizer: what they were made with.
        text: name of the text.
        text_fingerprint: SHA-256 of the text.
        shard_tokens: tokens in a shard, at most.

    Raises:
        StorageError: the disk is full, or the folder may not be written to.
    """
    dtype = dtype_for(tokenizer.vocab_size)
    shards: list[tuple[str, int, str]] = []
    rest = iter(blocks)
    block: Ids = np.empty(0, dtype)
    with write_folder(folder) as partial:
        while len(block) or (block := _next_block(rest, dtype)).size:
            name = f"{len(shards):05d}.bin"
            written = 0
            digest = hashlib.sha256()
            with writing(folder), (partial / name).open("wb") as file:
                while written < shard_tokens:
                    if not len(block) and not (block := _next_block(rest, dtype)).size:
                        break
                    head = block[: shard_tokens - written]
                    block = block[len(head) :]
                    file.write(head.data)
                    digest.update(head.data)
                    written += len(head)
            shards.append((name, written, digest.hexdigest()))
        header = {
            "dtype": dtype.str.replace("|", ""),
            "vocab_size": tokenizer.vocab_size,
            "tokens": sum(tokens for _, tokens, _ in shards),
            "tokenizer": tokenizer.name,
            "tokenizer_fingerprint": tokenizer.fingerprint,
            "unit": tokenizer.unit,
            "text": text,
            "text_fingerprint": text_fingerprint,
            "shards": shards,
        }
        write_json(partial / HEADER, header, kind=KIND, version=VERSION)


def _next_block(blocks: Iterable[Ids], dtype: np.dtype[Any]) -> Ids:
    """The next piece that is not empty, as `dtype`; an empty one when there is none."""
    for block in blocks:
        if len(block):
            return np.ascontiguousarray(block, dtype)
    return np.empty(0, dtype)
