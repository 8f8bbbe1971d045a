"""What sampling asks of a tokenizer; those of `partwise.text` are such, and others may be."""

from collections.abc import Iterable
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


class StreamDecoder(Protocol):
    """Turns tokens into text as they come, and never gives half a character."""

    def push(self, token: int, /) -> str:
        """The characters that are whole now that `token` has come."""
        ...

    def finish(self) -> str:
        """What is left, U+FFFD where bytes make no character."""
        ...


class Tokenizer(Protocol):
    """Cuts text into tokens and joins it again."""

    @property
    def vocab_size(self) -> int:
        """Number of different tokens."""
        ...

    def encode(
        self, text: str, *, unknown: Literal["refuse", "skip"] = "refuse"
    ) -> npt.NDArray[np.generic]:
        """The tokens of `text`, refusing or skipping characters that have none."""
        ...

    def stream(self, after: Iterable[int] = ()) -> StreamDecoder:
        """A decoder for tokens that come one by one, behind those of `after`."""
        ...


@runtime_checkable
class EndsText(Protocol):
    """A tokenizer with a special token between texts."""

    @property
    def end_of_text(self) -> int | None:
        """Its id, or None."""
        ...
