"""The first reading of a text: its fingerprint, its characters, and what is unusual about it."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from partwise.errors import TextError
from partwise.text.sources import Source


@dataclass(frozen=True)
class Scan:
    """What one reading of a text finds.

    Args:
        fingerprint: SHA-256 of the text as UTF-8 (64 hex digits).
        bytes: its length as UTF-8.
        characters: its length in code points.
        code_points: its different characters, sorted, (distinct,).
        marks: byte-order marks (U+FEFF) at the start of files.
        crlf: line ends that are CRLF.
        nul: NUL characters.
    """

    fingerprint: str
    bytes: int
    characters: int
    code_points: npt.NDArray[np.uint32]
    crlf: int
    nul: int


def scan(source: Source, errors: Literal["strict", "replace"], done: Callable[[int], None]) -> Scan:
    """Read a text once, in constant memory.

    Args:
        source: the text.
        errors: what to do with bytes that are not UTF-8.
        done: is told of every number of bytes read.

    Raises:
        TextError: the text is empty, or not UTF-8.
    """
    digest = hashlib.sha256()
    size = characters = crlf = nul = 0
    ascii_seen = b""
    seen = np.zeros(0x110000, np.bool_)
    last = b""
    for text in source.blocks(errors):
        data = text.encode("utf-8")
        digest.update(data)
        size += len(data)
        characters += len(text)
        crlf += data.count(b"\r\n") + (last == b"\r" and data[:1] == b"\n")
        nul += data.count(b"\0")
        last = data[-1:]
        if text.isascii():
            # Deleting what is known leaves next to nothing to look at.
            ascii_seen += bytes(set(data.translate(None, ascii_seen)))
        else:
            seen[np.frombuffer(text.encode("utf-32-le"), np.uint32)] = True
        done(len(data))
    if not size:
        raise TextError(
            "{spec} is empty; give a text with at least one character", spec=source.spec
        )
    seen[np.frombuffer(ascii_seen, np.uint8)] = True
    return Scan(
        fingerprint=digest.hexdigest(),
        bytes=size,
        characters=characters,
        code_points=np.flatnonzero(seen).astype(np.uint32),
        crlf=crlf,
        nul=nul,
    )
