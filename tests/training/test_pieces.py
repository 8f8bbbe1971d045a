"""Short texts first: what each step reads, and that a piece of a text sees nothing of another."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from partwise.errors import ConfigError
from partwise.machine import CompileCheck
from partwise.messages import Notice
from partwise.training import compiling
from partwise.training.config import TrainConfig
from partwise.training.events import Finished, Said, Started, Stepped
from partwise.training.loop import train
from partwise.training.objective import Objective
from partwise.training.pieces import cut, fitting, piece_length
from partwise.training.plan import check_parts
from partwise.training.progress import Progress
from partwise.training.whole_step import unsuited
from training.doubles import CONFIG, CONTEXT, MODEL, Clock, data, equal, new_model, of, run

# Pieces of 2 tokens in the first half of 12 steps.
SHORT = replace(CONFIG, short_context=2, short_share=0.5)


def shapes_read(
    config: TrainConfig, *, training: bool = True, **changes: Any
) -> list[tuple[int, ...]]:
    """The shape of every batch that the model trains on, or is judged by."""
    model = new_model()
    seen: list[tuple[int, ...]] = []

    def look(part: nn.Module, given: tuple[Tensor, ...]) -> None:
        if part.training is training:
            seen.append(tuple(given[0].shape))

    model.register_forward_pre_hook(look)
    run(config, model=model, **changes)
    return seen


def test_texts_are_short_for_their_share_of_the_steps() -> None:
    assert [piece_length(step, 12, SHORT, CONTEXT) for step in (0, 5, 6, 11)] == [
        2,
        2,
        None,
        None,
    ]
    assert piece_length(100, None, SHORT, CONTEXT) == 2
    assert piece_length(0, 12, replace(SHORT, short_share=0.0), CONTEXT) is None
    assert piece_length(11, 12, replace(SHORT, short_share=1.0), CONTEXT) == 2
    for none in (None, CONTEXT, CONTEXT + 1):
        assert piece_length(0, 12, replace(SHORT, short_context=none), CONTEXT) is None


def test_a_text_is_cut_in_its_order() -> None:
    inputs = torch.arange(16).view(2, 8)
    pieces, targets = cut(inputs, inputs + 1, 4)
    assert pieces.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert torch.equal(targets, pieces + 1)
    assert cut(inputs, inputs, None)[0] is inputs


def test_the_model_reads_pieces_and_then_whole_texts() -> None:
    assert shapes_read(SHORT) == [(16, 2)] * 6 + [(4, 8)] * 6
    assert shapes_read(SHORT, accumulation=2) == [(8, 2)] * 12 + [(2, 8)] * 12


def test_tokens_are_those_of_whole_texts() -> None:
    _, events = run(SHORT)
    assert of(Finished, events)[0].tokens == 12 * CONFIG.batch_size * CONTEXT
    assert of(Started, events)[0].tokens_per_step == CONFIG.batch_size * CONTEXT


def test_evaluations_are_in_windows_of_what_is_read_and_whole_at_the_end() -> None:
    # 75 tokens of which 74 are foretold; evaluations after 4, 8 and 12 steps.
    short = [(16, 2), (16, 2), (5, 2)]
    whole = [(4, 8), (4, 8), (1, 8), (1, 2)]
    assert shapes_read(SHORT, training=False) == short + whole + whole
    always = replace(SHORT, short_share=1.0)
    assert shapes_read(always, training=False) == short + short + whole


def test_that_texts_are_short_first_is_said() -> None:
    def said(config: TrainConfig, position: Any = "rotary") -> list[str]:
        _, events = run(config, model=new_model(replace(MODEL, position=position)))
        return [str(each.notice) for each in of(Said, events) if "texts of" in str(each.notice)]

    (line,) = said(SHORT)
    assert line.startswith("texts of 2 tokens in the first 50% of the steps")
    assert "then of 8" in line
    (line,) = said(SHORT, "learned")
    assert "positions from there to 8" in line
    assert not said(CONFIG) and not said(replace(SHORT, short_context=8))
    assert not said(replace(SHORT, short_share=0.0))


def test_no_run_goes_back_to_pieces() -> None:
    progress = Progress(step=5)
    assert progress.pieces(12, SHORT, CONTEXT) == 2
    progress.step = 6
    assert progress.pieces(12, SHORT, CONTEXT) is None and progress.whole_from == 6
    # The plan for the minutes grows.
    assert progress.pieces(100, SHORT, CONTEXT) is None


def test_minutes_are_kept_where_whole_texts_take_longer() -> None:
    """A plan that was made while texts were short is made again once they are not."""
    config = replace(SHORT, steps=None, minutes=10.0, short_share=0.8, eval_every=10**9)
    clock = Clock()
    text = data(config)
    shapes = []
    model = new_model()

    def look(part: nn.Module, given: tuple[Tensor, ...]) -> None:
        if part.training:
            shapes.append(given[0].shape[1])
            clock.now += 6.0 if given[0].shape[1] == CONTEXT else 2.0

    model.register_forward_pre_hook(look)
    events = list(train(model, text, config, clock=clock))
    (finished,) = of(Finished, events)
    assert finished.reason == "minutes" and 590 <= clock.now - 1000 <= 610
    # The last step was planned to be the last, so that its rate was the lowest.
    last = of(Stepped, events)[-1]
    assert last.total is not None and finished.step == last.total
    assert shapes == sorted(shapes) and shapes[-10:] == [CONTEXT] * 10


def test_parts_of_a_batch_of_pieces_add_up_to_the_whole() -> None:
    still = replace(MODEL, dropout=0.0)
    whole, _ = run(SHORT, model=new_model(still))
    parts, _ = run(SHORT, model=new_model(still), accumulation=2)
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        # AdamW moves a weight by up to its rate, 1e-3, whatever the gradient's size.
        torch.testing.assert_close(one, other, atol=2e-4, rtol=0)


def test_a_run_of_short_texts_alone_is_a_run_of_a_short_context() -> None:
    """Pieces see nothing of each other: the same as texts that were never longer."""
    still = replace(MODEL, dropout=0.0, position="rotary")
    model, _ = run(replace(SHORT, short_share=1.0, eval_every=100), model=new_model(still))
    other = new_model(still)
    config = replace(CONFIG, eval_every=100)
    text = data(config)

    class Pieces:
        batch_size, context_length = 16, 2

        def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
            return tuple(part.reshape(16, 2) for part in text.train.batch(step))

    pieces = replace(text, train=Pieces())
    for _ in train(other, pieces, replace(config, batch_size=16)):
        pass
    assert equal(model, other)


@pytest.mark.parametrize("at", [4, 6, 8])
def test_a_run_stopped_before_at_or_after_the_change_ends_alike(tmp_path: Path, at: int) -> None:
    config = replace(SHORT, checkpoint_every=1)
    straight, _ = run(config)
    first = new_model()
    for event in train(first, data(config), config, folder=tmp_path):
        if getattr(event, "step", 0) == at and type(event).__name__ == "Saved":
            break
    resumed, _ = run(config, folder=tmp_path, resume=True)
    assert equal(straight, resumed)


def test_each_length_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[int, ...]] = []
    works = CompileCheck(True, Notice("works"))
    monkeypatch.setattr(compiling, "compile_check", lambda device: works)
    monkeypatch.setattr(compiling, "is_small", lambda *_: False)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    kept = Objective.compile

    def compile(self: Objective, inputs: Tensor, *rest: Any) -> Notice | None:
        compiled.append(tuple(inputs.shape))
        return kept(self, inputs, *rest)

    monkeypatch.setattr(Objective, "compile", compile)
    run(SHORT)
    assert not compiled
    run(SHORT, compile="on")
    # Both before the first step.
    assert compiled == [(16, 2), (4, 8)]
    _, events = run(replace(SHORT, compile="on"))
    assert of(Started, events)[0].compiled

    def fails(function: Any, **_: Any) -> Any:
        def call(inputs: Tensor, *rest: Any) -> Any:
            if inputs.shape == (4, 8):
                raise RuntimeError("no room")
            return function(inputs, *rest)

        return call

    monkeypatch.setattr(torch, "compile", fails)
    _, events = run(SHORT, compile="on")
    assert "no room" in [said.notice.values.get("reason") for said in of(Said, events)]
    assert not of(Started, events)[0].compiled
    assert of(Finished, events)


def test_a_step_of_two_lengths_is_not_one_function() -> None:
    objective = Objective(new_model())
    assert unsuited(objective, CONFIG) is None
    reason = unsuited(objective, SHORT)
    assert reason is not None and "equally long" in str(reason)


def test_texts_of_the_data_are_what_is_cut() -> None:
    """Whatever the model could read."""
    model = new_model(replace(MODEL, context_length=16))
    with pytest.raises(ConfigError, match="context_length=8 is no multiple of short_context=3"):
        list(train(model, data(), replace(CONFIG, short_context=3)))


@pytest.mark.parametrize(("short", "fits"), [(3, 2), (5, 4), (7, 4)])
def test_pieces_that_do_not_fill_a_text_are_refused(short: int, fits: int) -> None:
    assert fitting(short, CONTEXT) == fits
    config = replace(CONFIG, short_context=short)
    with pytest.raises(ConfigError, match=f"short_context={short}; short_context={fits} would fit"):
        check_parts(config, MODEL)
    with pytest.raises(ConfigError, match="no multiple"):
        run(config)
    check_parts(replace(config, short_context=fits), MODEL)


def test_a_run_without_a_foreseen_end_has_no_first_part() -> None:
    config = replace(SHORT, steps=None, schedule="constant", patience=3)
    with pytest.raises(ConfigError, match="needs to know how long"):
        run(config)
    shapes = shapes_read(replace(config, minutes=1e-9))
    assert shapes == [(16, 2)]


@pytest.mark.parametrize("value", [0, -1])
def test_pieces_have_a_token(value: int) -> None:
    with pytest.raises(ConfigError, match="too small"):
        TrainConfig(short_context=value)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_share_is_a_share(value: float) -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        TrainConfig(short_share=value)
