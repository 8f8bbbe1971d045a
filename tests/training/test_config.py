"""Settings of a training: each refusal names the value, the rule and the fix."""

import dataclasses
import math
from typing import Any

import pytest

from partwise.errors import ConfigError
from partwise.settings import build
from partwise.training.config import TrainConfig


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"steps": 0}, "steps=0 is too small"),
        ({"tokens": -5}, "tokens=-5 is too small"),
        ({"keep_checkpoints": 0}, "keep_checkpoints=0 is too small"),
        ({"minutes": 0.0}, "minutes=0.0 must be a finite number above 0"),
        ({"lr": math.inf}, "lr=inf must be"),
        ({"lr": math.nan}, "lr=nan must be"),
        ({"warmup_steps": -1}, "warmup_steps=-1 is negative"),
        ({"beta2": 1.0}, "beta2=1.0 is not a share"),
        ({"ema_decay": 1.0}, "ema_decay=1.0 is not a share"),
        ({"min_lr_ratio": 1.5}, "min_lr_ratio=1.5 must be from 0 to 1"),
        ({"lr": "fast"}, "lr='fast' has the wrong type"),
        ({"optimizer": "sgd"}, "optimizer='sgd' is not a choice; choose adamw, muon"),
        ({"learning_rat": 1}, "did you mean"),
        ({"threads": 1_000_000}, "threads=1000000 is more than 1024"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(TrainConfig, changes)
    assert line in str(caught.value)


@pytest.mark.parametrize(("batch", "parts", "choice"), [(10, 4, 8), (3, 8, 8), (64, 7, 63)])
def test_a_batch_that_cannot_be_cut_evenly_names_one_that_can(
    batch: int, parts: int, choice: int
) -> None:
    with pytest.raises(ConfigError, match=f"batch_size={choice} would do"):
        TrainConfig(batch_size=batch, accumulation=parts)
    assert TrainConfig(batch_size=choice, accumulation=parts).batch_size == choice


def test_every_setting_has_a_help_line() -> None:
    for field in dataclasses.fields(TrainConfig):
        assert field.metadata["help"], field.name
