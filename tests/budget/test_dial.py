"""The dial takes the size that the law promises most of, and measures no more than it needs."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from partwise.budget.dial import (
    TRIED,
    Facts,
    about,
    choose_size,
    facts_of,
    recipe_for,
    speeds,
    turn,
)
from partwise.budget.family import SIZES, inner_parameters, member
from partwise.budget.law import Law
from partwise.budget.surprise import surprise
from partwise.text.config import DataConfig
from partwise.text.prepare import prepare

LAW = Law(0.7, 8.0, 0.3, 60.0, 0.4, 4.0, 0.02, 0.03, 30)
FACTS = Facts(65, 10**6, 10**5, 1.6)


class Machine:
    """Trains each size at a rate that falls as its parameters grow."""

    def __init__(self, flops: float) -> None:
        self.flops = flops
        self.asked = 0

    def measured(self) -> Iterator[tuple[object, float]]:
        for size in SIZES:
            self.asked += 1
            yield size, self.flops / inner_parameters(member(size, 65).model)


def chosen(flops: float, seconds: float, facts: Facts = FACTS) -> tuple[int, float, int]:
    machine = Machine(flops)
    choice = choose_size(seconds, facts, machine.measured(), LAW)  # type: ignore[arg-type]
    return SIZES.index(choice.size), choice.loss, machine.asked


def test_more_time_or_a_faster_machine_buys_a_larger_model_and_a_lower_loss() -> None:
    short, longer, faster = chosen(2e9, 60), chosen(2e9, 900), chosen(3e10, 60)
    assert short[0] < longer[0] and longer[:2] == faster[:2]
    assert longer[1] < short[1]


def test_the_choice_is_the_best_of_all_sizes() -> None:
    for seconds in (30, 120, 900, 3600):
        losses = []
        for size, speed in Machine(3e9).measured():
            parameters = inner_parameters(member(size, 65).model)  # type: ignore[arg-type]
            losses.append(LAW.loss(parameters, speed * seconds * 0.96, 10**6, 1.6))
        assert chosen(3e9, seconds)[0] == losses.index(min(losses))


def test_sizes_far_too_large_are_not_measured() -> None:
    index, _, asked = chosen(1e9, 30)
    assert asked == index + 3 < len(SIZES)


def test_a_small_text_gets_a_small_model_however_long_it_is_read() -> None:
    index, _, _ = chosen(1e12, 3600, replace(FACTS, train_tokens=90_000))
    assert inner_parameters(member(SIZES[index], 65).model) <= 5 * 90_000
    assert chosen(1e12, 3600, replace(FACTS, train_tokens=10))[0] == 0


def test_a_text_that_is_read_often_is_held_against_learning_by_heart() -> None:
    dropouts = [member(SIZES[2], 65, readings=times).model.dropout for times in (1, 5, 20)]
    assert dropouts == [0.0, 0.1, 0.2]
    decays = [member(SIZES[2], 65, readings=times).train.muon_weight_decay for times in (1, 5)]
    assert decays[0] <= decays[1] == 0.1


def test_it_says_what_it_chose_and_expects() -> None:
    choice = choose_size(300, FACTS, Machine(3e9).measured(), LAW)  # type: ignore[arg-type]
    first, second = map(str, about(choice, FACTS, 5))
    size = choice.size
    assert f"{size.layers} layers of width {size.width}" in first and first.startswith("5 minutes")
    assert f"{choice.loss:.2f}" in second
    assert choice.interval[0] < choice.loss < choice.interval[1]
    assert recipe_for(choice, FACTS).model.d_model == size.width


def test_speed_is_that_of_the_fastest_step_of_the_products_own_loop() -> None:
    ticks = iter([0.0, 9.0, 10.0, 13.0, 20.0] * 3)
    facts = replace(FACTS, vocab_size=5)
    found = list(speeds(facts, SIZES[:1], {"batch_size": 1}, clock=lambda: next(ticks)))
    assert found == [(SIZES[0], member(SIZES[0], 5).model.context_length / 1.0)]
    assert TRIED == 5


def test_measuring_is_taken_off_the_minutes(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("what is measured is taken off. " * 2000, encoding="utf-8")
    prepared = prepare(str(text), DataConfig(), cache=tmp_path / "cache")
    now = [0.0]

    def clock() -> float:
        now[0] += 0.5
        return now[0]

    told: list[int] = []
    name, begin, notices = turn(
        2,
        prepared,
        {"threads": 1},
        sizes=SIZES[:2],
        report=lambda done, _: told.append(done),
        clock=clock,
    )
    assert begin.train.minutes == pytest.approx(2 - (now[0] - 0.5) / 60, abs=1e-3)
    assert begin.train.minutes is not None and begin.train.minutes < 2
    assert begin.train.steps is None and told == list(range(1, len(told) + 1))
    assert name in [str(size) for size in SIZES] and len(notices) == 2
    assert begin.model.vocab_size == prepared.tokenizer.vocab_size
    assert facts_of(prepared).train_tokens == len(prepared.train)


def test_surprise_of_tokens_without_order_is_their_entropy_and_of_a_rule_nothing() -> None:
    random = np.random.default_rng(1).integers(0, 8, 120_000)
    assert surprise(random[:100_000], random[100_000:], 8) == pytest.approx(np.log(8), abs=0.2)
    rule = np.arange(50_000) % 7
    assert surprise(rule[:40_000], rule[40_000:], 7) < 0.01
    assert surprise(rule[:40_000], rule[:2], 7) == pytest.approx(np.log(7))


def test_a_vocabulary_too_large_for_long_stretches_is_counted_in_shorter_ones() -> None:
    rule = np.arange(20_000) % 7 * 9000
    assert surprise(rule[:15_000], rule[15_000:], 60_000) < 0.02


def test_a_machine_that_measures_for_longer_than_the_run_leaves_it_time(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a slow machine still trains. " * 2000, encoding="utf-8")
    prepared = prepare(str(text), DataConfig(), cache=tmp_path / "cache")
    now = [0.0]
    told: list[int] = []

    def clock() -> float:
        now[0] += 60.0
        return now[0]

    _, begin, _ = turn(
        1,
        prepared,
        {"threads": 1},
        sizes=SIZES[:2],
        report=lambda done, _: told.append(done),
        clock=clock,
    )
    assert begin.train.minutes == pytest.approx(0.1)
    assert told == [1]
