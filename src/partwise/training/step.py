"""One step of training: forward, backward, clip, update. The one place to make a step faster.

`make_step` returns the step that suits the settings; the loop calls it and knows nothing of how it
is computed. A whole step in one kernel, or several models in one batch, would be another function
that `make_step` returns.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from partwise.training.config import TrainConfig
from partwise.training.objective import Objective, counted
from partwise.training.optim import set_rate, trained


class Update(NamedTuple):
    """What a step did.

    Args:
        loss: mean training loss of the batch (nats a token), on the device.
        grad_norm: norm of the whole gradient before clipping; None when it was not measured.
        applied: false when a number was not finite and the weights were left as they were. On an
            accelerator always true: to know, the host would have to wait.
    """

    loss: Tensor
    grad_norm: Tensor | None
    applied: bool


class Step(Protocol):
    """Changes the weights once."""

    def __call__(
        self, inputs: Tensor, targets: Tensor, rate: float, measure: bool = False
    ) -> Update:
        """One step.

        Args:
            inputs: token ids (B, T).
            targets: the ids that follow them (B, T).
            rate: every group's share of its peak learning rate, in [0, 1].
            measure: measure the gradient's norm even where nothing is clipped.
        """


def make_step(
    objective: Objective, optimizers: Sequence[torch.optim.Optimizer], config: TrainConfig
) -> Step:
    """The step of `config`.

    A batch computed in parts gives the gradient of the whole batch: each part's mean loss counts by
    its share of the targets.

    Args:
        objective: the loss; eager or compiled.
        optimizers: what `build_optimizers` made.
        config: parts of a batch, label smoothing, clipping.
    """
    parameters = [parameter for _, parameter in trained(objective.model)]
    scaler = objective.precision.scaler
    on_host = objective.device.type == "cpu"

    def step(inputs: Tensor, targets: Tensor, rate: float, measure: bool = False) -> Update:
        for parameter in parameters:
            parameter.grad = None
        parts = []
        rows = len(inputs) // config.accumulation
        for part_inputs, part_targets in zip(
            torch.split(inputs, rows), torch.split(targets, rows), strict=True
        ):
            share = None
            if config.accumulation > 1:
                share = counted(part_targets) / counted(targets)
            smoothing = config.label_smoothing
            parts.append(objective.backward(part_inputs, part_targets, smoothing, share))
        loss = parts[0] if len(parts) == 1 else torch.stack(parts).sum()
        # On the CPU a number can be looked at for nothing, and a bad one stopped before the update.
        if on_host and not math.isfinite(loss.item()):
            return Update(loss, None, applied=False)

        norm = None
        if scaler is not None:
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
        if measure or config.grad_clip is not None:
            gradients = [p.grad for p in parameters if p.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients)
            # With a scaler such a gradient is not the end: the scaler leaves the step out.
            if on_host and scaler is None and not math.isfinite(norm.item()):
                return Update(loss, norm, applied=False)
        if config.grad_clip is not None and norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, config.grad_clip, norm)

        set_rate(optimizers, rate)
        for optimizer in optimizers:
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
        if scaler is not None:
            scaler.update()
        return Update(loss, norm, applied=True)

    return step


def seed_step(device: torch.device, seed: int, step: int, rank: int = 0) -> None:
    """Make every random draw of a step, such as dropout, follow from (seed, step, rank)."""
    mixed = 0
    for part in (seed, step, rank):
        mixed = _splitmix(mixed ^ part)
    # `torch.manual_seed` asks every kind of device in turn, which costs a small model a tenth of
    # its step.
    torch.default_generator.manual_seed(mixed)
    if device.type == "cuda":
        torch.cuda.manual_seed(mixed)
    elif device.type == "mps":
        torch.mps.manual_seed(mixed)


def _splitmix(value: int) -> int:
    """Scatter 64 bits: neighbours become strangers (Steele et al., "Fast Splittable Pseudorandom
    Number Generators", 2014, figure 15)."""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return (value ^ (value >> 31)) & 0x7FFFFFFFFFFFFFFF
