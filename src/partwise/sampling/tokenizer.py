"""What sampling asks of a tokenizer; those of `partwise.text` are such, and others may be."""

from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


class StreamDecoder(Protocol):
    """Turns tokens into text as they come, and never gives half a character."""

    def push(self, id: int) -> str:
        """The characters that are whole now that token `id` has come."""
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

    def stream(self) -> StreamDecoder:
        """A decoder for tokens that come one by one."""
        ...


@runtime_checkable
class EndsText(Protocol):
    """A tokenizer with a special token between texts."""

    end_of_text: int | None
