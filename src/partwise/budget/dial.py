"""The minutes dial: how long a run may take decides which model it trains.

A model twice as large learns more from each token and reads half as many. How many it reads is
measured here and now, what it learns from them says the law (see `law.py`); the size with the
lowest loss is taken.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from partwise.budget.family import SIZES, Size, inner_parameters, member
from partwise.budget.law import Law, standing
from partwise.budget.recipes import Recipe
from partwise.budget.surprise import surprise
from partwise.messages import Notice
from partwise.model.gpt import GPT
from partwise.text.batches import windows
from partwise.text.prepare import Prepared
from partwise.training.data import Batch, Data
from partwise.training.events import Stepped
from partwise.training.loop import train

# Steps of each size that are taken to measure its speed, the first of which do not count.
TRIED, UNCOUNTED = 5, 2

# Minutes from which the dial chooses: measuring takes some seconds of them.
SHORTEST = 0.5

# Share of the time after which no further size is measured, and what is left for the run at least.
MEASURING, LEAST = 0.25, 0.1

# What is said of a training that changes how fast it is.
SAID_OF_SPEED = ("device", "dtype", "threads", "batch_size", "accumulation", "optimizer")

# A model with more parameters for each token of the text learns it by heart, which the law, fitted
# to runs of few readings, does not know. A guess: no run has measured it yet.
PARAMETERS_A_TOKEN = 5.0

# Share of the time that goes into evaluations, saving and the first steps.
BESIDES = 0.04


@dataclass(frozen=True)
class Facts:
    """What the dial knows of a text.

    Args:
        vocab_size: different tokens.
        train_tokens, validation_tokens: tokens in each part.
        surprise: how hard it is (nats a token).
    """

    vocab_size: int
    train_tokens: int
    validation_tokens: int
    surprise: float


@dataclass(frozen=True)
class Choice:
    """What the dial chose.

    Args:
        size: of the model.
        tokens: that the run will read.
        loss: what it should reach (nats a token).
        interval: where nine of ten such runs end.
    """

    size: Size
    tokens: float
    loss: float
    interval: tuple[float, float]


def facts_of(prepared: Prepared) -> Facts:
    """What the dial knows of a prepared text."""
    vocab_size = prepared.tokenizer.vocab_size
    return Facts(
        vocab_size,
        len(prepared.train),
        len(prepared.validation),
        surprise(prepared.train, prepared.validation, vocab_size),
    )


def choose_size(
    seconds: float, facts: Facts, measured: Iterable[tuple[Size, float]], law: Law
) -> Choice:
    """The size that should reach the lowest loss in that time.

    `measured` is read only as far as it is needed: once two sizes in turn promise less than a
    smaller one, larger ones would too.

    Args:
        seconds: of training.
        facts: of the text.
        measured: sizes, from small to large, and the tokens a second that each trains on here.
        law: what a run reaches.
    """
    best: Choice | None = None
    worse = 0
    for size, speed in measured:
        tokens = speed * seconds * (1 - BESIDES)
        parameters = inner_parameters(member(size, facts.vocab_size).model)
        if best is not None and parameters > PARAMETERS_A_TOKEN * facts.train_tokens:
            break
        loss = law.loss(parameters, tokens, facts.train_tokens, facts.surprise)
        if best is None or loss < best.loss:
            best, worse = Choice(size, tokens, loss, law.interval(loss)), 0
        else:
            worse += 1
        if worse == 2:
            break
    assert best is not None
    return best


def turn(
    minutes: float,
    prepared: Prepared,
    said: Mapping[str, Any],
    *,
    sizes: Sequence[Size] = SIZES,
    report: Callable[[int, int], None] = lambda done, of: None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[str, Recipe, tuple[Notice, ...]]:
    """Measure, choose, and say so.

    Args:
        minutes: of the run, this measurement among them.
        prepared: the text, with a token to train on at least.
        said: settings of the training that the user named.
        sizes: to choose from, from small to large.
        report: is told how many sizes were measured, of how many.
        clock: seconds.

    Returns:
        The chosen size's name; the recipe, with the minutes that are left; the choice in words.
    """
    began = clock()
    facts = facts_of(prepared)
    changed = {name: value for name, value in said.items() if name in SAID_OF_SPEED}

    def measured() -> Iterator[tuple[Size, float]]:
        for number, found in enumerate(speeds(facts, sizes, changed, clock), start=1):
            report(number, len(sizes))
            yield found
            if clock() - began > 60 * minutes * MEASURING:
                break

    choice = choose_size(60 * minutes, facts, measured(), standing())
    begin = recipe_for(choice, facts)
    left = max(minutes - (clock() - began) / 60, minutes * LEAST)
    train = replace(begin.train, minutes=round(left, 3))
    return str(choice.size), Recipe(begin.model, train), about(choice, facts, minutes)


def speeds(
    facts: Facts,
    sizes: Sequence[Size] = SIZES,
    changed: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[tuple[Size, float]]:
    """Each size and the tokens a second that it trains on, measured when it is asked for.

    Some steps of the product's own loop on random tokens, uncompiled.

    Args:
        facts: of the text.
        sizes: from small to large.
        changed: settings of the training that are not the family's.
        clock: seconds.
    """
    for size in sizes:
        begin = member(size, facts.vocab_size)
        begin = replace(begin, train=replace(begin.train, **(changed or {})))
        random_state = torch.get_rng_state()
        text = _Random(begin, facts.vocab_size)
        data = Data(text, np.zeros(2, np.int64), windows, 1 << 30)
        config = replace(
            begin.train, steps=TRIED + 1, compile="off", log_every=1, eval_every=1 << 30
        )
        marks: list[float] = []
        events = train(GPT(begin.model), data, config)
        for event in events:
            if isinstance(event, Stepped):
                marks.append(clock())
                if len(marks) == TRIED:
                    break
        events.close()
        torch.set_rng_state(random_state)
        # The fastest step: what else the machine does only slows.
        step = min(later - before for before, later in pairwise(marks[UNCOUNTED - 1 :]))
        yield size, text.batch_size * text.context_length / max(step, 1e-9)


class _Random:
    """Batches of random tokens: a pure function of the step."""

    def __init__(self, begin: Recipe, vocab_size: int) -> None:
        self.batch_size = begin.train.batch_size
        self.context_length = begin.model.context_length
        self._vocab_size = vocab_size

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """Inputs and targets (batch_size, context_length)."""
        shape = (self.batch_size, self.context_length + 1)
        tokens = np.random.default_rng(step).integers(0, self._vocab_size, shape)
        return np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])


def recipe_for(choice: Choice, facts: Facts) -> Recipe:
    """The model and its training."""
    return member(choice.size, facts.vocab_size, readings=choice.tokens / facts.train_tokens)


def about(choice: Choice, facts: Facts, minutes: float) -> tuple[Notice, ...]:
    """The choice and what to expect of it, in words."""
    begin = recipe_for(choice, facts)
    return (
        Notice(
            "{minutes:g} minutes: {layers} layers of width {width} read about {tokens:,.0f} "
            "tokens here, the text {readings:.1f} times; dropout {dropout:g} "
            "(--preset, --recipe, --model.*)",
            minutes=minutes,
            layers=choice.size.layers,
            width=choice.size.width,
            tokens=choice.tokens,
            readings=choice.tokens / facts.train_tokens,
            dropout=begin.model.dropout,
        ),
        Notice(
            "validation loss expected: {loss:.2f}, nine times of ten from {low:.2f} to {high:.2f}",
            loss=choice.loss,
            low=choice.interval[0],
            high=choice.interval[1],
        ),
    )
