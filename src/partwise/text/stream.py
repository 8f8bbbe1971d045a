"""Text from tokens that arrive one at a time, never half a character."""

import codecs
from collections.abc import Callable


class StreamDecoder:
    """`"".join(push(id) for id in ids) + finish() == decode(ids)`, for every sequence of ids.

    A character whose bytes are spread over several tokens is held back until it is whole. Bytes
    that can no longer become a character are given as U+FFFD, as `decode` gives them.

    Args:
        piece: token id -> the bytes it stands for.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that `token` completes; often one, sometimes none."""
        return self._decoder.decode(self._piece(token))

    def finish(self) -> str:
        """What was held back: U+FFFD for a character that never became whole, else nothing."""
        return self._decoder.decode(b"", final=True)
