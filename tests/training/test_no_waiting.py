"""On an accelerator a step never makes the host wait: it is taken here with the host looking on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.training.average import Average
from partwise.training.config import TrainConfig
from partwise.training.objective import Objective, upload
from partwise.training.optim import build_optimizers
from partwise.training.precision import Precision
from partwise.training.step import make_step

# What reads a number of the device, and so waits for all that was asked of it.
READING = ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal", "aten::nonzero")

MODEL = ModelConfig(
    vocab_size=11,
    context_length=8,
    n_layers=2,
    d_model=16,
    n_heads=2,
    position="rotary",
    qk_norm=True,
    norm="rmsnorm",
    ngram=2,
    embedding_shortcut=True,
    tie_embeddings=False,
    dropout=0.1,
)


class Looking(TorchDispatchMode):
    """Counts the operations that read a number."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.read += func.name().split(".")[0] in READING
        return func(*args, **(kwargs or {}))


def reads(device: str, config: TrainConfig) -> int:
    """How often a step reads a number where it takes its device for `device`."""
    torch.manual_seed(1)
    model = GPT(MODEL)
    objective = Objective(model, Precision(torch.device("cpu"), torch.bfloat16))
    optimizers = build_optimizers(model, config)
    average = Average(model, 0.9)
    objective.device = torch.device(device)
    step = make_step(objective, optimizers, config)
    ids = torch.randint(11, (4, 8))
    step(ids, ids, 1.0)  # the optimizers' memory is made
    with Looking() as looking:
        update = step(ids, ids, 0.5, measure=True)
        average.update(2)
    assert update.applied and update.grad_norm is not None
    return looking.read


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_step_on_a_gpu_reads_no_number(
    optimizer: Any, clip: float | None, accumulation: int
) -> None:
    config = TrainConfig(
        steps=10, batch_size=4, optimizer=optimizer, grad_clip=clip, accumulation=accumulation
    )
    assert reads("cuda", config) == 0
    # On the CPU it looks at the loss and the gradient's norm, which costs nothing there.
    assert reads("cpu", replace(config)) == 2


def test_a_batch_goes_to_a_gpu_from_pinned_memory_without_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[Any] = []
    to = torch.Tensor.to

    def pin(self: torch.Tensor) -> torch.Tensor:
        said.append("pinned")
        return self

    def send(self: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        said.append((given[0].type, named["non_blocking"]))
        return to(self, "cpu")

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", send)
    batch = np.zeros((2, 3), np.int64), np.ones((2, 3), np.int64)
    inputs, targets = upload(batch, torch.device("cuda"))
    assert said == ["pinned", "pinned", ("cuda", True), ("cuda", True)]
    assert inputs.sum() == 0 and targets.sum() == 6
