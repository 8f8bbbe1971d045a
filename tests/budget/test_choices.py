"""What is chosen for the user fits the text, and never overrules what was said."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.budget.choices import (
    DEFAULT,
    EVALUATED_SHARE,
    EVALUATED_TOKENS,
    LENGTHS,
    Chosen,
    about_machine,
    choose,
    fit_texts,
    fit_to_steps,
    fit_to_text,
    fit_training,
    rate_for,
    start,
)
from partwise.budget.recipes import RECIPES, Recipe, recipe
from partwise.errors import ConfigError
from partwise.model.config import ModelConfig
from partwise.model.presets import preset, preset_names
from partwise.training.config import TrainConfig
from partwise.training.plan import check_parts

SHAKESPEARE = {"train_tokens": 1_003_854, "validation_tokens": 111_540, "vocab_size": 65}


def chosen(**changes: Any) -> Chosen:
    begin = start(None, None)
    given: dict[str, Any] = {
        "model": begin.model,
        "train": begin.train,
        "name": DEFAULT,
        "said_of_model": set(),
        "said_of_training": set(),
        **SHAKESPEARE,
    }
    return choose(begin, **{**given, **changes})


def test_nothing_said_is_the_small_recipe() -> None:
    assert start(None, None) == RECIPES["small"] == start("small", None) == start(None, "small")
    found = chosen()
    assert found.model == replace(preset("small"), vocab_size=65)
    assert found.train.steps == RECIPES["small"].train.steps
    templates = [notice.template for notice in found.notices]
    assert any("two CPU cores" in template for template in templates)
    assert any("since nothing says how long" in template for template in templates)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_has_a_training(name: str) -> None:
    begin = start(name, None)
    assert begin.model == preset(name)
    assert begin.train.steps is not None
    assert 1e-4 <= begin.train.lr <= 5e-3


def test_preset_and_recipe_cannot_both_choose() -> None:
    with pytest.raises(ConfigError, match="both choose the model"):
        start("small", "nanogpt")
    with pytest.raises(ConfigError, match="did you mean nanogpt"):
        start(None, "nanogpd")
    with pytest.raises(ConfigError, match="did you mean small"):
        start("smal", None)


def test_rate_falls_with_size_as_published() -> None:
    # Kaplan et al. 2020, appendix D.6: 0.003239 - 0.0001395 ln(124,439,808) = 0.00064
    assert rate_for(preset("gpt2")) == 0.00064
    assert rate_for(preset("palm-540b")) == 1e-4
    rates = [rate_for(preset(name)) for name in ("ladder-1", "small", "gpt2", "gpt2-xl")]
    assert rates == sorted(rates, reverse=True)


@given(st.integers(2, 10_000), st.integers(2, 10_000))
def test_context_fits_both_parts(train: int, validation: int) -> None:
    model, notices = fit_to_text(preset("small"), set(), train, validation)
    # A sequence needs one token more than the context: its last target.
    assert 1 <= model.context_length < min(train, validation)
    assert bool(notices) == (model.context_length != preset("small").context_length)
    # No power of two between it and what would fit.
    if notices:
        assert 2 * model.context_length > min(train, validation) - 1


def test_a_context_that_was_named_stays() -> None:
    model, notices = fit_to_text(ModelConfig(), {"context_length"}, 100, 20)
    assert (model, notices) == (ModelConfig(), [])


@given(
    steps=st.integers(1, 100_000),
    batch_size=st.integers(1, 64),
    context=st.sampled_from([8, 128, 1024]),
    validation=st.integers(2, 10**9),
)
def test_evaluating_takes_little_of_the_time(
    steps: int, batch_size: int, context: int, validation: int
) -> None:
    asked = TrainConfig(steps=steps, batch_size=batch_size)
    train, _ = fit_training(asked, set(), context, 10**9, validation)
    assert 1 <= train.eval_every <= steps
    tokens = min(validation, train.eval_tokens or validation)
    assert tokens <= EVALUATED_TOKENS
    if train.eval_every < steps:
        trained = train.eval_every * batch_size * context
        assert tokens / 3 <= EVALUATED_SHARE * trained
    assert train.warmup_steps <= math.ceil(steps / 10)


@pytest.mark.parametrize("limit", LENGTHS)
def test_a_length_that_was_said_is_not_cut_short_by_the_recipe(limit: str) -> None:
    asked = replace(RECIPES["small"].train, **{limit: 5})
    train, notices = fit_training(asked, {limit}, 128, 1_003_854, 111_540)
    assert train.steps is None
    assert notices == []
    both, _ = fit_training(replace(asked, steps=7), {limit, "steps"}, 128, 1_003_854, 111_540)
    assert both.steps == 7


def test_a_recipe_that_learns_by_heart_reads_a_short_text_a_few_times() -> None:
    fast = RECIPES["fast"].train
    _, notices = fit_training(fast, set(), 512, 1_003_854, 111_540)
    assert str(notices[-1]).startswith("2,700 steps, since nothing says how long")
    short, notices = fit_training(fast, set(), 512, 100_000, 10_000)
    assert short.epochs == fast.epochs
    assert str(notices[-1]).startswith("the text 3.1 times, since nothing says how long")
    for said in ({"steps"}, {"minutes"}, {"tokens"}):
        longer, _ = fit_training(replace(fast, minutes=1, tokens=9), said, 512, 100_000, 10_000)
        assert longer.epochs is None
        assert longer.steps == (fast.steps if "steps" in said else None)


@pytest.mark.parametrize("limit", ["target_loss", "patience"])
def test_a_limit_without_a_length_keeps_the_recipes_steps(limit: str) -> None:
    asked = replace(RECIPES["small"].train, **{limit: 2})
    train, _ = fit_training(asked, {limit}, 128, 1_003_854, 111_540)
    assert train.steps == RECIPES["small"].train.steps


def test_nothing_that_was_said_is_changed() -> None:
    said = {"steps", "warmup_steps", "eval_every", "eval_tokens", "lr"}
    asked = TrainConfig(steps=3, warmup_steps=2, eval_every=1, eval_tokens=None, lr=0.5)
    assert fit_training(asked, said, 128, 10**9, 10**9) == (asked, [])
    model = replace(preset("small"), d_model=64)
    found = chosen(model=model, train=asked, said_of_model={"d_model"}, said_of_training=said)
    assert found.train.lr == 0.5
    assert found.model.d_model == 64


def test_another_size_gets_another_rate() -> None:
    model = replace(preset("small"), d_model=512)
    found = chosen(model=model, said_of_model={"d_model"})
    assert found.train.lr == rate_for(found.model)
    assert "two CPU cores" not in found.notices[0].template


def test_the_machines_part_is_said_where_it_was_left_open() -> None:
    assert len(about_machine(TrainConfig(), "cpu")) == 1
    assert len(about_machine(TrainConfig(), "cuda")) == 1
    assert about_machine(TrainConfig(device="cpu"), "cpu") == ()


@pytest.mark.parametrize(
    ("context", "batch_size", "short"),
    [
        *((512, 2, 128), (1024, 1, 128), (2048, 1, 128), (256, 4, 128), (300, 3, 100)),
        *((128, 8, None), (64, 8, None), (16, 8, None), (257, 4, None), (194, 5, 97)),
    ],
)
def test_a_recipe_of_short_texts_first_reads_as_many_in_another_context(
    context: int, batch_size: int, short: int | None
) -> None:
    fast = recipe("fast")
    assert (fast.train.batch_size, fast.train.short_context) == (2, 128)
    train, notices = fit_texts(fast.train, fast, set(), context)
    assert (train.batch_size, train.short_context) == (batch_size, short)
    check_parts(train, replace(fast.model, context_length=context))
    assert [f"{batch_size} texts a step" in str(each) for each in notices] == [True] * (
        context != 512
    )


@pytest.mark.parametrize(
    ("tokens", "said", "context"),
    [
        # 3.1 readings in steps of 1,024 tokens.
        *((100_000, {}, 256), (329_000, {}, 256), (332_000, {}, 512), (1_000_000, {}, 512)),
        *((1_000_000, {"steps": 999}, 256), (100_000, {"steps": 1000}, 512)),
        *((1_000_000, {"epochs": 1.0}, 256), (100_000, {"epochs": 11.0}, 512)),
        *((1_000_000, {"tokens": 1_000_000}, 256), (100_000, {"tokens": 1_100_000}, 512)),
        *((100_000, {"minutes": 1.0}, 512), (100_000, {"batch_size": 1}, 256)),
        (170_000, {"batch_size": 1}, 512),
    ],
)
def test_few_steps_learn_half_the_context(tokens: int, said: dict[str, Any], context: int) -> None:
    fast = recipe("fast")
    train = replace(fast.train, **said)
    model, notices = fit_to_steps(fast.model, fast, train, set(), said.keys(), tokens)
    assert model.context_length == context
    assert len(notices) == (context != 512)
    assert fit_to_steps(fast.model, fast, train, {"context_length"}, said.keys(), tokens)[1] == []


def test_few_steps_change_no_recipe_of_whole_texts() -> None:
    small = recipe("small")
    said = {"steps": 10}
    train = replace(small.train, **said)
    assert fit_to_steps(small.model, small, train, set(), said.keys(), 1000) == (small.model, [])
    # Nor a context that is near its short texts already.
    fast = recipe("fast")
    model = replace(fast.model, context_length=256)
    assert fit_to_steps(model, fast, train, set(), said.keys(), 1000) == (model, [])


def test_what_was_said_of_a_batch_stands() -> None:
    fast = recipe("fast")

    def fitted(said: set[str], context: int, begin: Recipe = fast, **changes: Any) -> TrainConfig:
        return fit_texts(replace(begin.train, **changes), begin, said, context)[0]

    assert fitted({"batch_size"}, 256).batch_size == 2
    assert fitted(set(), 200, accumulation=2).batch_size == 6
    assert fitted({"short_context"}, 64, short_context=32).short_context == 32
    # A recipe of whole texts stays as it is, whatever else was said.
    small = recipe("small")
    changed = {"short_context": 32}
    assert fitted({"short_context"}, 64, small, **changed) == replace(small.train, **changed)
