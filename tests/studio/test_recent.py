"""What requests fill has a limit: the memory itself, and each place that uses it."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.studio import explorer, kernel, labs, traces
from partwise.studio.kernel_output import Shown
from partwise.studio.recent import Recent
from partwise.studio.state import State
from partwise.text.char import CharTokenizer


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 8))), st.integers(1, 20))
def test_it_never_holds_more_than_it_may(puts: list[tuple[int, int]], most: int) -> None:
    recent: Recent[int, int] = Recent(most, float)
    for key, size in puts:
        recent.put(key, size)
        held = dict(recent.items())
        assert held[key] == size
        assert len(held) == 1 or sum(held.values()) <= most


def test_what_was_used_last_stays() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert [key for key, _ in recent.items()] == ["a", "c"]
    assert recent.get("b") is None
    assert recent.get_or("a", lambda: 9) == 1 and recent.get_or("d", lambda: 9) == 9
    recent.clear()
    assert len(recent) == 0


def test_the_figures_of_a_trace_are_no_endless_list() -> None:
    torch.manual_seed(0)
    tokenizer = CharTokenizer("ab")
    model = GPT(ModelConfig(vocab_size=tokenizer.vocab_size, d_model=8, n_heads=2, n_layers=1))
    traced = traces.trace_text(model.eval(), tokenizer, "ab")
    for head in range(traces.FIGURES + 50):
        # A head means nothing to this tensor, and is part of the question all the same.
        explorer.tensor(traced, {"name": "embedding", "head": str(head)})
    assert len(traced.figures) == traces.FIGURES


def test_what_cells_have_shown_is_no_endless_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "SHOWN", 10_000)
    told: list[object] = []
    one = kernel.Kernel("05", tmp_path, "", told.append)
    for number in range(200):
        cell = f"cell-{number}"
        one.shown.put(cell, Shown())
        for _ in range(3):
            one._heard(cell, {"kind": "stream", "name": "stdout", "text": "x" * 100})
    assert 3 <= len(one.shown) <= 10_000 // 1300 + 1
    assert one.shown.items()[-1][0] == "cell-199"
    assert one.shown.items()[-1][1].outputs[0]["text"] == "x" * 300


def test_the_texts_of_the_labs_are_no_endless_list(tmp_path: Path) -> None:
    experiments = labs.Labs(State(root=tmp_path, data=tmp_path, cache=tmp_path))
    for number in range(labs.TEXTS + 5):
        experiments._texts.put(tmp_path / str(number), None)  # type: ignore[arg-type]
    assert len(experiments._texts) == labs.TEXTS
