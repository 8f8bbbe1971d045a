"""The decoder alone that is trained beside an encoder-decoder: the same parts, the same size."""

from dataclasses import replace

import pytest

from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.model.seq2seq_presets import seq2seq_preset
from partwise.translation.building import build_model, layout, marks
from partwise.translation.shape import (
    Shape,
    decoder_alone,
    longest,
    parameters,
    with_vocabulary,
)


@pytest.mark.parametrize("name", ["pair", "task", "transformer-base"])
def test_it_is_as_large_within_half_a_block(name: str) -> None:
    two = seq2seq_preset(name)
    one = decoder_alone(two)
    block = parameters(replace(one, n_layers=2)) - parameters(replace(one, n_layers=1))
    assert abs(parameters(one) - parameters(two)) <= block / 2
    assert (one.d_model, one.n_heads, one.feedforward) == (
        two.d_model,
        two.n_heads,
        two.feedforward,
    )
    assert longest(one) == longest(two)


@pytest.mark.parametrize("shape", [Seq2SeqConfig(), decoder_alone(Seq2SeqConfig())])
def test_the_vocabulary_ends_with_pad_start_and_end(shape: Shape) -> None:
    shape = with_vocabulary(shape, 40)
    assert shape.vocab_size == 43
    known = marks(shape)
    assert (known.pad, known.start, known.end) == (40, 41, 42)
    inputs, targets = layout(shape)([[1]], [[2]])  # type: ignore[list-item]
    assert 41 in inputs
    assert 42 in targets
    assert sum(p.numel() for p in build_model(shape).parameters()) == parameters(shape)
