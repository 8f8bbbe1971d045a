"""The loop: the same bits however it is stopped, watched or cut; and an end with a reason."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from compilers import needs_compiler

from partwise.errors import ConfigError, RunError, StorageError, TrainingError
from partwise.machine import CompileCheck
from partwise.messages import Notice
from partwise.model.gpt import GPT
from partwise.text.batches import ahead, windows
from partwise.training import compiling, loop
from partwise.training.checkpoint import load
from partwise.training.config import TrainConfig
from partwise.training.evaluate import evaluate
from partwise.training.events import Evaluated, Finished, Said, Saved, Started, Stepped
from partwise.training.listeners import JsonLines, read_metrics
from partwise.training.loop import train
from training.doubles import CONFIG, CONTEXT, MODEL, Clock, data, equal, new_model, of, run, tokens

# All that a run remembers: two optimizers, a mean, a schedule that depends on the step, dropout.
RICH = replace(CONFIG, optimizer="muon", ema_decay=0.9, accumulation=2, grad_clip=0.5)


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The metrics file without what depends on the clock."""
    timed = ("seconds", "tokens_per_second")
    lines = read_metrics(folder / "metrics.jsonl")
    return [{k: v for k, v in line.items() if k not in timed} for line in lines]


def same_checkpoint(one: Path, other: Path) -> bool:
    """Whether two runs' last checkpoints hold the same bits."""
    mine, theirs = load(one, "last"), load(other, "last")
    for name in ("weights", "averaged", "optimizer"):
        a, b = getattr(mine, name), getattr(theirs, name)
        if a is None or b is None:
            assert a is b
        elif a.keys() != b.keys() or not all(torch.equal(a[key], b[key]) for key in a):
            return False
    progress = [{**point.state["progress"], "seconds": 0} for point in (mine, theirs)]
    return progress[0] == progress[1]


def written(
    folder: Path,
    config: TrainConfig,
    *,
    resume: bool = False,
    model: GPT | None = None,
    abandon_after: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Any]:
    """Train with a metrics file; `abandon_after` events the process is as good as killed."""
    listener = JsonLines(folder / "metrics.jsonl")
    folder.mkdir(exist_ok=True)
    model = model or new_model()
    events = []
    training = train(model, data(config), config, folder=folder, resume=resume, stop=stop)
    for event in itertools.islice(training, abandon_after):
        listener(event)
        events.append(event)
    training.close()
    return events


def test_a_run_that_is_killed_at_any_event_ends_in_the_same_bits(tmp_path: Path) -> None:
    config = replace(RICH, steps=7, eval_every=3, log_every=2)
    whole = tmp_path / "whole"
    count = len(written(whole, config))
    assert count == 12
    for place in range(1, count):
        broken = tmp_path / f"killed-{place}"
        written(broken, config, abandon_after=place)
        written(broken, config, resume=True)
        assert same_checkpoint(whole, broken), place
        assert metrics(whole) == metrics(broken), place


def test_a_run_that_is_killed_again_and_again_ends_in_the_same_bits(tmp_path: Path) -> None:
    written(tmp_path / "whole", RICH)
    for place in (9, 6, 4, None):
        written(tmp_path / "killed", RICH, resume=True, abandon_after=place)
    assert same_checkpoint(tmp_path / "whole", tmp_path / "killed")
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "killed")


@needs_compiler
@pytest.mark.parametrize("accumulation", [1, 2])
def test_with_compiled_parts_too(
    accumulation: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All of the gradient by C code, or attention and Muon alone."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(compiling, "LONG_FOR_PARTS", 0.0)
    config = replace(RICH, accumulation=accumulation)
    parts = replace(MODEL, d_model=16, dropout=0.0)
    written(tmp_path / "whole", config, model=new_model(parts))
    for place in (9, 4, None):
        written(
            tmp_path / "killed", config, model=new_model(parts), resume=True, abandon_after=place
        )
    assert same_checkpoint(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize("asked", range(1, 20))
def test_a_stop_request_saves_at_once_and_loses_nothing(asked: int, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    written(whole, RICH)
    questions = itertools.count(1)
    events = written(stopped, RICH, stop=lambda: next(questions) >= asked)
    finished = events[-1]
    assert isinstance(finished, Finished)
    if finished.reason == "interrupted" and finished.step > 0:
        saved = of(Saved, events)[-1]
        assert saved.step == finished.step
        assert load(stopped, "last").step == finished.step
    written(stopped, RICH, resume=True)
    assert same_checkpoint(whole, stopped)
    assert metrics(whole) == metrics(stopped)
    assert load(whole, "best").step == load(stopped, "best").step


def test_resuming_a_finished_run_only_says_so(tmp_path: Path) -> None:
    written(tmp_path, CONFIG)
    before = metrics(tmp_path)
    events = written(tmp_path, CONFIG, resume=True)
    assert not of(Stepped, events) + of(Evaluated, events) + of(Saved, events)
    assert events[-1].reason == "steps"
    assert metrics(tmp_path) == before


def test_resuming_from_nothing_starts_at_the_beginning(tmp_path: Path) -> None:
    model, events = run(folder=tmp_path, resume=True)
    assert of(Started, events)[0].resumed is False
    assert equal(model, run()[0])


def test_a_folder_with_another_run_is_not_written_over(tmp_path: Path) -> None:
    run(folder=tmp_path)
    with pytest.raises(RunError, match="already holds a run"):
        run(folder=tmp_path)


def test_what_changed_since_the_checkpoint_is_said(tmp_path: Path) -> None:
    run(folder=tmp_path, steps=4)
    _, events = run(folder=tmp_path, resume=True, steps=4, log_every=1, eval_every=2)
    assert not [said for said in of(Said, events) if "resumed with" in str(said.notice)]
    _, events = run(folder=tmp_path, resume=True, steps=8, lr=0.01)
    lines = [str(said.notice) for said in of(Said, events)]
    (line,) = [line for line in lines if "resumed with" in line]
    assert "lr 0.001 → 0.01" in line
    assert "steps 4 → 8" in line
    assert "eval_every" not in line
    assert "vectors" not in line


def test_that_other_vectors_compute_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    run(folder=tmp_path, steps=4)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    _, events = run(folder=tmp_path, resume=True, steps=8)
    assert any("vectors AVX512 → AVX2" in str(said.notice) for said in of(Said, events))


def test_a_damaged_checkpoint_is_set_aside_and_the_bits_are_the_same(tmp_path: Path) -> None:
    written(tmp_path / "whole", RICH)
    written(tmp_path / "torn", RICH, abandon_after=14)
    newest = sorted((tmp_path / "torn" / "checkpoints").glob("step-*"))[-1]
    (newest / "model.safetensors").write_bytes(b"half")
    events = written(tmp_path / "torn", RICH, resume=True)
    assert any("is damaged" in str(said.notice) for said in of(Said, events))
    assert same_checkpoint(tmp_path / "whole", tmp_path / "torn")
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "torn")


def test_the_mean_begins_where_an_older_run_kept_none(tmp_path: Path) -> None:
    run(folder=tmp_path, steps=4)
    before = load(tmp_path, "last").weights
    run(folder=tmp_path, resume=True, steps=5, ema_decay=0.5)
    after = load(tmp_path, "last")
    assert after.averaged is not None
    for name, mean in after.averaged.items():
        # The mean's decay in step 5 is (1 + 5) / (10 + 5).
        assert torch.allclose(mean, 0.4 * before[name] + 0.6 * after.weights[name], atol=1e-6)


def test_evaluating_logging_sampling_and_threads_that_draw_ahead_change_nothing(
    tmp_path: Path,
) -> None:
    expected, _ = run(RICH)
    for changes in ({"eval_every": 1}, {"log_every": 1}, {"eval_tokens": 20}, {"eval_every": 5}):
        assert equal(run(RICH, **changes)[0], expected), changes

    model = new_model()
    workers = replace(data(RICH), ahead=lambda batches, start: ahead(batches, start, 3))
    for event in train(model, workers, RICH):
        if isinstance(event, Evaluated):
            # As a sample along the way does: another mode, and random numbers.
            model.eval()
            torch.rand(7)
    assert equal(model, expected)


def test_the_seed_decides_everything() -> None:
    assert equal(run()[0], run()[0])
    assert not equal(run()[0], run(seed=2)[0])


def test_every_random_state_before_the_run_gives_the_same_run() -> None:
    expected, model = run()[0], new_model()
    torch.manual_seed(99)
    assert equal(run(model=model)[0], expected)


def test_events_come_in_order_with_what_happened(tmp_path: Path) -> None:
    _, events = run(folder=tmp_path)
    told = [event for event in events if not isinstance(event, Said)]
    assert [(type(e).__name__, e.step) for e in told] == [
        ("Started", 0),
        ("Stepped", 3),
        ("Evaluated", 4),
        ("Saved", 4),
        ("Stepped", 6),
        ("Evaluated", 8),
        ("Saved", 8),
        ("Stepped", 9),
        ("Stepped", 12),
        ("Evaluated", 12),
        ("Saved", 12),
        ("Finished", 12),
    ]
    started = of(Started, events)[0]
    assert started.parameters == sum(p.numel() for p in new_model().parameters())
    assert (started.total, started.tokens_per_step) == (12, 32)
    assert of(Stepped, events)[-1].tokens == 12 * 32


def test_a_logged_loss_is_the_mean_since_the_last_one() -> None:
    each = [event.loss for event in of(Stepped, run(log_every=1)[1])]
    third = [event.loss for event in of(Stepped, run(log_every=3)[1])]
    assert third == pytest.approx([sum(each[i : i + 3]) / 3 for i in (0, 3, 6, 9)], rel=1e-12)


def test_slow_steps_send_a_sign_of_life_that_is_not_logged(tmp_path: Path) -> None:
    clock = Clock()
    listener = JsonLines(tmp_path / "m")
    events = []
    for event in train(new_model(), data(clock=clock, step_seconds=2.0), CONFIG, clock=clock):
        events.append(event)
        listener(event)
    assert [event.step for event in of(Stepped, events)] == list(range(1, 13))
    assert [event.step for event in of(Stepped, events) if event.logged] == [3, 6, 9, 12]
    losses = [line["loss"] for line in read_metrics(tmp_path / "m") if line["event"] == "step"]
    assert losses == [event.loss for event in of(Stepped, run()[1])]


def test_training_time_counts_across_resumes(tmp_path: Path) -> None:
    clock = Clock()
    for resume in (False, True):
        stop = (lambda clock=clock: clock.now >= 1012.0) if not resume else lambda: False
        timed = data(clock=clock, step_seconds=3.0)
        events = list(
            train(
                new_model(), timed, CONFIG, folder=tmp_path, resume=resume, stop=stop, clock=clock
            )
        )
        clock.now += 5000.0  # the time between does not count
    assert events[-1].step == 12
    assert events[-1].seconds == pytest.approx(36.0)


def test_it_stops_when_the_loss_is_low_enough() -> None:
    _, events = run(target_loss=100.0)
    assert (events[-1].reason, events[-1].step) == ("target_loss", 4)


def test_it_stops_when_patience_is_over(tmp_path: Path) -> None:
    # A rate at which nothing is learned: the first evaluation stays the best, or nearly.
    changes: dict[str, Any] = {"lr": 1e-12, "eval_every": 1, "patience": 2, "weight_decay": 0.0}
    model = new_model()
    seen: list[float] = []

    def worse(*_: Any, **__: Any) -> float:
        seen.append(1.0 + len(seen))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "evaluate", worse)
        _, events = run(model=model, folder=tmp_path, **changes)
    assert (events[-1].reason, events[-1].step) == ("patience", 3)
    assert events[-1].best_step == 1
    assert load(tmp_path, "best").step == 1
    assert load(tmp_path, "last").step == 3


@pytest.mark.parametrize(
    ("limits", "reason", "steps"),
    [
        ({"steps": 5}, "steps", 5),
        ({"epochs": 0.5}, "epochs", 7),  # 400 tokens, 32 a step
        ({"tokens": 100}, "tokens", 4),
        ({"tokens": 100, "epochs": 0.1, "steps": 5}, "epochs", 2),
    ],
)
def test_it_ends_at_the_first_limit_with_a_last_evaluation_and_checkpoint(
    limits: dict[str, Any], reason: str, steps: int, tmp_path: Path
) -> None:
    _, events = run(folder=tmp_path, **{"steps": None, **limits})
    assert (events[-1].reason, events[-1].step) == (reason, steps)
    assert of(Evaluated, events)[-1].step == steps
    assert of(Saved, events)[-1].step == steps


def test_checkpoints_come_at_their_own_interval_and_for_each_best(tmp_path: Path) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.6])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "evaluate", lambda *_, **__: next(losses))
        _, events = run(folder=tmp_path, steps=8, eval_every=2, checkpoint_every=3)
    # 2 and 4 are the best so far, 3 and 6 are due, 8 is the end.
    assert [saved.step for saved in of(Saved, events)] == [2, 3, 4, 6, 8]
    assert load(tmp_path, "best").step == 4


def test_what_is_evaluated_and_left_in_the_model_is_the_mean(tmp_path: Path) -> None:
    config = replace(CONFIG, ema_decay=0.9)
    model = new_model()
    for event in train(model, data(config), config, folder=tmp_path):
        if isinstance(event, Evaluated):
            # Whoever samples now hears the weights that were judged.
            again = evaluate(
                model, tokens(75, seed=1), windows=windows, context_length=CONTEXT, batch_size=4
            )
            assert again == event.val_loss
    last = load(tmp_path, "last")
    assert last.averaged is not None
    assert all(torch.equal(p, last.averaged[name]) for name, p in model.named_parameters())
    name = "token_embedding.weight"
    assert not torch.equal(last.weights[name], last.averaged[name])
    # Without the mean, the weights themselves take the same path.
    plain, _ = run()
    assert all(torch.equal(p, last.weights[name]) for name, p in plain.named_parameters())


def test_label_smoothing_is_not_in_the_validation_loss() -> None:
    changes: dict[str, Any] = {"lr": 1e-12, "weight_decay": 0.0, "steps": 4}
    smooth = of(Evaluated, run(label_smoothing=0.5, **changes)[1])[0].val_loss
    plain = of(Evaluated, run(**changes)[1])[0].val_loss
    assert smooth == pytest.approx(plain, rel=1e-6)


def poisoned(where: Callable[[GPT], torch.Tensor], step: int) -> tuple[GPT, Any]:
    """A model, and data that put an infinity into one of its weights when `step` begins."""
    model = new_model()
    clean = data()

    def ahead(batches: Any, start: int) -> Any:
        for number in itertools.count(start):
            if number == step:
                with torch.no_grad():
                    where(model).view(-1)[0] = math.inf
            yield batches.batch(number)

    return model, replace(clean, ahead=ahead)


def test_a_weight_that_is_no_number_is_named(tmp_path: Path) -> None:
    model, bad = poisoned(lambda m: m.blocks[1].feedforward.down.weight, 6)
    events: list[Any] = []
    with pytest.raises(TrainingError) as caught:
        events.extend(train(model, bad, CONFIG, folder=tmp_path))
    assert events[-1].reason == "not_finite"
    line = str(caught.value)
    assert "stopped at step 7" in line
    assert "the weights blocks.1.feedforward.down.weight" in line
    assert "try lr=" in line
    assert load(tmp_path, "last").step == 4
    # The last good checkpoint is good: the run goes on from it.
    assert run(folder=tmp_path, resume=True)[1][-1].reason == "steps"


def test_the_first_layer_whose_output_is_no_number_is_named() -> None:
    model = new_model(replace(MODEL, dropout=0.0))
    with torch.no_grad():
        # Finite weights whose products are not.
        model.blocks[1].feedforward.up.weight.fill_(3e38)
        model.blocks[1].norm2.weight.fill_(3e38)
    with pytest.raises(TrainingError, match=r"step 1 with loss nan.*the output of block.1.norm2"):
        run(model=model)


def test_a_gradient_that_is_no_number_is_named() -> None:
    model = new_model()
    model.blocks[0].attention.qkv.weight.register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(TrainingError, match=r"the gradient of blocks.0.attention.qkv.weight"):
        run(model=model)


def test_weights_that_are_no_numbers_are_never_saved(tmp_path: Path) -> None:
    model = new_model()
    config = replace(CONFIG, checkpoint_every=1, eval_every=100)
    with pytest.raises(TrainingError, match="the weights"):
        for event in train(model, data(config), config, folder=tmp_path):
            if isinstance(event, Stepped) and event.step == 6:
                with torch.no_grad():
                    model.head.weight.view(-1)[0] = math.nan
    assert load(tmp_path, "last").step == 5


def test_a_validation_loss_that_is_no_number_ends_it_too(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "evaluate", lambda *_, **__: math.nan)
        with pytest.raises(TrainingError, match="step 4 with loss nan"):
            run(folder=tmp_path)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"grad_clip": None}, "try grad_clip=1.0"),
        ({"optimizer": "muon"}, "try muon_lr="),
        ({"dtype": "float16"}, "try dtype=bfloat16"),
        ({}, "or warmup_steps=100"),
    ],
)
def test_the_advice_fits_the_settings(changes: dict[str, Any], advice: str) -> None:
    model = new_model()
    with torch.no_grad():
        model.head.weight.fill_(math.nan)
    with pytest.raises(TrainingError, match=advice):
        run(model=model, **changes)


def test_gradients_that_overflow_float16_at_any_scale_end_it() -> None:
    model = new_model()
    model.token_embedding.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(TrainingError, match=r"the gradient of token_embedding\.weight"):
        run(model=model, dtype="float16", steps=60)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_learns_resumes_and_is_told(dtype: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"dtype": dtype, "lr": 0.01, "steps": 40, "eval_every": 20}
    whole, events = run(folder=tmp_path / "a", **changes)
    assert of(Started, events)[0].dtype == dtype
    first, *_, last = (event.loss for event in of(Stepped, events))
    assert last < first - 0.3
    questions = itertools.count()
    run(folder=tmp_path / "b", stop=lambda: next(questions) > 17, **changes)
    resumed, _ = run(folder=tmp_path / "b", resume=True, **changes)
    assert equal(whole, resumed)
    scalers = [load(tmp_path / name, "last").state["scaler"] for name in ("a", "b")]
    assert scalers[0] == scalers[1]
    assert (scalers[0] is None) is (dtype == "bfloat16")


def test_a_full_disk_is_one_line_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from partwise.training import checkpoint as checkpoints

    original = checkpoints.require_free

    def full(path: Path, bytes_needed: int) -> None:
        if (path / "step-000004").exists():
            raise StorageError("{path} needs more room", path=path)
        original(path, bytes_needed)

    monkeypatch.setattr(checkpoints, "require_free", full)
    with pytest.raises(StorageError, match="needs more room"):
        run(folder=tmp_path)
    monkeypatch.undo()
    model, events = run(folder=tmp_path, resume=True)
    assert of(Started, events)[0].step == 4
    assert equal(model, run()[0])


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Lets the machine have a compiler, or not, without waiting for one."""

    def set_to(works: bool) -> None:
        check = CompileCheck(works, Notice("not compiled: no compiler here"))
        monkeypatch.setattr(compiling, "compile_check", lambda device: check)
        monkeypatch.setattr(compiling, "is_small", lambda *_: False)

    return set_to


def test_without_a_compiler_it_says_so_once_and_trains(compiler: Callable[[bool], None]) -> None:
    compiler(False)
    model, events = run(compile="on")
    lines = [str(said.notice) for said in of(Said, events)]
    assert lines.count("not compiled: no compiler here") == 1
    assert of(Started, events)[0].compiled is False
    assert equal(model, run()[0])


def test_a_compiler_that_fails_on_the_model_costs_one_line(
    compiler: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(True)

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("cannot lower this")

    monkeypatch.setattr(torch, "compile", fails)
    model, events = run(compile="on")
    assert sum("cannot lower this" in str(said.notice) for said in of(Said, events)) == 1
    assert of(Started, events)[0].compiled is False
    assert equal(model, run()[0])


def test_what_compiles_is_used_from_the_first_step(
    compiler: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(True)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    # What is not compiled is lean, with other last bits and other draws.
    monkeypatch.setattr(GPT, "use_lean", lambda *_: None)
    model, events = run(compile="on")
    assert of(Started, events)[0].compiled is True
    assert equal(model, run()[0])


def test_threads_are_set_for_the_run_alone() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        training = train(new_model(), data(), replace(CONFIG, threads=1, steps=1))
        started = next(event for event in training if isinstance(event, Started))
        assert started.threads == torch.get_num_threads() == 1
        training.close()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError):
        run(device="cuda:77")


def test_the_model_keeps_its_mode() -> None:
    model = new_model().eval()
    run(model=model)
    assert not model.training
