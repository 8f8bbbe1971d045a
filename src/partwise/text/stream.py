"""Text from tokens that arrive one at a time, never half a character."""

import codecs
from collections.abc import Callable, Iterable
from typing import Protocol


class StreamDecoder(Protocol):
    """`"".join(push(id) for id in ids) + finish() == decode(ids)`, for every sequence of ids."""

    def push(self, id: int) -> str:
        """The characters that token `id` completes; often one, sometimes none."""

    def finish(self) -> str:
        """What was held back."""


class Utf8Stream:
    """A stream of tokens that stand for bytes.

    A character whose bytes are spread over several tokens is held back until it is whole. Bytes
    that can no longer become a character are given as U+FFFD, as `bytes.decode` gives them.

    Args:
        piece: token id -> the bytes it stands for.
        strip: spaces at the very beginning that are left out, at most.
        after: ids that have been shown already; the stream goes on behind them.
    """

    def __init__(
        self, piece: Callable[[int], bytes], *, strip: int = 0, after: Iterable[int] = ()
    ) -> None:
        self._piece = piece
        self._strip = strip
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for id in after:
            self.push(id)

    def push(self, id: int) -> str:
        """The characters that token `id` completes; often one, sometimes none."""
        data = self._piece(id)
        while self._strip and data:
            if not data.startswith(b" "):
                self._strip = 0
                break
            data = data[1:]
            self._strip -= 1
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What was held back: U+FFFD for a character that never became whole, else nothing."""
        return self._decoder.decode(b"", final=True)


class HeldStream:
    """A stream of tokens whose text may depend on those that follow: all comes at the end.

    Args:
        decode: ids -> their text.
        after: ids that have been shown already; their text is not given again.
    """

    def __init__(self, decode: Callable[[list[int]], str], after: Iterable[int] = ()) -> None:
        self._decode = decode
        self._ids = list(after)
        self._shown = len(decode(self._ids))

    def push(self, id: int) -> str:
        """Nothing yet."""
        self._ids.append(int(id))
        return ""

    def finish(self) -> str:
        """The text."""
        return self._decode(self._ids)[self._shown :]
