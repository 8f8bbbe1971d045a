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
        marks: byte-order marks (U+FEFF).
        crlf: line ends that are CRLF.
        nul: NUL characters.
        replaced: U+FFFD in the text; with errors="replace", most stand for bytes not UTF-8.
    """

    fingerprint: str
    bytes: int
    characters: int
    code_points: npt.NDArray[np.uint32]
    marks: int
    crlf: int
    nul: int
    replaced: int


def scan(source: Source, errors: Literal["strict", "replace"], done: Callable[[int], None]) -> Scan:
    """Read a text once, in constant memory.

    Args:
        source: the text.
        errors: what to do with bytes that are not UTF-8.
        done: is told the number of bytes read, block by block.

    Raises:
        TextError: the text is empty, or not UTF-8.
    """
    digest = hashlib.sha256()
    size = characters = marks = crlf = nul = replaced = 0
    ascii_seen = b""
    seen = np.zeros(0x110000, np.bool_)
    last = ""
    for text in source.blocks(errors):
        data = text.encode("utf-8")
        digest.update(data)
        size += len(data)
        characters += len(text)
        if b"\r" in data or last == "\r":
            crlf += data.count(b"\r\n") + (last == "\r" and text[0] == "\n")
        nul += data.count(b"\0")
        last = text[-1]
        if text.isascii():
            # Deleting what is known leaves next to nothing to look at.
            ascii_seen += bytes(set(data.translate(None, ascii_seen)))
        else:
            seen[np.frombuffer(text.encode("utf-32-le"), "<u4")] = True
            marks += text.count("\ufeff")
            replaced += text.count("\ufffd")
        done(len(data))
    if not size:
        raise TextError(
            "{text} is empty; give a text with at least one character", text=source.label
        )
    seen[np.frombuffer(ascii_seen, np.uint8)] = True
    return Scan(
        fingerprint=digest.hexdigest(),
        bytes=size,
        characters=characters,
        code_points=np.flatnonzero(seen).astype(np.uint32),
        marks=marks,
        crlf=crlf,
        nul=nul,
        replaced=replaced,
    )
