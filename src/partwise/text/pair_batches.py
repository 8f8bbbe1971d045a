"""Batches of pairs: a batch is a pure function of (seed, step, rank), as those of a text are.

Pairs of about the same length come together, so that little of a batch is padding. A target that is
padding is `IGNORED`: no loss is counted there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from partwise.errors import ConfigError

Ids = npt.NDArray[np.int64]
Batch = tuple[Ids, Ids]

# torch's own number for a target that no loss is counted for.
IGNORED = -100

# How far lengths are mixed, so that the same pairs do not meet in every epoch (tokens).
MIXED = 4


@dataclass(frozen=True)
class EncodedPairs:
    """Pairs as token numbers, without PAD, START and END.

    Args:
        sources, targets: token numbers, one array a text.
    """

    sources: Sequence[Ids]
    targets: Sequence[Ids]

    def __len__(self) -> int:
        """Tokens that are predicted: those of the targets, and END after each."""
        return sum(len(target) + 1 for target in self.targets)

    @property
    def count(self) -> int:
        """Pairs."""
        return len(self.targets)


class Layout(Protocol):
    """How pairs become what a model reads and what it is to say."""

    def __call__(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """Inputs and targets of a batch of B pairs, each with B rows."""

    def lengths(self, pairs: EncodedPairs) -> Ids:
        """The places that each pair takes (tokens)."""


@dataclass(frozen=True)
class SideBySide:
    """For an encoder-decoder: inputs (B, 2, L) hold the source and what the decoder reads.

    Source: text END PAD …; decoder: START text PAD …; its targets (B, L): text END and no more.

    Args:
        pad, start, end: token numbers.
    """

    pad: int
    start: int
    end: int

    def __call__(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """See `Layout`."""
        length = 1 + max(map(len, (*sources, *targets)))
        inputs = np.full((len(sources), 2, length), self.pad, np.int64)
        expected = np.full((len(sources), length), IGNORED, np.int64)
        for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
            inputs[row, 0, : len(source)] = source
            inputs[row, 0, len(source)] = self.end
            inputs[row, 1, 0] = self.start
            inputs[row, 1, 1 : len(target) + 1] = target
            expected[row, : len(target)] = target
            expected[row, len(target)] = self.end
        return inputs, expected

    def lengths(self, pairs: EncodedPairs) -> Ids:
        """See `Layout`."""
        sides = zip(pairs.sources, pairs.targets, strict=True)
        return np.array([max(len(source), len(target)) for source, target in sides], np.int64)


@dataclass(frozen=True)
class InARow:
    """For a decoder alone: source START target, of which only the target and END are to be said.

    Args:
        pad, start, end: token numbers.
    """

    pad: int
    start: int
    end: int

    def __call__(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """See `Layout`; inputs and targets are (B, L)."""
        sides = list(zip(sources, targets, strict=True))
        length = 1 + max(len(source) + len(target) for source, target in sides)
        inputs = np.full((len(sides), length), self.pad, np.int64)
        expected = np.full((len(sides), length), IGNORED, np.int64)
        for row, (source, target) in enumerate(sides):
            begin, end = len(source), len(source) + len(target)
            inputs[row, :begin] = source
            inputs[row, begin] = self.start
            inputs[row, begin + 1 : end + 1] = target
            expected[row, begin:end] = target
            expected[row, end] = self.end
        return inputs, expected

    def lengths(self, pairs: EncodedPairs) -> Ids:
        """See `Layout`."""
        sides = zip(pairs.sources, pairs.targets, strict=True)
        return np.array([len(source) + len(target) for source, target in sides], np.int64)


class PairBatches:
    """Every pair once an epoch, in batches of `batch_size`; another order each epoch.

    Args:
        train: the training pairs.
        layout: how they are laid out.
        batch_size: pairs B of one step, in all processes together.
        seed: any whole number from 0.
    """

    def __init__(self, train: EncodedPairs, layout: Layout, batch_size: int, seed: int) -> None:
        self.train = train
        self.layout = layout
        self.batch_size = batch_size
        self.seed = seed
        # What a step counts as: the predicted tokens of a pair, on average.
        self.context_length = max(1, round(len(train) / train.count))
        self._lengths = layout.lengths(train)
        self._epoch: tuple[int, Ids] | None = None

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of one process in one step.

        Args:
            step: number of the step, from 0.
            rank: number of the process, from 0.
            world: number of processes.

        Raises:
            ConfigError: the step's pairs cannot be shared out evenly.
        """
        if self.batch_size % world:
            raise ConfigError(
                "batch_size={batch_size} is not divisible by {world} processes; "
                "batch_size={choice} would do",
                batch_size=self.batch_size,
                world=world,
                choice=world * max(1, round(self.batch_size / world)),
            )
        steps = -(-self.train.count // self.batch_size)
        epoch, place = divmod(step, steps)
        share = self.batch_size // world
        rows = self._order(epoch)[place][rank * share : (rank + 1) * share].tolist()
        return self.layout(
            [self.train.sources[row] for row in rows], [self.train.targets[row] for row in rows]
        )

    def _order(self, epoch: int) -> Ids:
        """Numbers of pairs (steps, batch_size)."""
        # Kept for speed alone: it follows from the seed and the epoch.
        kept = self._epoch
        if kept is not None and kept[0] == epoch:
            return kept[1]
        count, size = self.train.count, self.batch_size
        steps = -(-count // size)
        words = np.random.Philox(key=self.seed, counter=[0, epoch, 0, 1])
        mixed = self._lengths + (words.random_raw(count) % np.uint64(MIXED)).astype(np.int64)
        # Ties in an order of their own, which differs from epoch to epoch too.
        order = np.lexsort((words.random_raw(count), mixed))
        # The last batch is filled up from the beginning of the order.
        filled = np.resize(order, steps * size)
        chunks = filled.reshape(steps, size)[np.argsort(words.random_raw(steps), kind="stable")]
        self._epoch = (epoch, chunks)
        return chunks


@dataclass(frozen=True)
class PairWindows:
    """Pairs to evaluate on, in batches: every target token and END is predicted exactly once.

    Args:
        layout: how they are laid out.
    """

    layout: Layout

    def __call__(
        self, view: EncodedPairs, context_length: int, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        """The batches.

        Args:
            view: the pairs.
            context_length: of no use here; windows over a text take it.
            batch_size: pairs in a batch, at most.
            limit: predict about this many tokens only, of pairs spread evenly over all lengths.
        """
        order = np.argsort(self.layout.lengths(view), kind="stable")
        if limit is not None and limit < len(view):
            count = max(1, round(view.count * limit / len(view)))
            order = order[np.arange(count) * view.count // count]
        for first in range(0, len(order), batch_size):
            rows = order[first : first + batch_size].tolist()
            yield self.layout(
                [view.sources[row] for row in rows], [view.targets[row] for row in rows]
            )
