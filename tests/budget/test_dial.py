"""The dial takes the size that the law promises most of, and measures no more than it needs."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from partwise.budget.dial import (
    BESIDES,
    FEWEST_STEPS,
    NOTHING,
    Facts,
    Turned,
    Wanted,
    about,
    choose_size,
    facts_of,
    speeds,
    turn,
)
from partwise.budget.family import SHORT, SIZES, Size, enough, inner_parameters, member
from partwise.budget.law import Law
from partwise.budget.speed import TRIED
from partwise.budget.surprise import surprise
from partwise.model.gpt import GPT
from partwise.text.batches import Batches, windows
from partwise.text.config import DataConfig
from partwise.text.prepare import Prepared, prepare
from partwise.training.data import Data
from partwise.training.events import Finished
from partwise.training.loop import train
from partwise.training.objective import Objective

LAW = Law(0.7, 8.0, 0.3, 60.0, 0.4, 4.0, 0.02, 0.03, 30)
FACTS = Facts(65, 10**6, 10**5, 1.6)


class Machine:
    """Trains each size at a rate that falls as its parameters grow."""

    def __init__(self, flops: float) -> None:
        self.flops = flops
        self.asked = 0

    def measured(self) -> Iterator[tuple[Size, float]]:
        for size in SIZES:
            self.asked += 1
            yield size, self.flops / inner_parameters(member(size, 65, 10**6).model)


def chosen(flops: float, seconds: float, facts: Facts = FACTS) -> tuple[int, float, int]:
    machine = Machine(flops)
    choice = choose_size(seconds, facts, machine.measured(), LAW)
    return SIZES.index(choice.size), choice.loss, machine.asked


def prepared_in(folder: Path, text: str = "what is measured is taken off. " * 2000) -> Prepared:
    path = folder / "text.txt"
    path.write_text(text, encoding="utf-8")
    return prepare(str(path), DataConfig(), cache=folder / "cache")


class Clock:
    """Goes on by so many seconds each time that it is read."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def test_more_time_or_a_faster_machine_buys_a_larger_model_and_a_lower_loss() -> None:
    short, longer, faster = chosen(2e9, 60), chosen(2e9, 900), chosen(3e10, 60)
    assert short[0] < longer[0] and longer[0] == faster[0]
    assert longer[1] == pytest.approx(faster[1], rel=1e-3) and longer[1] < short[1]


def test_the_choice_is_the_best_of_all_sizes() -> None:
    for seconds in (30, 120, 900, 3600):
        losses = [
            choose_size(seconds, FACTS, [found], LAW).loss for found in Machine(3e9).measured()
        ]
        assert chosen(3e9, seconds)[0] == losses.index(min(losses))


def test_sizes_far_too_large_are_not_measured() -> None:
    index, _, asked = chosen(1e9, 30)
    assert asked == index + 3 < len(SIZES)


def test_a_small_text_gets_a_small_model_however_long_it_is_read() -> None:
    index, _, _ = chosen(1e12, 3600, replace(FACTS, train_tokens=90_000))
    assert inner_parameters(member(SIZES[index], 65, 90_000).model) <= 5 * 90_000
    assert chosen(1e12, 3600, replace(FACTS, train_tokens=10))[0] == 0


def test_a_text_that_is_read_often_is_held_against_learning_by_heart() -> None:
    once, often = (member(SIZES[2], 65, 10**6, readings=times).model for times in (1, 10))
    short = member(SIZES[2], 65, SHORT - 1).model
    assert once.ngram > often.ngram and once.ngram > short.ngram
    assert once.dropout == 0 and often.dropout > 0 and short.dropout > 0
    # Told to read on, it is; by itself the dial stops before.
    told = choose_size(600, FACTS, [(SIZES[1], 5e4)], LAW, Wanted({}, {"epochs": 20}))
    assert told.begin.model == member(SIZES[1], 65, 10**6, readings=20).model
    assert choose_size(600, FACTS, [(SIZES[1], 5e4)], LAW).begin.model.ngram == once.ngram


def test_more_time_than_the_text_is_worth_is_not_taken_and_that_is_said() -> None:
    facts = replace(FACTS, train_tokens=10_000, validation_tokens=1000)
    choice = choose_size(3600, facts, [(SIZES[0], 50_000.0)], LAW)
    tokens = max(enough(10_000) * 10_000, FEWEST_STEPS * 8 * 128)
    assert choice.enough and choice.tokens == tokens == choice.begin.train.tokens
    # As many seconds as those tokens take, the judging at the end among them.
    assert choice.seconds == pytest.approx(tokens / 50_000, rel=0.1)
    assert "are enough" in str(about(choice, facts, 60)[1])
    short = choose_size(1, facts, [(SIZES[0], 50_000.0)], LAW)
    assert not short.enough and short.seconds == 1 and short.begin.train.tokens is None
    assert len(about(short, facts, 1)) == 2


def test_a_text_of_a_few_words_gets_steps_enough_to_learn_it() -> None:
    choice = choose_size(60, Facts(20, 180, 20, 2.0), [(SIZES[0], 50_000.0)], LAW)
    assert choice.begin.model.context_length == 16
    assert choice.begin.train.tokens == FEWEST_STEPS * 8 * 16


@pytest.mark.parametrize(
    ("said", "tokens"),
    [({"steps": 100}, 100 * 1024), ({"epochs": 0.5}, 500_000), ({"tokens": 7000}, 7000)],
)
def test_a_limit_that_was_said_is_what_the_promise_is_made_for(
    said: dict[str, Any], tokens: int
) -> None:
    choice = choose_size(600, FACTS, [(SIZES[1], 50_000.0)], LAW, Wanted({}, said))
    assert choice.tokens == tokens and not choice.enough
    assert choice.loss == LAW.loss(
        inner_parameters(choice.begin.model), tokens, FACTS.train_tokens, FACTS.surprise
    )


def test_what_was_said_of_the_model_stands_and_a_context_fits_the_text() -> None:
    said = Wanted({"ngram": 1, "dropout": 0.3}, {"batch_size": 2, "eval_every": 7})
    choice = choose_size(60, replace(FACTS, validation_tokens=40), [(SIZES[1], 5e4)], LAW, said)
    model, train = choice.begin.model, choice.begin.train
    assert (model.ngram, model.dropout, model.context_length) == (1, 0.3, 32)
    assert (train.batch_size, train.eval_every, model.vocab_size) == (2, 7, 65)


def test_judging_takes_little_of_the_time() -> None:
    facts = replace(FACTS, train_tokens=3 * 10**7, validation_tokens=3 * 10**6)
    for seconds in (30, 60, 900):
        choice = choose_size(seconds, facts, [(SIZES[2], 15_000.0)], LAW)
        train = choice.begin.train
        assert train.eval_tokens is not None and train.eval_tokens <= 0.11 * choice.tokens
        looks = choice.tokens / 1024 / train.eval_every
        assert looks < 9 and looks * train.eval_tokens / 3 <= 0.025 * choice.tokens


def test_what_is_promised_leaves_time_for_every_look() -> None:
    facts = replace(FACTS, train_tokens=3 * 10**7, validation_tokens=6000)
    choice = choose_size(60, facts, [(SIZES[2], 15_000.0)], LAW)
    looks = math.ceil(choice.tokens / 1024 / choice.begin.train.eval_every)
    assert looks >= 8
    # Those on the way and the last, each at a third of what learning costs.
    work = choice.tokens + looks * facts.validation_tokens / 3
    assert work < 60 * 15_000 * (1 - BESIDES)


def test_it_says_what_it_chose_and_expects() -> None:
    choice = choose_size(300, FACTS, Machine(3e9).measured(), LAW)
    first, second = map(str, about(choice, FACTS, 5))
    size = choice.size
    assert f"{size.layers} layers of width {size.width}" in first and first.startswith("5 minutes")
    assert f"{choice.loss:.2f}" in second
    assert choice.interval[0] < choice.loss < choice.interval[1]
    assert choice.begin.model.d_model == size.width


def test_speed_is_that_of_the_fastest_step_of_the_products_own_loop() -> None:
    # Whole texts, then short ones; the first two steps do not count.
    ticks = iter([0.0, 9.0, 10.0, 13.0, 20.0, 30.0, 39.0, 39.5, 42.0, 43.0])
    facts = replace(FACTS, vocab_size=5)
    wanted = Wanted({}, {"batch_size": 1, "steps": 3, "minutes": 1.0})
    found = list(speeds(facts, SIZES[:1], wanted, clock=lambda: next(ticks)))
    begin = member(SIZES[0], 5, 10**6)
    assert begin.train.short_share == 0.8
    assert found == [(SIZES[0], pytest.approx(begin.model.context_length / (0.2 * 1 + 0.8 * 0.5)))]
    ticks = iter([0.0, 9.0, 10.0, 13.0, 20.0])
    whole = Wanted({}, {**wanted.train, "short_context": 512})
    found = list(speeds(facts, SIZES[:1], whole, clock=lambda: next(ticks)))
    assert found == [(SIZES[0], begin.model.context_length / 1.0)]
    assert TRIED == 5


def test_what_was_used_up_before_the_run_is_taken_off_the_minutes_and_the_promise(
    tmp_path: Path,
) -> None:
    prepared = prepared_in(tmp_path)
    clock, told = Clock(0.5), []
    clock.now = 20.0

    def report(done: int, _: int) -> None:
        told.append(done)

    # Reading the text took 20 seconds of the two minutes.
    turned = turn(prepared, 2, NOTHING, began=0.0, sizes=SIZES[:2], report=report, clock=clock)
    assert isinstance(turned, Turned)
    train = turned.begin.train
    assert train.minutes == pytest.approx(2 - clock.now / 60, abs=1e-3) and clock.now > 20
    assert train.steps is None and told == list(range(1, len(told) + 1))
    assert turned.name in [str(size) for size in SIZES]
    assert turned.begin.model.vocab_size == prepared.tokenizer.vocab_size
    # A step took half a second of this clock, so that so many tokens are promised at the most.
    tokens = turned.notices[0].values["tokens"]
    most = 60 * train.minutes * 8 * 128 / 0.5
    assert 0.8 * most < tokens < most


def test_a_machine_that_measures_for_longer_than_the_run_leaves_it_time(tmp_path: Path) -> None:
    told: list[int] = []
    turned = turn(
        prepared_in(tmp_path),
        1,
        sizes=SIZES[:2],
        report=lambda done, _: told.append(done),
        clock=Clock(60.0),
    )
    assert turned is not None and turned.begin.train.minutes == pytest.approx(0.1)
    assert told == [1]


@pytest.mark.parametrize("before", [0.0, 20.0])
def test_a_run_ends_when_its_minutes_do_and_reads_what_was_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: float
) -> None:
    """On a machine whose time passes with the tokens that it computes on, and no otherwise."""
    now = [before]
    plain = Objective._loss

    def slow(self: Objective, inputs: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        now[0] += inputs.numel() / 2000 / (1 if torch.is_grad_enabled() else 3)
        return plain(self, inputs, targets, smoothing)

    monkeypatch.setattr(Objective, "_loss", slow)
    monkeypatch.setattr("partwise.training.loop.by_gradient", lambda *_: False)
    prepared = prepared_in(tmp_path, "a run ends in time, and reads what it promised. " * 600)
    size = Size(1, 16, 1)
    turned = turn(prepared, 1, began=0.0, sizes=[size], clock=lambda: now[0])
    assert turned is not None
    model, config = turned.begin.model, turned.begin.train
    batches = Batches(prepared.train, model.context_length, config.batch_size, 1, config.order)
    data = Data(batches, prepared.validation, windows, len(prepared.train))
    *_, last = train(GPT(model), data, config, clock=lambda: now[0])
    assert isinstance(last, Finished) and last.reason == "minutes"
    assert now[0] == pytest.approx(60, rel=0.05)
    assert last.tokens == pytest.approx(turned.notices[0].values["tokens"], rel=0.06)


def test_there_is_nothing_to_choose(tmp_path: Path) -> None:
    prepared = prepared_in(tmp_path)
    assert turn(prepared, 0.01) is None
    assert turn(prepared, 2, Wanted({"d_model": 32}, {})) is None


@pytest.mark.parametrize("text", ["a" * 200, "ab" * 100, "tiny texts have tiny contexts. " * 7])
def test_tiny_texts_and_alphabets_are_chosen_for_too(tmp_path: Path, text: str) -> None:
    turned = turn(prepared_in(tmp_path, text), 1e6, sizes=SIZES[:1])
    assert turned is not None
    assert turned.begin.model.context_length <= 16
    assert turned.begin.train.tokens == FEWEST_STEPS * 8 * turned.begin.model.context_length
    assert all(str(notice) for notice in turned.notices)


def test_the_facts_of_a_text(tmp_path: Path) -> None:
    prepared = prepared_in(tmp_path)
    facts = facts_of(prepared)
    assert facts.train_tokens == len(prepared.train) == 9 * facts.validation_tokens
    assert 0 <= facts.surprise < 0.1


def test_surprise_of_tokens_without_order_is_their_entropy_and_of_a_rule_nothing() -> None:
    random = np.random.default_rng(1).integers(0, 8, 120_000)
    assert surprise(random[:100_000], random[100_000:], 8) == pytest.approx(np.log(8), abs=0.2)
    rule = np.arange(50_000) % 7
    assert surprise(rule[:40_000], rule[40_000:], 7) < 0.01
    assert surprise(rule[:40_000], rule[:2], 7) == pytest.approx(np.log(7))


def test_a_vocabulary_too_large_for_long_stretches_is_counted_in_shorter_ones() -> None:
    rule = np.arange(20_000) % 7 * 9000
    assert surprise(rule[:15_000], rule[15_000:], 60_000) < 0.02
