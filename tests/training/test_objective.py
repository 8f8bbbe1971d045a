"""Compiled or not: one loss, shared weights, and a broken compiler that costs one line."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from partwise.training.objective import Objective, upload
from training.doubles import MODEL, data, new_model

CPU = torch.device("cpu")


@pytest.fixture
def compiled_calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes that ran through what stands in for the compiler."""
    calls: list[torch.Size] = []

    def compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        def compiled(inputs: torch.Tensor, *rest: Any) -> Any:
            calls.append(inputs.shape)
            return function(inputs, *rest)

        return compiled

    monkeypatch.setattr(torch, "compile", compile)
    return calls


def test_only_the_usual_shape_runs_compiled(compiled_calls: list[torch.Size]) -> None:
    objective = Objective(new_model())
    inputs, targets = upload(data().train.batch(0), CPU)
    assert objective.compile(inputs, targets, 0.0) is None
    assert objective.compiled
    compiled_calls.clear()
    objective(inputs, targets)
    objective(inputs[:1], targets[:1])
    objective(inputs[:, :3], targets[:, :3])
    assert compiled_calls == [inputs.shape]


def test_the_trial_leaves_the_model_as_it_was(compiled_calls: list[torch.Size]) -> None:
    model = new_model(replace(MODEL, norm="batchnorm"))
    model.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    inputs, targets = upload(data().train.batch(0), CPU)
    assert Objective(model).compile(inputs, targets, 0.1) is None
    assert len(compiled_calls) == 2  # as in training, and as in evaluation
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.training


@pytest.mark.parametrize("when", ["called", "made"])
def test_a_compiler_that_fails_leaves_it_eager(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        def fails(*_: Any) -> Any:
            raise RuntimeError("no C++ compiler\nand a long story")

        return fails if when == "called" else fails()

    monkeypatch.setattr(torch, "compile", compile)
    model = new_model().eval()
    objective = Objective(model)
    inputs, targets = upload(data().train.batch(0), CPU)
    expected = objective(inputs, targets)
    notice = objective.compile(inputs, targets, 0.0)
    assert notice is not None
    assert "no C++ compiler" in str(notice)
    assert "long story" not in str(notice)
    assert not objective.compiled
    assert torch.equal(objective(inputs, targets), expected)


@pytest.mark.long
def test_compiled_and_eager_share_weights_and_agree() -> None:
    model = new_model(replace(MODEL, dropout=0.0))
    objective = Objective(model)
    inputs, targets = upload(data().train.batch(0), CPU)
    assert objective.compile(inputs, targets, 0.0) is None
    for _ in range(2):
        eager = Objective(model)(inputs, targets)
        torch.testing.assert_close(objective(inputs, targets), eager, rtol=1e-5, atol=1e-6)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
