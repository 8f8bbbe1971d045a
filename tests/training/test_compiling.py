"""Whether a step is compiled is chosen by what is known of the run, and said in one line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from compilers import needs_compiler
from torch import nn

from partwise.errors import CompilerError
from partwise.machine import CompileCheck
from partwise.machine.library import Source
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.training import compiling
from partwise.training.compiling import (
    LONG,
    LONG_FOR_ATTENTION,
    LONG_IF_WIDE,
    NARROW,
    attention_library,
    choose_compile,
    shortest,
)
from partwise.training.data import Batch
from partwise.training.events import Said, Started, Stepped
from training.doubles import CONFIG, CONTEXT, MODEL, ROWS, data, new_model, of, run

AUTO = replace(CONFIG, compile="auto")
# The CPU that these tests are told of does 1e11 operations a second in float32.
PEAK = 1e11


def chosen(
    device: str = "cpu",
    total: int | None = 12,
    model: GPT | None = None,
    dtype: torch.dtype = torch.float32,
    **changes: Any,
) -> tuple[bool, str]:
    compiling, notice = choose_compile(
        model or new_model(),
        replace(AUTO, **changes),
        data(),
        device=torch.device(device),
        dtype=dtype,
        step=0,
        total=total,
    )
    return compiling, "" if notice is None else str(notice)


def test_what_was_asked_for_is_done_without_a_word() -> None:
    assert chosen(compile="on") == (True, "")
    assert chosen(total=1 << 40, compile="off") == (False, "")


def test_a_long_run_is_compiled_and_a_short_one_is_not() -> None:
    weights = sum(m.weight.numel() for m in new_model().modules() if isinstance(m, nn.Linear))
    a_step = 6 * weights * CONTEXT * ROWS / PEAK
    assert shortest(new_model(), AUTO, data(), dtype=torch.float32, steps=1000) == pytest.approx(
        1000 * a_step
    )
    enough = int(LONG / a_step) + 1
    compiling, line = chosen(total=enough)
    assert compiling
    assert line.startswith("compiling: that takes about a minute, which 5 minutes or more")
    compiling, line = chosen(total=enough - 2)
    assert not compiling
    assert "from 5 minutes on" in line


def test_a_wide_model_is_not_compiled_on_a_cpu() -> None:
    wide = new_model(replace(MODEL, d_model=NARROW + 2))
    compiling, line = chosen(total=1 << 40, model=wide)
    assert not compiling
    assert f"a width of {NARROW + 2}" in line
    assert chosen("cuda", total=1 << 40, model=wide)[0]
    assert chosen(total=1 << 40, model=new_model(replace(MODEL, d_model=NARROW)))[0]


def test_a_wide_model_in_bfloat16_is_compiled_in_a_very_long_run() -> None:
    wide = replace(MODEL, d_model=NARROW + 2, dropout=0.0)
    minutes = LONG_IF_WIDE / 60

    def compiled(config: ModelConfig, minutes: float, dtype: torch.dtype = torch.bfloat16) -> bool:
        return chosen(total=None, model=new_model(config), dtype=dtype, minutes=minutes)[0]

    assert compiled(wide, minutes)
    assert not compiled(wide, minutes - 1)
    assert not compiled(wide, minutes, torch.float32)
    for part in ("dropout", "attention_dropout", "embedding_dropout"):
        assert not compiled(replace(wide, **{part: 0.1}), minutes)
    assert (
        f"from {minutes:.0f} minutes on"
        in chosen(total=None, model=new_model(wide), dtype=torch.bfloat16, minutes=minutes - 1)[1]
    )


def test_minutes_are_what_they_say_and_the_shorter_limit_counts() -> None:
    assert chosen(total=None, minutes=15.0)[0]
    assert not chosen(total=None, minutes=2.0)[0]
    assert not chosen(total=12, minutes=15.0)[0]
    assert not chosen(total=1 << 40, minutes=2.0)[0]


def test_what_cannot_be_foreseen_is_not_compiled() -> None:
    compiling, line = chosen(total=None)
    assert not compiling
    assert "cannot be foreseen" in line


def test_a_gpu_compiles_and_apples_is_left_alone() -> None:
    assert chosen("cuda") == (True, "")
    assert not chosen("mps")[0]


def test_batches_of_several_shapes_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    text = data()
    original = text.train.batch

    def ragged(step: int, rank: int = 0, world: int = 1) -> Batch:
        inputs, targets = original(step)
        return inputs[:, : CONTEXT - step % 2], targets[:, : CONTEXT - step % 2]

    monkeypatch.setattr(text.train, "batch", ragged)
    compiling, notice = choose_compile(
        new_model(),
        AUTO,
        text,
        device=torch.device("cuda"),
        dtype=torch.float32,
        step=0,
        total=1 << 40,
    )
    assert not compiling
    assert "differ in shape" in str(notice)


def test_the_loop_says_it_and_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check = CompileCheck(True, Notice("works"))
    monkeypatch.setattr(compiling, "compile_check", lambda device: check)
    monkeypatch.setattr(compiling, "is_small", lambda *_: False)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    _, events = run(AUTO)
    assert not of(Started, events)[0].compiled
    assert sum("not compiled" in str(said.notice) for said in of(Said, events)) == 1
    monkeypatch.setattr("partwise.training.compiling.LONG", 0.0)
    _, events = run(AUTO)
    assert of(Started, events)[0].compiled
    assert sum("compiling: " in str(said.notice) for said in of(Said, events)) == 1


@pytest.fixture
def avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")


def attention(total: int | None, **changes: Any) -> tuple[Path | None, str]:
    library, notice = attention_library(new_model(), replace(CONFIG, **changes), data(), total)
    return library, "" if notice is None else str(notice)


@needs_compiler
def test_attention_is_compiled_for_a_long_run(avx512: None) -> None:
    weights = sum(m.weight.numel() for m in new_model().modules() if isinstance(m, nn.Linear))
    enough = int(LONG_FOR_ATTENTION / (6 * weights * CONTEXT * ROWS / PEAK)) + 1
    assert attention(enough - 2) == (None, "")
    library, line = attention(enough)
    assert library is not None and line == ""
    assert attention(None) == (None, "")
    assert attention(None, minutes=1.0) == (library, "")
    assert attention(None, minutes=0.1) == (None, "")


def test_attention_that_cannot_be_compiled_or_loaded_costs_one_line(
    avx512: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(_: Source) -> Path:
        raise CompilerError("there is no C compiler here; install gcc or clang")

    monkeypatch.setattr(Source, "library", fails)
    library, line = attention(1 << 40)
    assert library is None
    assert line.startswith("attention goes operation by operation")
    assert "there is no C compiler here" in line
    broken = tmp_path / "attention.so"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(Source, "library", lambda _: broken)
    library, line = attention(1 << 40)
    assert library is None and "attention.so" in line
    monkeypatch.setattr(compiling, "LONG_FOR_ATTENTION", 0.0)
    _, events = run(CONFIG)
    assert sum("attention goes" in str(said.notice) for said in of(Said, events)) == 1


@needs_compiler
def test_a_run_with_compiled_attention_learns_as_one_without(
    avx512: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path | None] = []
    use_lean = GPT.use_lean

    def noted(model: GPT, on: bool, library: Path | None = None) -> None:
        if on:
            seen.append(library)
        use_lean(model, on, library)

    monkeypatch.setattr(GPT, "use_lean", noted)
    quiet, losses = replace(MODEL, dropout=0.0), []
    for least in (1e9, 0.0):
        monkeypatch.setattr(compiling, "LONG_FOR_ATTENTION", least)
        model, events = run(model=new_model(quiet))
        losses.append([event.loss for event in of(Stepped, events)])
        assert all(block.attention.library is None for block in model.blocks)
    assert seen[0] is None and seen[1] is not None
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
