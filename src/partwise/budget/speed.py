"""How fast a model trains here: a few steps of the product's own loop, on random tokens."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from partwise.budget.recipes import Recipe
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.text.batches import windows
from partwise.training.data import Batch, Data
from partwise.training.events import Stepped
from partwise.training.loop import train
from partwise.training.pieces import reads_short

# Steps that are taken, the first of which do not count.
TRIED, UNCOUNTED = 5, 2


def speed_of(begin: Recipe, clock: Callable[[], float] = time.perf_counter) -> float:
    """Tokens a second, uncompiled, of the fastest steps: what else the machine does only slows.

    Where a run reads short texts first, steps of both kinds are measured, and count by their share.

    Args:
        begin: the model, with its vocabulary, and its training.
        clock: seconds; those of the process where others use the machine.
    """
    random_state = torch.get_rng_state()
    seconds = _step_seconds(begin, 0.0, clock)
    if reads_short(begin.train, begin.model.context_length):
        share = begin.train.short_share
        seconds = (1 - share) * seconds + share * _step_seconds(begin, 1.0, clock)
    torch.set_rng_state(random_state)
    return begin.train.batch_size * begin.model.context_length / max(seconds, 1e-9)


def _step_seconds(begin: Recipe, short_share: float, clock: Callable[[], float]) -> float:
    """What the fastest of some steps takes; `short_share` 0: of whole texts, 1: of short ones."""
    text = RandomText(begin.model, begin.train.batch_size)
    data = Data(text, np.zeros(2, np.int64), windows, 1 << 30)
    config = replace(
        begin.train,
        steps=1 << 30,  # a long run's; it is left early
        epochs=None,
        tokens=None,
        minutes=None,
        compile="off",
        short_share=short_share,
        log_every=1,
        eval_every=1 << 30,
    )
    marks: list[float] = []
    events = train(GPT(begin.model), data, config)
    for event in events:
        if isinstance(event, Stepped):
            marks.append(clock())
            if len(marks) == TRIED:
                break
    events.close()
    return min(later - before for before, later in pairwise(marks[UNCOUNTED - 1 :]))


class RandomText:
    """Batches of random tokens: a pure function of the step, like those of a real text.

    Args:
        model: whose vocabulary and context they fit.
        batch_size: texts a batch.
    """

    def __init__(self, model: ModelConfig, batch_size: int) -> None:
        self.batch_size = batch_size
        self.context_length = model.context_length
        self._vocab_size = model.vocab_size

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """Inputs and targets (batch_size, context_length)."""
        shape = (self.batch_size, self.context_length + 1)
        tokens = np.random.default_rng(step).integers(0, self._vocab_size, shape)  # (B, T + 1)
        return np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])
