"""Samples at once are counted against this machine's memory before the first is begun."""

import pytest

from partwise.errors import SamplingError
from partwise.model.config import ModelConfig
from partwise.sampling import room

MODEL = ModelConfig(vocab_size=100, context_length=64, n_layers=2, d_model=32, n_heads=4)

# Keys and values of two layers, 64 places of 32 numbers each, and what is held of 100 logits.
EACH = 2 * 2 * 64 * 32 * 4 + 16 * 100


def test_as_many_as_fit_are_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "memory_bytes", lambda: 10 * EACH)
    room.require_room(MODEL, 10)
    with pytest.raises(SamplingError, match=r"count=11 samples .* give 5 or fewer"):
        room.require_room(MODEL, 11)


def test_a_machine_that_does_not_say_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "memory_bytes", lambda: None)
    room.require_room(MODEL, 10**12)
