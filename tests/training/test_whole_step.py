"""A whole step as one function: the usual step's numbers, its state, its refusals, its bits.

Most of it runs the traced function operation by operation, since compiling takes half a minute;
what is compiled is held against it at the end.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from configurations import CONFIGURATIONS, name, randomise
from torch import Tensor, nn

from partwise.machine import CompileCheck, can_compile
from partwise.messages import Notice
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.training import compiling, package, whole_step
from partwise.training.config import TrainConfig
from partwise.training.events import Evaluated, Said, Started, Stepped
from partwise.training.flat import ALIGNED, Layout
from partwise.training.objective import Objective, upload
from partwise.training.optim import build_optimizers, pack
from partwise.training.package import has_package, load_package, traced
from partwise.training.precision import Precision
from partwise.training.step import Step, make_step, seed_step
from training.doubles import CONFIG, CONTEXT, MODEL, ROWS, data, equal, new_model, of, run

CPU = torch.device("cpu")
QUIET = replace(MODEL, dropout=0.0)
# AdamW divides even the smallest gradient by its own size, and with it what rounding makes of it.
CALM = replace(CONFIG, eps=1e-3)


class Traced:
    """What stands in for a package: the same operations, not compiled."""

    seconds = 0.0

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        self.graph = graph

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        return list(self.graph(*inputs))


@pytest.fixture(scope="module")
def made() -> dict[str, Traced]:
    """What was traced so far."""
    return {}


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch, made: dict[str, Traced]) -> None:
    """A compiler that leaves functions as they are."""

    def load(what: dict[str, Any], function: Any, inputs: Any) -> Traced:
        key = json.dumps(what, sort_keys=True)
        if key not in made:
            made[key] = Traced(traced(function(), inputs()))
        return made[key]

    monkeypatch.setattr(whole_step, "load_package", load)
    check = CompileCheck(True, Notice("works"))
    monkeypatch.setattr(compiling, "compile_check", lambda device: check)


def ready(
    config: ModelConfig, train: TrainConfig, shape: torch.Size | None = None
) -> tuple[GPT, Objective, list[torch.optim.Optimizer], Step]:
    """A model and its step; whole where a shape is given."""
    model = GPT(config)
    randomise(model, 0)
    model.train()
    objective = Objective(model)
    optimizers = build_optimizers(model, train)
    step = make_step(objective, optimizers, train)
    if shape is not None:
        step = whole_step.whole_step(objective, optimizers, train, step, shape)
    return model, objective, optimizers, step


def ids(config: ModelConfig, rows: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (rows, config.context_length)
    inputs, targets = (
        torch.randint(config.vocab_size, shape, generator=generator) for _ in range(2)
    )
    return inputs, targets


def refusal(model: nn.Module, train: TrainConfig = CONFIG) -> str:
    reason = whole_step.unsuited(Objective(model), train)
    return "" if reason is None else str(reason)


@pytest.mark.parametrize("config", CONFIGURATIONS[::10], ids=name)
def test_it_computes_what_the_usual_step_does(config: ModelConfig, uncompiled: None) -> None:
    same_numbers(config)


@pytest.mark.long
@pytest.mark.parametrize("config", CONFIGURATIONS, ids=name)
def test_it_does_for_every_model(config: ModelConfig, uncompiled: None) -> None:
    same_numbers(config)


def same_numbers(config: ModelConfig) -> None:
    config = replace(config, dropout=0.0, attention_dropout=0.0, embedding_dropout=0.0)
    train = replace(CONFIG, batch_size=6, grad_clip=0.5, label_smoothing=0.1, head_lr=2e-3)
    inputs, targets = ids(config)
    if refusal(GPT(config)):
        assert config.norm == "batchnorm"
        return
    found = []
    for shape in (None, inputs.shape):
        model, objective, optimizers, step = ready(config, train, shape)
        updates = [step(inputs, targets, rate) for rate in (1.0, 0.5, 0.7)]
        assert all(update.applied for update in updates)
        norms = [update.grad_norm for update in updates]
        numbers = [u.loss.item() for u in updates] + [n.item() for n in norms if n is not None]
        found.append((numbers, pack(model, optimizers)[0], model))
    (usual, memory, _), (whole, also, model) = found
    assert len(usual) == len(whole) == 6
    assert whole == pytest.approx(usual, rel=1e-4)
    assert memory.keys() == also.keys()
    for key, value in memory.items():
        scale = float(value.abs().max())
        assert torch.allclose(value, also[key], rtol=1e-3, atol=1e-4 * scale), key
    # Evaluations have other shapes, and no dropout, smoothing or gradient.
    model.eval()
    rows = objective.evaluated_rows
    assert rows is not None
    inputs, targets = ids(config, rows)
    with torch.no_grad():
        fast = objective(inputs, targets).item()
    assert fast == pytest.approx(objective(inputs, targets).item(), rel=1e-5)
    assert objective(inputs, targets).requires_grad


def test_a_run_is_as_without_it(uncompiled: None) -> None:
    model, events = run(CALM, compile="on", model=new_model(QUIET))
    usual, expected = run(CALM, model=new_model(QUIET))
    (started,) = of(Started, events)
    assert started.compiled and not of(Started, expected)[0].compiled
    assert "each step is one function" in " ".join(str(said.notice) for said in of(Said, events))
    losses = [event.loss for event in of(Stepped, events)]
    assert losses == pytest.approx([event.loss for event in of(Stepped, expected)], rel=1e-5)
    judged = [event.val_loss for event in of(Evaluated, events)]
    assert judged == pytest.approx([event.val_loss for event in of(Evaluated, expected)], rel=1e-5)
    assert [event.grad_norm for event in of(Stepped, events)] == pytest.approx(
        [event.grad_norm for event in of(Stepped, expected)], rel=1e-4
    )
    for mine, other in zip(model.parameters(), usual.parameters(), strict=True):
        assert torch.allclose(mine, other, rtol=1e-3, atol=1e-5)


def test_a_mean_of_the_weights_follows_them(uncompiled: None) -> None:
    model, events = run(CALM, compile="on", ema_decay=0.9, model=new_model(QUIET))
    usual, expected = run(CALM, ema_decay=0.9, model=new_model(QUIET))
    judged = [event.val_loss for event in of(Evaluated, events)]
    assert judged == pytest.approx([event.val_loss for event in of(Evaluated, expected)], rel=1e-5)
    for mine, other in zip(model.parameters(), usual.parameters(), strict=True):
        assert torch.allclose(mine, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("stop_at", [1, 4, 7])
def test_resumed_it_ends_in_the_same_bits(uncompiled: None, tmp_path: Path, stop_at: int) -> None:
    # Dropout included: its draws follow from (seed, step).
    straight, _ = run(compile="on")
    asked = iter(range(1000))
    run(compile="on", folder=tmp_path, stop=lambda: next(asked) >= stop_at)
    model, events = run(compile="on", folder=tmp_path, resume=True)
    assert of(Started, events)[0].resumed
    assert equal(model, straight)


def test_its_checkpoints_are_those_of_the_usual_step(uncompiled: None, tmp_path: Path) -> None:
    asked = iter(range(1000))
    run(
        CALM,
        compile="on",
        folder=tmp_path,
        stop=lambda: next(asked) >= 6,
        model=new_model(QUIET),
    )
    model, events = run(CALM, compile="off", folder=tmp_path, resume=True, model=new_model(QUIET))
    usual, _ = run(CALM, model=new_model(QUIET))
    assert 0 < of(Started, events)[0].step < 12
    for mine, other in zip(model.parameters(), usual.parameters(), strict=True):
        assert torch.allclose(mine, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_number_that_is_none_changes_nothing(uncompiled: None, clip: float | None) -> None:
    train = replace(CONFIG, grad_clip=clip)
    inputs, targets = upload(data().train.batch(0), CPU)
    model, _, optimizers, step = ready(QUIET, train, inputs.shape)
    assert step(inputs, targets, 1.0).applied
    weight = model.blocks[1].feedforward.down.weight
    with torch.no_grad():
        weight[0, 0] = math.inf
    before = {key: value.clone() for key, value in pack(model, optimizers)[0].items()}
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    update = step(inputs, targets, 1.0)
    assert not update.applied
    assert not math.isfinite(update.loss.item())
    assert all(torch.equal(value, before[k]) for k, value in pack(model, optimizers)[0].items())
    assert all(torch.equal(value, weights[k]) for k, value in model.state_dict().items())
    with torch.no_grad():
        weight[0, 0] = 0.0
    assert step(inputs, targets, 1.0).applied


def test_the_loop_names_the_step_where_numbers_end(uncompiled: None) -> None:
    from partwise.errors import TrainingError

    model = new_model(QUIET)
    with torch.no_grad():
        model.blocks[1].feedforward.down.weight[0, 0] = math.nan
    with pytest.raises(TrainingError, match=r"step 1 .*blocks.1.feedforward.down.weight"):
        run(compile="on", model=model)


def test_the_step_counts_are_the_optimizers_own(uncompiled: None) -> None:
    inputs, targets = upload(data().train.batch(0), CPU)
    model, _, optimizers, step = ready(QUIET, CONFIG, inputs.shape)
    for _ in range(3):
        step(inputs, targets, 1.0)
    counts = {float(memory["step"]) for memory in optimizers[0].state.values()}
    assert counts == {3.0}
    assert len(optimizers[0].state) == len(list(model.parameters()))


def test_a_dropped_share_follows_from_seed_and_step(uncompiled: None) -> None:
    inputs, targets = upload(data().train.batch(0), CPU)
    losses = []
    for number in (0, 0, 1):
        _, _, _, step = ready(replace(MODEL, dropout=0.5), CONFIG, inputs.shape)
        seed_step(CPU, 1, number)
        losses.append(step(inputs, targets, 1.0).loss.item())
    assert losses[0] == losses[1] != losses[2]


def test_what_does_not_suit_it_is_refused() -> None:
    assert refusal(new_model()) == ""
    assert "optimizer=adamw" in refusal(new_model(), replace(CONFIG, optimizer="muon"))
    assert "accumulation=1" in refusal(new_model(), replace(CONFIG, accumulation=2))
    batchnorm = next(config for config in CONFIGURATIONS if config.norm == "batchnorm")
    assert "gradients train" in refusal(GPT(batchnorm))
    frozen = new_model()
    frozen.token_embedding.weight.requires_grad_(False)
    assert "gradients train" in refusal(frozen)
    watched = new_model()
    watched.blocks[0].register_forward_hook(lambda *_: None)
    assert "a hook is inside" in refusal(watched)
    weighed = new_model()
    weighed.token_embedding.weight.register_hook(lambda gradient: gradient)
    assert "a hook is inside" in refusal(weighed)
    low = whole_step.unsuited(Objective(new_model(), Precision(CPU, torch.bfloat16)), CONFIG)
    assert "float32 alone" in str(low)


def test_what_is_small_follows_from_model_and_batch() -> None:
    assert whole_step.is_small(Objective(new_model()), torch.Size((ROWS, CONTEXT)))
    large = Objective(GPT(replace(MODEL, d_model=512, n_layers=3, context_length=64)))
    assert not whole_step.is_small(large, torch.Size((64, 64)))
    assert whole_step.is_small(large, torch.Size((1, 8)))
    assert not whole_step.is_small(Objective(nn.Linear(2, 2)), torch.Size((1, 8)))


def test_a_small_model_that_it_does_not_suit_stays_as_it_is(uncompiled: None) -> None:
    model, events = run(compile="on", optimizer="muon")
    assert of(Started, events)[0].compiled is False
    assert sum("not compiled: " in str(said.notice) for said in of(Said, events)) == 1
    assert equal(model, run(optimizer="muon")[0])


def test_a_trained_model_is_evaluated_by_what_was_compiled(uncompiled: None) -> None:
    objective = Objective(new_model(QUIET).eval())
    whole_step.compile_evaluations(objective)
    rows = objective.evaluated_rows
    assert rows is not None and not objective.model.training
    inputs, targets = ids(QUIET, rows)
    with torch.no_grad():
        fast = objective(inputs, targets).item()
    assert fast == pytest.approx(objective(inputs, targets).item(), rel=1e-5)
    watched = Objective(new_model(QUIET))
    watched.model.register_forward_hook(lambda *_: None)
    whole_step.compile_evaluations(watched)
    assert watched.evaluated_rows is None


def test_a_failure_of_the_compiler_costs_one_line(
    uncompiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("cannot lower this\nand more")

    monkeypatch.setattr(whole_step, "load_package", fails)
    model, events = run(compile="on")
    lines = [str(said.notice) for said in of(Said, events)]
    assert sum("(cannot lower this)" in line for line in lines) == 1
    assert of(Started, events)[0].compiled is False
    assert equal(model, run()[0])


def test_a_layout_holds_tensors_apart() -> None:
    tensors = [torch.randn(3, 5), torch.randn(ALIGNED), torch.tensor(2.0), torch.randn(2, 2, 2)]
    layout = Layout([tensor.shape for tensor in tensors])
    vector = layout.joined(tensors)
    views = layout.views(vector)
    assert vector.shape == (layout.length,) and layout.length == 4 * ALIGNED
    assert all(torch.equal(*pair) for pair in zip(views, tensors, strict=True))
    assert all(view.data_ptr() % (4 * ALIGNED) == vector.data_ptr() % 64 for view in views)
    views[0].zero_()
    assert torch.equal(layout.views(vector)[1], tensors[1])
    assert vector[:15].count_nonzero() == 0
    spread = layout.spread([1.0, 2.0, 3.0, 4.0])
    assert spread.sum() == 15 + 2 * ALIGNED + 3 + 4 * 8


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """A cache of its own, and a compiler that writes a file and counts."""
    compiled: list[Any] = []

    def compile_into(graph: Any, inputs: Any) -> Path:
        compiled.append(graph)
        path = tmp_path / "made.so"
        path.write_bytes(b"code")
        return path

    class Runner:
        def __init__(self, path: str, _: int) -> None:
            if Path(path).read_bytes() != b"code":
                raise RuntimeError("not a library")

        def run(self, inputs: list[Tensor]) -> list[Tensor]:
            return inputs

    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(package, "_compiled", compile_into)
    monkeypatch.setattr(torch._C._aoti, "AOTIModelContainerRunnerCpu", Runner)
    return compiled


def doubled(x: Tensor) -> tuple[Tensor, ...]:
    return (2 * x,)


def test_what_was_compiled_is_kept(counted: list[Any], tmp_path: Path) -> None:
    def load(what: dict[str, Any]) -> package.Package:
        return load_package(what, lambda: doubled, lambda: [torch.ones(3)])

    assert not has_package({"what": 1})
    assert load({"what": 1}).seconds > 0.0
    assert has_package({"what": 1})
    assert load({"what": 1}).seconds == 0.0
    assert len(counted) == 1
    load({"what": 2})
    assert len(counted) == 2
    # What is damaged is made again.
    for path in (tmp_path / "cache" / "compiled").iterdir():
        path.write_bytes(b"torn")
    load({"what": 1})
    assert len(counted) == 3


def test_another_source_is_compiled_anew(
    counted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for sources in (("model/*.py",), ("training/flat.py",)):
        monkeypatch.setattr(package, "_SOURCES", sources)
        load_package({"what": 1}, lambda: doubled, lambda: [torch.ones(3)])
    assert len(counted) == 2


def test_operations_run_in_the_order_of_memory() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x.permute(2, 1, 0)  # strides as they lie: 2, 1, 0
        z = (y.relu() + torch.ones(4)).exp()
        return z, z.sum(0), z.amax((1, 2)), torch.var_mean(z, 1, keepdim=True)[0], z.sum()

    x = torch.randn(4, 3, 2)
    graph = traced(function, [x])
    found, expected = graph(x), function(x)
    for mine, other in zip(found, expected, strict=True):
        assert mine.shape == other.shape
        assert torch.allclose(mine, other, rtol=1e-6)
    # The elementwise operations see the text's own order, which is contiguous.
    relu = next(node for node in graph.graph.nodes if node.target is torch.ops.aten.relu.default)
    assert relu.args[0].target is torch.ops.aten.permute.default


@pytest.mark.long
@pytest.mark.timeout(900)
def test_compiled_it_is_the_traced_function(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not can_compile():
        pytest.skip("no compiler here")
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path))
    inputs, targets = upload(data().train.batch(0), CPU)
    _, _, _, compiled_step = ready(QUIET, CONFIG, inputs.shape)
    _, _, _, usual = ready(QUIET, CONFIG)
    for _ in range(5):
        mine, other = compiled_step(inputs, targets, 1.0), usual(inputs, targets, 1.0)
        assert mine.loss.item() == pytest.approx(other.loss.item(), rel=1e-5)
    assert len(list((tmp_path / "compiled").iterdir())) == 2
    # A whole run and a resumed one, by the code that was just kept.
    straight, events = run(compile="on")
    assert of(Started, events)[0].compiled
    asked = iter(range(1000))
    run(compile="on", folder=tmp_path / "run", stop=lambda: next(asked) >= 5)
    model, events = run(compile="on", folder=tmp_path / "run", resume=True)
    assert of(Started, events)[0].resumed
    assert equal(model, straight)
