"""A training that begins with a trained model keeps what was learned, and says what was chosen."""

from dataclasses import replace
from typing import Any

import pytest

from partwise.budget.choices import STEPS, Chosen, rate_for
from partwise.budget.finetuning import (
    FEWEST_STEPS,
    GENTLER,
    GENTLER_ELSEWHERE,
    LONGEST_CONTEXT,
    choose_further,
    start_from,
)
from partwise.budget.recipes import recipe
from partwise.model.config import ModelConfig
from partwise.model.lora_config import LoraConfig
from partwise.model.presets import preset
from partwise.training.config import TrainConfig

EARLIER = TrainConfig(minutes=3, target_loss=1.0, lr=1e-3, muon_lr=0.02, batch_size=32)
MODEL = replace(preset("small"), vocab_size=99)
LORA = LoraConfig(rank=4)


def chosen(
    model: ModelConfig = MODEL,
    train: TrainConfig | None = EARLIER,
    lora: LoraConfig | None = None,
    **changes: Any,
) -> Chosen:
    begin = start_from(model, train, lora)
    given: dict[str, Any] = {
        "model": begin.model,
        "train": begin.train,
        "name": "first",
        "earlier": model,
        "elsewhere": train is None,
        "lora": lora or LoraConfig(),
        "said_of_model": set(),
        "said_of_training": set(),
        "train_tokens": 1_000_000,
        "validation_tokens": 100_000,
    }
    return choose_further(begin, **{**given, **changes})


def said(found: Chosen) -> str:
    return "\n".join(map(str, found.notices))


def test_going_on_from_a_run_is_gentler_and_has_a_length_of_its_own() -> None:
    begin = start_from(MODEL, EARLIER)
    assert begin.train.lr == pytest.approx(GENTLER * 1e-3)
    assert begin.train.muon_lr == pytest.approx(GENTLER * 0.02)
    assert begin.train.minutes is None and begin.train.target_loss is None
    assert begin.train.batch_size == 32
    assert "learning rate 0.0003, 30% of the first training's" in said(chosen())


def test_a_model_made_elsewhere_gets_what_suits_its_size() -> None:
    gpt2 = preset("gpt2")
    begin = start_from(gpt2, None)
    assert begin.train.lr == pytest.approx(GENTLER_ELSEWHERE * rate_for(gpt2), rel=0.05)
    assert 1e-5 < begin.train.lr < 1e-4
    assert begin.train.batch_size == 4
    assert "10% of what suits a new model" in said(chosen(gpt2, None))


@pytest.mark.parametrize(("train", "rate"), [(EARLIER, 1e-3), (None, rate_for(MODEL))])
def test_additions_take_the_rate_of_a_first_training(
    train: TrainConfig | None, rate: float
) -> None:
    assert start_from(MODEL, train, LORA).train.lr == pytest.approx(rate)
    assert start_from(MODEL, train, LoraConfig()).train.lr < rate
    line = said(chosen(MODEL, train, LORA))
    assert f"LoRA: {LORA.parameters(MODEL):,} parameters" in line
    assert "that of a first training" in line


@pytest.mark.parametrize(
    ("tokens", "steps"),
    [(10_000, FEWEST_STEPS), (1_000_000, 733), (50_000_000, STEPS)],
)
def test_the_text_is_read_three_times(tokens: int, steps: int) -> None:
    # 32 sequences of 128 tokens a step: 3 * 1,000,000 / 4,096 = 732.4.
    found = chosen(train_tokens=tokens)
    assert found.train.steps == steps
    assert f"{steps:,} steps, since nothing says how long" in said(found)


def test_what_is_said_stays() -> None:
    begin = start_from(MODEL, EARLIER)
    train = replace(begin.train, steps=17, lr=0.5)
    found = choose_further(
        begin,
        begin.model,
        train,
        name="first",
        earlier=MODEL,
        elsewhere=False,
        lora=LoraConfig(),
        said_of_model=set(),
        said_of_training={"steps", "lr"},
        train_tokens=1_000_000,
        validation_tokens=100_000,
    )
    assert (found.train.steps, found.train.lr) == (17, 0.5)
    assert "learning rate" not in said(found)


def test_a_limit_in_minutes_is_no_limit_in_steps() -> None:
    found = chosen(said_of_training={"minutes"})
    assert found.train.steps is None


def test_the_vocabulary_is_the_models_own() -> None:
    assert chosen().model.vocab_size == 99


def test_a_long_context_is_shortened_and_said() -> None:
    llama = preset("llama3-8b")
    found = chosen(llama, None)
    assert found.model.context_length == LONGEST_CONTEXT < llama.context_length
    assert "1024 tokens of the model's 8,192" in said(found)
    assert found.train.batch_size == 4
    assert "costs less memory" not in said(chosen())


def test_texts_are_whole_from_the_first_step_unless_that_is_said() -> None:
    """What short texts teach, a trained model knows."""
    fast = recipe("fast")
    begin = start_from(replace(fast.model, context_length=1200), fast.train)
    assert fast.train.short_context and begin.train.short_context is None
