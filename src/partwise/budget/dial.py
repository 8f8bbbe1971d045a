"""The minutes dial: how long a run may take decides which model it trains.

A model twice as large learns more from each token and reads half as many. How many it reads is
measured here and now, what it learns from them says the law (see `law.py`); the size with the
lowest loss is taken.

The minutes are those from the beginning of the command to its end: reading the text and measuring
come off them, and what is promised is what the rest buys.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from partwise.budget.choices import EVALUATED_TOKENS, fit_texts, fit_to_text
from partwise.budget.family import SIZES, TOO_MANY, Size, enough, inner_parameters, member
from partwise.budget.law import Law, standing
from partwise.budget.recipes import Recipe
from partwise.budget.speed import speed_of
from partwise.budget.surprise import surprise
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.settings import build
from partwise.text.prepare import Prepared
from partwise.training.config import TrainConfig

# Minutes from which the dial chooses: measuring takes some seconds of them.
SHORTEST = 0.5

# Share of the time after which no further size is measured, and what is left for the run at least.
MEASURING, LEAST = 0.25, 0.1

# Settings of the model that say how large it is; with one of them the dial chooses none.
OF_SIZE = frozenset(
    {"n_layers", "d_model", "n_heads", "head_dim", "d_ff", "attention", "feedforward"}
)

# A model with more parameters for each token of the text learns it by heart, which the law, fitted
# to runs of few readings, does not know.
PARAMETERS_A_TOKEN = 5.0

# Share of the time that goes into the first, slower steps and into saving.
BESIDES = 0.03

# A token that is judged costs a third of one that is learned from. The end of a run is judged by
# at most this share of what it read, and on the way it is judged as often as costs this share.
JUDGED, LOOKED = 0.1, 0.02

# No run that the dial ends early has fewer steps than these.
FEWEST_STEPS = 100

# Looks on the way, if they cost no more than that.
LOOKS = 8


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
class Wanted:
    """What the user said beside the minutes.

    Args:
        model, train: settings by name.
    """

    model: Mapping[str, Any]
    train: Mapping[str, Any]

    def over(self, begin: Recipe, facts: Facts) -> Recipe:
        """A recipe with all that laid over it, and texts that the text can fill."""
        model = build(ModelConfig, {**self.model, "vocab_size": facts.vocab_size}, begin.model)
        alone, _ = fit_to_text(
            replace(model, ngram=1), self.model.keys(), facts.train_tokens, facts.validation_tokens
        )
        ngram = model.ngram
        if "ngram" not in self.model:
            ngram = min(ngram, alone.context_length)
        train = build(TrainConfig, self.train, begin.train)
        train, _ = fit_texts(train, begin, self.train.keys(), alone.context_length)
        return Recipe(replace(alone, ngram=ngram), train)

    @property
    def unlimited(self) -> bool:
        """Whether nothing but the minutes was said to end the run."""
        return not self.train.keys() & {"steps", "epochs", "tokens"}

    def most(self, begin: Recipe, facts: Facts) -> float:
        """The tokens at which a limit that was said ends the run, if one was."""
        train = begin.train
        a_step = train.batch_size * begin.model.context_length
        limits = [
            None if train.steps is None else train.steps * a_step,
            None if train.epochs is None else train.epochs * facts.train_tokens,
            train.tokens,
        ]
        return min((limit for limit in limits if limit is not None), default=float("inf"))


NOTHING = Wanted({}, {})


@dataclass(frozen=True)
class Choice:
    """What the dial chose.

    Args:
        size: of the model.
        begin: the model and its training, without its minutes.
        tokens: that the run will read.
        seconds: that it takes; all that were given, or fewer where the text gives no more.
        enough: whether it ends there because the text gives no more.
        loss: what it should reach (nats a token).
        interval: where nine of ten such runs end.
    """

    size: Size
    begin: Recipe
    tokens: float
    seconds: float
    enough: bool
    loss: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Turned:
    """A run that the dial chose.

    Args:
        name: of the model's size.
        begin: the model and its training, with the minutes that are left for it.
        notices: the choice in words.
    """

    name: str
    begin: Recipe
    notices: tuple[Notice, ...]


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
    seconds: float,
    facts: Facts,
    measured: Iterable[tuple[Size, float]],
    law: Law,
    wanted: Wanted = NOTHING,
) -> Choice:
    """The size that should reach the lowest loss in that time.

    `measured` is read only as far as it is needed: once two sizes in turn promise less than a
    smaller one, larger ones would too.

    Args:
        seconds: of training.
        facts: of the text.
        measured: sizes, from small to large, and the tokens a second that each trains on here.
        law: what a run reaches.
        wanted: what was said beside the minutes.
    """
    best: Choice | None = None
    worse = 0
    for size, speed in measured:
        found = _promise(seconds, facts, size, speed, law, wanted)
        parameters = inner_parameters(found.begin.model)
        if best is not None and parameters > PARAMETERS_A_TOKEN * facts.train_tokens:
            break
        if best is None or found.loss < best.loss:
            best, worse = found, 0
        else:
            worse += 1
        if worse == 2:
            break
    assert best is not None
    return best


def _promise(
    seconds: float, facts: Facts, size: Size, speed: float, law: Law, wanted: Wanted
) -> Choice:
    plain = wanted.over(member(size, facts.vocab_size, facts.train_tokens), facts)
    # On the way and at the end the model is judged, which takes time of the run.
    judged = min(facts.validation_tokens, EVALUATED_TOKENS) / 3
    read = speed * seconds * (1 - BESIDES - LOOKED)
    read -= min(judged, read * JUDGED / 3)
    a_step = plain.train.batch_size * plain.model.context_length
    # The first step is taken in any case.
    tokens = max(a_step, min(read, wanted.most(plain, facts)))
    # A run that could read only a little more reads all it can: no speed is foretold exactly, and
    # one that its minutes end before its tokens do would end while its rate is high.
    most = max(enough(facts.train_tokens) * facts.train_tokens, FEWEST_STEPS * a_step)
    ends = wanted.unlimited and tokens > TOO_MANY * most
    if ends:
        tokens = most
    readings = tokens / facts.train_tokens
    begin = member(size, facts.vocab_size, facts.train_tokens, readings=readings)
    train = replace(begin.train, tokens=round(tokens) if ends else None)
    begin = wanted.over(Recipe(begin.model, _looked_at(train, tokens, a_step, facts)), facts)
    loss = law.loss(inner_parameters(begin.model), tokens, facts.train_tokens, facts.surprise)
    took = seconds * tokens / read if ends else seconds
    return Choice(size, begin, tokens, took, ends, loss, law.interval(loss))


def _looked_at(train: TrainConfig, tokens: float, a_step: int, facts: Facts) -> TrainConfig:
    """The training with evaluations that cost little of its time."""
    most = min(EVALUATED_TOKENS, max(round(JUDGED * tokens), a_step))
    judged = min(facts.validation_tokens, most)
    every = max(tokens / LOOKS, judged / 3 / LOOKED) / a_step
    return replace(
        train,
        eval_every=max(1, round(min(every, 1e9))),
        eval_tokens=None if judged == facts.validation_tokens else judged,
    )


def turn(
    prepared: Prepared,
    minutes: float,
    wanted: Wanted = NOTHING,
    *,
    began: float | None = None,
    sizes: Sequence[Size] = SIZES,
    report: Callable[[int, int], None] = lambda done, of: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Turned | None:
    """Measure, choose, and say so.

    Args:
        prepared: the text.
        minutes: from the beginning to the end of the run.
        wanted: what was said beside the minutes.
        began: when they began, by `clock`; None: now.
        sizes: to choose from, from small to large.
        report: is told how many sizes were measured, of how many.
        clock: seconds.

    Returns:
        None where there is nothing to choose: the model's size was said, the time is too short for
        measuring, or the text has no token to train on, which whoever creates the run says.
    """
    if wanted.model.keys() & OF_SIZE or minutes < SHORTEST or not len(prepared.train):
        return None
    began = clock() if began is None else began
    end = began + 60 * minutes
    facts, law = facts_of(prepared), standing()
    from_here = clock()
    least = 60 * minutes * LEAST
    tried: list[tuple[Size, float]] = []

    def measured() -> Iterator[tuple[Size, float]]:
        for number, found in enumerate(speeds(facts, sizes, wanted, clock), start=1):
            report(number, len(sizes))
            tried.append(found)
            yield found
            if clock() - from_here > MEASURING * (end - from_here):
                break

    choose_size(max(end - from_here, least), facts, measured(), law, wanted)
    # Again, as there is less time now than when the first size was tried.
    choice = choose_size(max(end - clock(), least), facts, tried, law, wanted)
    # A run that ends earlier has all of its time, should the machine slow down.
    left = max(end - clock(), least)
    train = replace(choice.begin.train, minutes=round(left / 60, 3))
    return Turned(
        str(choice.size), Recipe(choice.begin.model, train), about(choice, facts, minutes)
    )


def speeds(
    facts: Facts,
    sizes: Sequence[Size] = SIZES,
    wanted: Wanted = NOTHING,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[tuple[Size, float]]:
    """Each size and the tokens a second that it trains on, measured when it is asked for.

    Args:
        facts: of the text.
        sizes: from small to large.
        wanted: what was said.
        clock: seconds.
    """
    for size in sizes:
        begin = member(size, facts.vocab_size, facts.train_tokens)
        yield size, speed_of(wanted.over(begin, facts), clock)


def about(choice: Choice, facts: Facts, minutes: float) -> tuple[Notice, ...]:
    """The choice and what to expect of it, in words."""
    notices = [
        Notice(
            "{minutes:g} minutes: {layers} layers of width {width} read about {tokens:,.0f} "
            "tokens here, the text {readings:.1f} times; dropout {dropout:g} "
            "(--preset, --recipe, --model.*)",
            minutes=minutes,
            layers=choice.size.layers,
            width=choice.size.width,
            tokens=choice.tokens,
            readings=choice.tokens / facts.train_tokens,
            dropout=choice.begin.model.dropout,
        )
    ]
    if choice.enough:
        notices.append(
            Notice(
                "{needed:.2g} minutes of training are enough: read more often, this text is "
                "learned by heart and foretold no better (more text helps; --train.epochs)",
                needed=choice.seconds / 60,
            )
        )
    notices.append(
        Notice(
            "validation loss expected: {loss:.2f}, nine times of ten from {low:.2f} to {high:.2f}",
            loss=choice.loss,
            low=choice.interval[0],
            high=choice.interval[1],
        )
    )
    return tuple(notices)
