"""Batches: a batch is a pure function of (seed, step, rank), so that nothing about order is hidden.

The sequences of one step start at random places of the training text; evaluation instead reads a
text in consecutive windows, so that every token but the first is predicted exactly once.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import numpy as np
import numpy.typing as npt

from partwise.errors import ConfigError, TextError
from partwise.messages import Notice
from partwise.text.tokenfile import TokenView

Ids = npt.NDArray[np.int64]
Batch = tuple[Ids, Ids]


class Batches:
    """Inputs and, one token later, targets, from random places of a text.

    A step's sequences are the same whatever the number of processes: rank r of w reads the r-th of
    w equal parts of them.

    Args:
        train: the training tokens.
        context_length: length T of a sequence (tokens).
        batch_size: sequences B of one step, in all processes together.
        seed: any whole number from 0.
        order: "random": sequences start anywhere. "epochs": the text is cut into sequences, at
            places that differ from epoch to epoch, and all are read before one comes again.

    Raises:
        TextError: the text is shorter than one sequence and its last target.
    """

    def __init__(
        self,
        train: TokenView,
        context_length: int,
        batch_size: int,
        seed: int,
        order: Literal["random", "epochs"] = "random",
    ) -> None:
        require_tokens(train, context_length, "training")
        self.order = order
        # One sequence less than there are leaves room for cuts at any place.
        self._an_epoch = max(1, (len(train) - 1) // context_length - 1)
        self._cuts: dict[int, npt.NDArray[np.int64]] = {}
        self.train = train
        self.context_length = context_length
        self.batch_size = batch_size
        self.seed = seed

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of one process in one step.

        Args:
            step: number of the step, from 0.
            rank: number of the process, from 0.
            world: number of processes.

        Returns:
            inputs (B / world, T) and targets (B / world, T); targets[:, t] = inputs[:, t + 1].

        Raises:
            ConfigError: the step's sequences cannot be shared out evenly.
        """
        if self.batch_size % world:
            raise ConfigError(
                "batch_size={batch_size} is not divisible by {world} processes; "
                "batch_size={choice} would do",
                batch_size=self.batch_size,
                world=world,
                choice=world * max(1, round(self.batch_size / world)),
            )
        length = self.context_length + 1
        if self.order == "epochs":
            starts = self._next_in_epoch(step)
        else:
            # Raw words of a counter-based generator: NumPy promises that they never change, which
            # it does not of its distributions. The remainder's bias is below 2^-30 for any text.
            words = np.random.Philox(key=self.seed, counter=[0, step, 0, 0])
            raw = words.random_raw(self.batch_size) % np.uint64(len(self.train) - length + 1)
            starts = raw.astype(np.int64)
        share = self.batch_size // world
        starts = starts[rank * share : (rank + 1) * share]
        rows = self.train.rows(starts, length).astype(np.int64)
        return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(
            rows[:, 1:]
        )  # (B / world, T)

    def _next_in_epoch(self, step: int) -> npt.NDArray[np.int64]:
        first = step * self.batch_size
        numbers = np.arange(first, first + self.batch_size)
        epochs, places = np.divmod(numbers, self._an_epoch)
        return np.array(
            [self._epoch(epoch)[place] for epoch, place in zip(epochs, places, strict=True)],
            np.int64,
        )

    def _epoch(self, epoch: int) -> npt.NDArray[np.int64]:
        """Where the sequences of an epoch start, in the order in which they are read."""
        found = self._cuts.get(epoch)
        if found is None:
            words = np.random.Philox(key=self.seed, counter=[0, epoch, 1, 0])
            raw = words.random_raw(1 + self._an_epoch)
            room = len(self.train) - self._an_epoch * self.context_length
            found = int(raw[0]) % room + np.argsort(raw[1:], kind="stable") * self.context_length
            # Batches are drawn ahead by threads, at the border of two epochs from both.
            self._cuts = {epoch: found, **dict(list(self._cuts.items())[:1])}
        return found


def windows(
    view: TokenView, context_length: int, batch_size: int, limit: int | None = None
) -> Iterator[Batch]:
    """A text in consecutive windows: every token but the first is predicted exactly once.

    The last window may be shorter; it comes as a batch of its own.

    Args:
        view: the tokens.
        context_length: length T of a window (tokens).
        batch_size: windows in a batch, at most.
        limit: predict about this many tokens only, in whole windows spread evenly over the text.

    Yields:
        inputs (b, T) and targets (b, T).
    """
    predicted = max(len(view) - 1, 0)
    whole, rest = divmod(predicted, context_length)
    chosen = np.arange(whole)
    if limit is not None and limit < predicted:
        count = min(max(limit // context_length, 1), whole)
        chosen = np.arange(count) * whole // max(count, 1)
        rest = 0 if count else rest
    length = context_length + 1
    for first in range(0, len(chosen), batch_size):
        starts = chosen[first : first + batch_size] * context_length
        rows = view.rows(starts, length).astype(np.int64)
        yield np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])  # (b, T)
    if rest:
        row = view[whole * context_length : len(view)].astype(np.int64)[None]
        yield np.ascontiguousarray(row[:, :-1]), np.ascontiguousarray(row[:, 1:])  # (1, rest)


def ahead(
    batches: Batches, start: int, workers: int, rank: int = 0, world: int = 1
) -> Iterator[Batch]:
    """The batches from step `start` on, drawn ahead by threads; the same as drawn one by one.

    Args:
        batches: where they are drawn.
        start: the first step.
        workers: threads; 0 draws each batch when it is asked for.
        rank: number of this process.
        world: number of processes.

    Yields:
        Without end; closing the iterator, or losing it, ends its threads.
    """
    if workers == 0:
        while True:
            yield batches.batch(start, rank, world)
            start += 1
    pool = ThreadPoolExecutor(workers, thread_name_prefix="batches")
    waiting: deque[Future[Batch]] = deque()
    try:
        while True:
            while len(waiting) <= workers:
                waiting.append(pool.submit(batches.batch, start, rank, world))
                start += 1
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def require_tokens(
    view: TokenView,
    context_length: int,
    split: Literal["training", "validation"],
    shortest: int | None = None,
) -> None:
    """Check that a part of the text holds one sequence and its last target.

    Args:
        view: the part.
        context_length: length of a sequence (tokens).
        split: what the part is called.
        shortest: length of the shortest part, which the offered context must fit too.

    Raises:
        TextError: it is shorter; the line offers a context that fits.
    """
    if len(view) > context_length:
        return
    fits = (len(view) if shortest is None else min(shortest, len(view))) - 1
    values = {
        "part": Notice("the training part"),
        "have": view.count(len(view)),
        "need": f"{context_length + 1:,}",
    }
    if split == "validation":
        values["part"] = Notice("the validation part")
    if fits < 1:
        raise TextError("{part} has {have} where {need} are needed; give a longer text", **values)
    raise TextError(
        "{part} has {have} where {need} are needed; context_length={fits} would fit",
        **values,
        fits=fits,
    )
