"""The validation loss: every token once, exactly, and nothing disturbed."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import TextError
from partwise.model.gpt import GPT
from partwise.text.batches import windows
from partwise.training.evaluate import evaluate
from training.doubles import CONTEXT, MODEL, View, new_model, tokens


def measured(model: GPT, view: View, batch_size: int = 3, **more: Any) -> float | None:
    return evaluate(
        model, view, windows=windows, context_length=CONTEXT, batch_size=batch_size, **more
    )


def by_hand(model: GPT, view: View) -> float:
    """Each token but the first, predicted from what stands before it in its window."""
    model.eval()
    nats = 0.0
    with torch.no_grad():
        for place in range(1, len(view)):
            start = (place - 1) // CONTEXT * CONTEXT
            before = torch.from_numpy(view[start:place].astype(np.int64))[None]
            nats -= model(before)[0, -1].double().log_softmax(-1)[int(view[place : place + 1][0])]
    return float(nats) / (len(view) - 1)


@settings(max_examples=20, deadline=None)
@given(length=st.integers(2, 70), batch_size=st.integers(1, 5), seed=st.integers(0, 99))
def test_it_is_the_mean_over_every_token(length: int, batch_size: int, seed: int) -> None:
    model, view = new_model(seed=seed), tokens(length, seed)
    value = measured(model, view, batch_size)
    assert value == pytest.approx(by_hand(model, view), rel=1e-5)


def test_an_untrained_model_is_as_wise_as_chance() -> None:
    model = new_model(replace(MODEL, initialisation="normal"))
    assert measured(model, tokens(200)) == pytest.approx(math.log(MODEL.vocab_size), abs=0.05)


def test_it_draws_no_random_number_and_keeps_the_mode() -> None:
    model = new_model()
    for training in (True, False):
        model.train(training)
        torch.manual_seed(5)
        before = torch.get_rng_state()
        first = measured(model, tokens(60))
        assert torch.equal(torch.get_rng_state(), before)
        assert model.training is training
        assert all(parameter.grad is None for parameter in model.parameters())
        assert measured(model, tokens(60)) == first


def test_the_mode_is_kept_when_the_text_ends_in_an_error() -> None:
    model = new_model()
    with pytest.raises(IndexError):
        evaluate(
            model,
            tokens(60),
            windows=lambda *_: iter([[][0]]),
            context_length=CONTEXT,
            batch_size=1,
        )
    assert model.training


def test_a_limit_takes_the_same_windows_each_time_from_all_over_the_text() -> None:
    taken: list[list[int]] = []
    numbers = View([0] * (CONTEXT * 20 + 1))

    class Places(View):
        def rows(self, starts: Any, length: int) -> Any:
            taken[-1].extend(starts.tolist())
            return super().rows(starts, length)

    model = new_model()
    for _ in range(2):
        taken.append([])
        measured(model, Places(numbers.ids), limit=5 * CONTEXT)
    assert taken[0] == taken[1]
    assert taken[0] == [4 * CONTEXT * number for number in range(5)]


def test_it_can_be_given_up() -> None:
    model = new_model()
    answers = iter([False, True])
    assert measured(model, tokens(60), 1, stop=lambda: next(answers)) is None
    assert model.training


def test_a_text_of_one_token_has_nothing_to_predict() -> None:
    with pytest.raises(TextError, match="no token to predict"):
        measured(new_model(), tokens(1))
