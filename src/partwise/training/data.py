"""What training asks of the text: batches that follow from the step, and windows to evaluate on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Batch = tuple[Ids, Ids]


class Batches(Protocol):
    """Training batches: each is a pure function of (seed, step, rank), so nothing is remembered."""

    @property
    def batch_size(self) -> int:
        """Sequences a step, over all ranks."""

    @property
    def context_length(self) -> int:
        """Tokens a sequence."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """Inputs and targets of one step, each (batch_size / world, context_length).

        Pairs of texts may be laid out otherwise, with batch_size / world rows all the same; a
        target that is padding is -100, and counts for nothing.
        """


class View(Protocol):
    """A stretch of tokens, or pairs of texts; only `Windows` looks inside."""

    def __len__(self) -> int:
        """Tokens in it."""


class Windows(Protocol):
    """Cuts a view into windows that predict every token but the first exactly once.

    With `limit` it cuts a fixed sample of about that many tokens, spread evenly over the view.
    """

    def __call__(
        self, view: Any, context_length: int, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]: ...


class Ahead(Protocol):
    """Draws the batches from a step on before they are asked for."""

    def __call__(self, batches: Any, start: int) -> Iterator[Batch]: ...


def one_by_one(batches: Batches, start: int) -> Iterator[Batch]:
    """The batches from step `start` on, each drawn when it is asked for."""
    while True:
        yield batches.batch(start)
        start += 1


@dataclass(frozen=True)
class Data:
    """What a model is trained on and judged by.

    Args:
        train: the training batches.
        validation: the tokens that the model is evaluated on.
        windows: how `validation` is cut into batches.
        train_tokens: tokens of the training text; an epoch is this many.
        ahead: how training batches are drawn; it changes no batch.
    """

    train: Batches
    validation: View
    windows: Windows
    train_tokens: int
    ahead: Ahead = one_by_one
