"""A model that says what it was told to, and a tokenizer whose tokens cut characters apart."""

import codecs
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from partwise.errors import TextError
from partwise.model.cache import KVCache
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT


class Scripted(GPT):
    """Says the given tokens one after another, whatever it reads; row i says script i.

    `read` keeps the ids of each forward pass.
    """

    def __init__(
        self, scripts: Sequence[Sequence[int]], vocab_size: int, context: int = 64
    ) -> None:
        super().__init__(
            ModelConfig(
                vocab_size=vocab_size, context_length=context, n_layers=1, d_model=4, n_heads=1
            )
        )
        self.scripts = scripts
        self.read: list[list[list[int]]] = []

    def hidden(self, ids: Tensor, cache: KVCache | None = None, observe: object = None) -> Tensor:
        self.read.append(ids.tolist())
        return torch.zeros(*ids.shape, 1)

    def logits(self, x: Tensor, observe: object = None) -> Tensor:
        step = len(self.read) - 1
        scores = torch.full((len(x), self.config.vocab_size), -10.0)
        for row in range(len(x)):
            script = self.scripts[row % len(self.scripts)]
            scores[row, script[step % len(script)]] = 10.0
        return scores


class Pieces:
    """A tokenizer over the given byte strings; `end` is the id of a special token without text."""

    def __init__(self, pieces: Sequence[bytes], end: int | None = None) -> None:
        self.pieces = list(pieces)
        self.end_of_text = end
        self.vocab_size = len(self.pieces)

    def encode(self, text: str, *, unknown: str = "refuse") -> np.ndarray:
        """Longest piece first."""
        ids, rest = [], text.encode("utf-8")
        while rest:
            fitting = [i for i, piece in enumerate(self.pieces) if piece and rest.startswith(piece)]
            if fitting:
                ids.append(max(fitting, key=lambda i: len(self.pieces[i])))
                rest = rest[len(self.pieces[ids[-1]]) :]
            elif unknown == "refuse":
                raise TextError("no token for {rest!r}", rest=rest)
            else:
                rest = rest[1:]
        return np.array(ids, dtype=np.int64)

    def stream(self, after: Iterable[int] = ()) -> "Stream":
        return Stream(self.pieces)


class Stream:
    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self.decoder.decode(self.pieces[token])

    def finish(self) -> str:
        return self.decoder.decode(b"", final=True)
