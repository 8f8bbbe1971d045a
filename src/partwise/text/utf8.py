"""Reading UTF-8 in blocks, and saying exactly where a file is not UTF-8."""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from partwise.errors import TextError
from partwise.storage.faults import reading
from partwise.text.formats import looks_like_gb18030


def decoded(
    file: BinaryIO, label: str, errors: Literal["strict", "replace"], block: int
) -> Iterator[str]:
    """The text of a file in blocks that are never empty and never cut a character.

    Args:
        file: the bytes.
        label: what a message calls them.
        errors: refuse bytes that are not UTF-8, or give U+FFFD for them.
        block: length of a block (bytes).

    Raises:
        TextError: bytes are not UTF-8; the line names the place, counted from 0.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    place = 0
    while True:
        with reading(Path(label)):
            data = file.read(block)
        held = decoder.getstate()[0]
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise _not_utf8(
                label, place - len(held) + error.start, held + data, error.start
            ) from error
        if text:
            yield text
        if not data:
            return
        place += len(data)


def _not_utf8(label: str, place: int, data: bytes, start: int) -> TextError:
    values = {"path": label, "place": f"{place:,}", "byte": f"0x{data[start]:02x}"}
    if looks_like_gb18030(data[: 1 << 16]):
        return TextError(
            "{path} is not UTF-8 at byte {place} ({byte}) and looks like GB18030; save it as UTF-8 "
            "(iconv -f GB18030 -t UTF-8), or --errors replace to read U+FFFD there",
            **values,
        )
    return TextError(
        "{path} is not UTF-8 at byte {place} ({byte}); save it as UTF-8, or --errors replace to "
        "read U+FFFD there",
        **values,
    )
