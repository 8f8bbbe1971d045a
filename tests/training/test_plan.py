"""How many steps a run has: counted from its limits, or fitted into its minutes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import ConfigError
from partwise.training.config import TrainConfig
from partwise.training.events import Evaluated, Finished, Said, Stepped
from partwise.training.loop import train
from partwise.training.plan import Pace, check_ends, check_parts, foreseen
from training.doubles import CONFIG, CONTEXT, MODEL, ROWS, Clock, data, new_model

A_STEP = CONTEXT * ROWS


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"steps": 7}, (7, "steps")),
        ({"tokens": A_STEP}, (1, "tokens")),
        ({"tokens": A_STEP + 1}, (2, "tokens")),
        ({"epochs": 1.0}, (13, "epochs")),  # 400 tokens, 32 a step
        ({"epochs": 0.001}, (1, "epochs")),
        ({"steps": 7, "tokens": 3 * A_STEP}, (3, "tokens")),
        ({"steps": 7, "epochs": 2.0, "minutes": 1.0}, (7, "steps")),
        ({"minutes": 1.0}, None),
        ({"target_loss": 1.0}, None),
    ],
)
def test_the_first_limit_that_can_be_counted_in_steps(
    limits: dict[str, Any], expected: tuple[int, str] | None
) -> None:
    config = replace(CONFIG, **{"steps": None, **limits})
    assert foreseen(config, data().train_tokens, A_STEP) == expected


def test_a_training_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing ends this training"):
        check_ends(TrainConfig())
    with pytest.raises(ConfigError, match="nothing ends"):
        next(train(new_model(), data(), TrainConfig()))


def test_parts_that_do_not_add_up_are_refused() -> None:
    """BatchNorm takes the mean of what is computed at once: parts of a batch are other batches."""
    model = replace(MODEL, norm="batchnorm")
    with pytest.raises(ConfigError, match=r"accumulation=2 would train another model.*BatchNorm"):
        next(train(new_model(model), data(), replace(CONFIG, accumulation=2)))
    check_parts(replace(CONFIG, accumulation=2), MODEL)
    check_parts(CONFIG, model)


def test_a_schedule_that_cannot_know_its_length_is_refused() -> None:
    with pytest.raises(ConfigError, match="schedule=cosine needs to know"):
        check_ends(TrainConfig(patience=3))
    check_ends(TrainConfig(patience=3, schedule="constant"))
    check_ends(TrainConfig(patience=3, schedule="inverse_sqrt"))
    check_ends(TrainConfig(minutes=1))


@given(
    step=st.floats(0.001, 10),
    evaluation=st.floats(0, 30),
    every=st.integers(1, 500),
    budget=st.floats(60, 3600),
)
def test_what_is_planned_fills_the_time(
    step: float, evaluation: float, every: int, budget: float
) -> None:
    pace = Pace()
    for seconds in (99.0, 99.0, step, step, step):  # the first two are warming up
        pace.stepped(seconds)
    pace.evaluation = evaluation
    total = pace.total(5, 10.0, budget, every)
    taken = 10 + (total - 5) * (step + evaluation / every) + evaluation
    assert taken <= budget + 1e-6 or total == 6
    assert taken + step + evaluation / every >= budget - 1e-6


def timed(
    minutes: float, step_seconds: Any, batch_seconds: float = 0.0, **changes: Any
) -> tuple[float, list[Any]]:
    """Train by a clock that only data moves; the minutes that it took, and the events."""
    clock = Clock()
    config = replace(CONFIG, steps=None, minutes=minutes, **changes)
    events = list(
        train(
            new_model(),
            data(config, clock=clock, step_seconds=step_seconds, batch_seconds=batch_seconds),
            config,
            clock=clock,
        )
    )
    return (clock.now - 1000) / 60, events


@pytest.mark.parametrize("minutes", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd"])
def test_a_run_by_minutes_ends_in_time_with_its_schedule_complete(
    minutes: float, schedule: str
) -> None:
    taken, events = timed(
        minutes, 0.5, 0.2, schedule=schedule, min_lr_ratio=0.0, eval_every=20, log_every=1
    )
    # One step and one evaluation, which take 0.5 and 1 second here, are what it can be off by.
    assert taken == pytest.approx(minutes, abs=1.5 / 60)
    assert events[-1].reason == "minutes"
    rates = [event.lr for event in events if isinstance(event, Stepped)]
    assert max(rates) == CONFIG.lr
    assert rates[-1] < 0.1 * CONFIG.lr
    # The last word is said about the last step.
    evaluations = [event for event in events if isinstance(event, Evaluated)]
    assert evaluations[-1].step == events[-1].step


def test_the_plan_follows_a_machine_that_slows_down() -> None:
    clock = Clock()
    config = replace(CONFIG, steps=None, minutes=2.0, eval_every=10, log_every=1, min_lr_ratio=0.0)
    timed_data = data(config, clock=clock, step_seconds=0.5)
    rates = []
    for event in train(new_model(), timed_data, config, clock=clock):
        if isinstance(event, Stepped):
            rates.append(event.lr)
            clock.now += 0.5 if event.step > 40 else 0.0
    assert (clock.now - 1000) / 60 == pytest.approx(2.0, rel=0.05)
    assert rates[-1] < 0.1 * CONFIG.lr


@pytest.mark.parametrize("seed", range(5))
def test_the_plan_holds_on_a_machine_whose_speed_is_never_the_same(seed: int) -> None:
    clock, random = Clock(), np.random.default_rng(seed)
    config = replace(CONFIG, steps=None, minutes=2.0, eval_every=30, log_every=1)
    timed_data = data(config, clock=clock, step_seconds=0.2, batch_seconds=0.5)
    for event in train(new_model(), timed_data, config, clock=clock):
        if isinstance(event, Stepped | Evaluated):
            slow = 3 if 30 < clock.now % 60 < 50 else 1  # somebody else's work comes and goes
            clock.now += slow * random.exponential(0.3)
    assert (clock.now - 1000) / 60 == pytest.approx(2.0, rel=0.05)


def test_time_is_up_even_when_steps_are_asked_for() -> None:
    taken, events = timed(0.1, 1.0)
    assert taken <= 0.1 + 1e-9
    clock = Clock()
    config = replace(CONFIG, steps=1000, minutes=0.1)
    events = list(
        train(new_model(), data(config, clock=clock, step_seconds=1.0), config, clock=clock)
    )
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == "minutes"
    assert finished.step == 6


def test_what_fits_into_the_minutes_is_said_once() -> None:
    _, events = timed(0.5, 0.5, warmup_steps=100)
    lines = [str(event.notice) for event in events if isinstance(event, Said)]
    (fits,) = [line for line in lines if "fit into 0.5 minutes" in line]
    assert 50 <= int(fits.split()[1]) <= 60
    assert sum("warming up over" in line for line in lines) == 1


def test_one_step_is_taken_in_any_case() -> None:
    _, events = timed(0.001, 5.0)
    assert events[-1].step == 1
    assert events[-1].val_loss is not None


def test_a_finished_run_goes_on_when_it_is_given_more_minutes(tmp_path: Path) -> None:
    clock = Clock()
    told = []
    for minutes in (0.5, 0.5, 1.5, 1.6):
        config = replace(
            CONFIG, steps=None, minutes=minutes, eval_every=20, min_lr_ratio=0.0, log_every=1
        )
        text = data(config, clock=clock, step_seconds=0.5, batch_seconds=0.2)
        told.append(
            list(train(new_model(), text, config, folder=tmp_path, resume=True, clock=clock))
        )
    first, again, more, little = (events[-1] for events in told)
    assert again.step == first.step, "its minutes are over"
    assert more.step > 2 * first.step
    assert more.seconds == pytest.approx(90, abs=2), "the minutes count from the beginning"
    assert little.step > more.step
    rates = [event.lr for event in told[-1] if isinstance(event, Stepped)]
    assert max(rates) < 0.2 * CONFIG.lr, "a few more steps end the fall, they do not begin anew"
    assert any("minutes 0.5 → 1.5" in str(e.notice) for e in told[2] if isinstance(e, Said))
