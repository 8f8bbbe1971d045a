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
    LONG_FOR_PARTS,
    LONG_IF_WIDE,
    NARROW,
    Compiled,
    by_gradient,
    choose_compile,
    compile_parts,
    shortest,
)
from partwise.training.data import Batch
from partwise.training.events import Evaluated, Said, Started, Stepped
from partwise.training.objective import Objective
from partwise.training.optim import build_optimizers
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


PLAIN = replace(MODEL, d_model=16, dropout=0.0)


def parts(
    total: int | None, config: ModelConfig = PLAIN, device: str = "cpu", **changes: Any
) -> tuple[list[str], str]:
    """What is computed by C code in such a run, and what is said of it."""
    settings = replace(CONFIG, **{"optimizer": "muon", **changes})
    model = new_model(config)
    objective = Objective(model)
    objective.device = torch.device(device)
    optimizers = build_optimizers(model, settings)
    whole = by_gradient(objective, settings, data(), total)
    notice = compile_parts(objective, optimizers, settings, data(), total, whole)
    found = []
    if getattr(optimizers[0], "_library", None) is not None:
        found.append("muon")
    if objective._gradient is not None:
        found.append("gradient")
    found += ["attention"] if model.blocks[0].attention.library is not None else []
    return found, "" if notice is None else str(notice)


@needs_compiler
def test_parts_are_compiled_for_a_long_run(avx512: None) -> None:
    model = new_model(PLAIN)
    weights = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear))
    enough = int(LONG_FOR_PARTS / (6 * weights * CONTEXT * ROWS / PEAK)) + 1
    assert parts(enough - 2) == ([], "")
    found, line = parts(enough)
    assert found == ["muon", "gradient"]
    assert line.startswith("the loss and its gradient are one function of C")
    assert parts(None) == ([], "")
    assert parts(None, minutes=1.0)[0] == ["muon", "gradient"]
    assert parts(None, minutes=0.01) == ([], "")
    assert parts(enough, optimizer="adamw")[0] == ["gradient"]


@needs_compiler
@pytest.mark.parametrize(
    ("config", "changes", "expected"),
    [
        (PLAIN, {"compile": "auto"}, ["muon", "gradient"]),
        (PLAIN, {"compile": "on"}, ["muon", "attention"]),
        (PLAIN, {"label_smoothing": 0.1}, ["muon", "attention"]),
        (PLAIN, {"accumulation": 2}, ["muon", "attention"]),
        (replace(PLAIN, dropout=0.1), {}, ["muon", "gradient"]),
        (replace(PLAIN, d_model=12), {}, ["muon", "attention"]),
        (replace(PLAIN, window=4), {}, ["muon"]),
        (PLAIN, {"compile": "auto", "optimizer": "adamw"}, ["gradient"]),
        (PLAIN, {"device": "cuda"}, []),
    ],
)
def test_what_is_computed_by_c(
    config: ModelConfig, changes: dict[str, Any], expected: list[str], avx512: None
) -> None:
    device = changes.pop("device", "cpu")
    assert parts(1 << 40, config, device, **changes)[0] == expected


@needs_compiler
def test_a_model_with_a_hook_inside_is_computed_part_by_part(avx512: None) -> None:
    for listen in (
        lambda model: model.blocks[0].register_forward_hook(lambda *_: None),
        lambda model: model.head.weight.register_post_accumulate_grad_hook(lambda _: None),
    ):
        objective = Objective(new_model(PLAIN))
        assert by_gradient(objective, CONFIG, data(), 1 << 40)
        listen(objective.model)
        assert not by_gradient(objective, CONFIG, data(), 1 << 40)


@needs_compiler
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_that_was_not_compiled_goes_on_as_it_began(
    optimizer: Any, avx512: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record says compile=off where it was auto, and neither keeps C code away."""
    monkeypatch.setattr(compiling, "LONG_FOR_PARTS", 0.0)
    settings, said = replace(CONFIG, optimizer=optimizer), []
    for compile in ("auto", "off"):
        config = replace(settings, compile=compile)
        _, events = run(config, model=new_model(PLAIN))
        said.append([str(event.notice) for event in of(Said, events)])
        assert not of(Started, events)[0].compiled
    assert said[0] == said[1]
    assert any("one function of C" in line for line in said[0])


@needs_compiler
def test_a_small_model_in_a_long_run_is_one_function_all_the_same(
    avx512: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[torch.Size] = []

    def noted(usual: Any, objective: Objective, *others: Any, **_: Any) -> Compiled:
        taken.append(others[2].shape)
        return Compiled(usual, None, 0.0)

    monkeypatch.setattr(compiling, "LONG", 0.0)
    monkeypatch.setattr(compiling, "LONG_FOR_PARTS", 0.0)
    monkeypatch.setattr("partwise.training.loop.compile_step", noted)
    _, events = run(replace(AUTO, optimizer="adamw"), model=new_model(PLAIN))
    assert taken == [torch.Size((ROWS, CONTEXT))]
    assert not any("one function of C" in str(event.notice) for event in of(Said, events))


def test_parts_that_cannot_be_compiled_or_loaded_cost_one_line(
    avx512: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(_: Source) -> Path:
        raise CompilerError("there is no C compiler here; install gcc or clang")

    monkeypatch.setattr(Source, "library", fails)
    found, line = parts(1 << 40)
    assert found == []
    assert line.startswith("training goes operation by operation")
    assert "there is no C compiler here" in line
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(Source, "library", lambda _: broken)
    found, line = parts(1 << 40)
    assert found == [] and "broken.so" in line
    monkeypatch.setattr(compiling, "LONG_FOR_PARTS", 0.0)
    _, events = run(CONFIG)
    assert sum("training goes" in str(said.notice) for said in of(Said, events)) == 1


@needs_compiler
@pytest.mark.parametrize("config", [PLAIN, replace(MODEL, window=None, dropout=0.0)])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_with_compiled_parts_learns_as_one_without(
    config: ModelConfig, optimizer: Any, avx512: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, lines = [], []
    for least in (1e9, 0.0):
        monkeypatch.setattr(compiling, "LONG_FOR_PARTS", least)
        settings = replace(CONFIG, optimizer=optimizer, grad_clip=0.5)
        model, events = run(settings, model=new_model(config))
        lines.append([str(said.notice) for said in of(Said, events)])
        losses.append(
            [event.loss for event in of(Stepped, events)]
            + [event.val_loss for event in of(Evaluated, events)]
        )
        assert all(block.attention.library is None for block in model.blocks)
    assert sum("one function of C" in line for line in lines[1]) == (config is PLAIN)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
