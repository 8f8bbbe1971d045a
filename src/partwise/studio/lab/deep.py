"""The deep stack before training, and the race of pre-norm against post-norm."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from partwise.ladder import depth
from partwise.ladder.deep import RACE_NORMS, Stack, StackNorm
from partwise.model.config import Initialisation
from partwise.studio.lab.limits import within
from partwise.text.batches import Batches, windows
from partwise.text.prepare import Prepared
from partwise.training.data import Data
from partwise.training.events import Finished, Stepped

DEEPEST = 128
LONGEST = 1000


def stack(
    residual: bool, norm: StackNorm, initialisation: Initialisation, layers: int, text: Prepared
) -> Stack:
    """One stack of `layers` blocks, untrained, that reads a piece of the text.

    Args:
        residual, norm, initialisation: the switches.
        layers: how many blocks.
        text: what it reads.

    Raises:
        UsageError: too few or too many blocks.
    """
    within("layers", layers, 1, DEEPEST)
    base = dataclasses.replace(depth.STACK, n_layers=layers, vocab_size=text.tokenizer.vocab_size)
    return depth.stack(residual, norm, initialisation, base=base, ids=pieces(text))


def pieces(
    text: Prepared,
    count: int = depth.TEXTS,
    length: int = depth.STACK.context_length,
    validation: bool = False,
) -> Tensor:
    """Pieces of a text, each with one token more than is read of it (count, length + 1).

    Args:
        text: whose.
        count: how many.
        length: tokens that are read of each.
        validation: from the validation split; else from what is learned.
    """
    view = text.validation if validation else text.train
    inputs, targets = Batches(view, length, count, 1).batch(0)
    return torch.from_numpy(np.concatenate([inputs, targets[:, -1:]], axis=1))


def race(
    initialisation: Initialisation, layers: int, steps: int, text: Prepared
) -> Iterator[tuple[StackNorm, Stepped | Finished]]:
    """Both stacks trained side by side, step by step, alike in all but the place of the norm.

    Args:
        initialisation: how the weights start.
        layers: how many blocks.
        steps: how long.
        text: what they learn.

    Raises:
        UsageError: a number out of range.
    """
    within("layers", layers, 1, DEEPEST)
    within("steps", steps, 5, LONGEST)
    base = dataclasses.replace(depth.RACER, n_layers=layers, vocab_size=text.tokenizer.vocab_size)

    def data(context_length: int, batch_size: int, seed: int) -> Data:
        batches = Batches(text.train, context_length, batch_size, seed)
        return Data(batches, text.validation, windows, len(text.train))

    lanes = {
        norm: depth.racing(norm, initialisation, data, base=base, steps=steps)
        for norm in RACE_NORMS
    }
    while lanes:
        for norm, lane in tuple(lanes.items()):
            event = next(lane, None)
            if event is None:
                del lanes[norm]
            else:
                yield norm, event
