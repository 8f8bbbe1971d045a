"""Every field of `TrainConfig` changes the training: none is taken and then ignored.

`order`, `sample_chars`, `tensorboard` and `wandb` are the run folder's: see
tests/run/test_fields.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from partwise.errors import ConfigError
from partwise.machine import CompileCheck
from partwise.messages import Notice
from partwise.settings import options
from partwise.training import compiling
from partwise.training.config import TrainConfig
from partwise.training.data import Data
from partwise.training.events import Evaluated, Finished, Saved, Started, Stepped
from partwise.training.loop import train
from training.doubles import CONFIG, MODEL, Clock, data, new_model

# The field: what stands beside it, and the value that must make a difference.
CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "steps": ({}, 8),
    "epochs": ({}, 0.3),
    "tokens": ({}, 128),
    "minutes": ({"steps": None, "minutes": 1.0}, 0.5),
    "target_loss": ({}, 100.0),
    # A rate so low that no weight moves, and no loss becomes better.
    "patience": ({"lr": 1e-12}, 1),
    "batch_size": ({}, 8),
    "accumulation": ({}, 2),
    "short_context": ({}, 4),
    "short_share": ({"short_context": 4}, 0.5),
    "seed": ({}, 2),
    "optimizer": ({}, "muon"),
    "lr": ({}, 2e-3),
    "muon_lr": ({"optimizer": "muon"}, 0.01),
    "embedding_lr": ({}, 2e-3),
    "head_lr": ({}, 2e-3),
    "beta1": ({}, 0.8),
    "beta2": ({}, 0.9),
    "eps": ({}, 1e-3),
    "muon_momentum": ({"optimizer": "muon"}, 0.8),
    "muon_momentum_steps": ({"optimizer": "muon"}, 5),
    "muon_polynomial": ({"optimizer": "muon"}, "polar_express"),
    "muon_steps": ({"optimizer": "muon"}, 3),
    "weight_decay": ({}, 0.3),
    "muon_weight_decay": ({"optimizer": "muon"}, 0.3),
    "decay_all": ({}, True),
    "grad_clip": ({}, 0.1),
    "schedule": ({}, "linear"),
    "warmup_steps": ({}, 1),
    "min_lr_ratio": ({}, 0.5),
    "decay_fraction": ({"schedule": "wsd"}, 0.5),
    "label_smoothing": ({}, 0.1),
    "ema_decay": ({}, 0.9),
    "dtype": ({}, "bfloat16"),
    "compile": ({}, "on"),
    "threads": ({"threads": 1}, 2),
    "eval_every": ({}, 3),
    "eval_tokens": ({}, 16),
    "log_every": ({}, 2),
    "checkpoint_every": ({}, 3),
    "keep_checkpoints": ({}, 1),
}
ELSEWHERE = {"device", "order", "sample_chars", "tensorboard", "wandb"}


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that leaves everything as it is, and takes no time."""
    check = CompileCheck(True, Notice("works"))
    monkeypatch.setattr(compiling, "compile_check", lambda device: check)
    monkeypatch.setattr(compiling, "is_small", lambda *_: False)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def effects(config: TrainConfig, folder: Path) -> list[Any]:
    """All that a training does: its weights, what it tells of itself, what it writes."""
    clock = Clock()
    # With an output layer of its own, which has a rate of its own.
    model = new_model(replace(MODEL, tie_embeddings=False), seed=config.seed)
    text: Data = data(config, clock=clock, step_seconds=1.0)
    passes = 0
    tapped = model.register_forward_hook(lambda *_: count())

    def count() -> None:
        nonlocal passes
        passes += 1

    told: list[Any] = []
    for event in train(model, text, config, folder=folder, clock=clock):
        if isinstance(event, Started | Stepped | Evaluated | Finished):
            told.append(event)
        elif isinstance(event, Saved):
            told.append(sorted(path.name for path in event.path.parent.iterdir()))
    tapped.remove()
    weights = [tensor.flatten().tolist() for tensor in model.state_dict().values()]
    return [passes, told, weights]


def test_there_is_a_case_for_each_field() -> None:
    assert {*CASES, *ELSEWHERE} == set(options(TrainConfig))


@pytest.mark.parametrize("field", CASES)
def test_each_field_of_a_training_has_an_effect(field: str, tmp_path: Path) -> None:
    beside, value = CASES[field]
    config = replace(CONFIG, **beside)
    changed = replace(config, **{field: value})
    assert effects(config, tmp_path / "one") != effects(changed, tmp_path / "other")


def test_the_same_settings_have_the_same_effects(tmp_path: Path) -> None:
    """Else the tests above would pass whatever a field does."""
    assert effects(CONFIG, tmp_path / "one") == effects(CONFIG, tmp_path / "other")


def test_a_device_is_honoured_or_refused() -> None:
    with pytest.raises(ConfigError, match="device=cuda:63 is not on this machine"):
        next(train(new_model(), data(), replace(CONFIG, device="cuda:63")))
