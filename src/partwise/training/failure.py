"""When numbers stop being numbers: where it began, and what to change."""

import math

import torch
from torch import Tensor, nn

from partwise.errors import TrainingError
from partwise.messages import Notice
from partwise.model.gpt import GPT
from partwise.model.seq2seq import Seq2Seq
from partwise.model.trace import first_non_finite
from partwise.training.config import TrainConfig
from partwise.training.objective import Objective
from partwise.training.optim import trained


def bad_weight(model: nn.Module) -> str | None:
    """The first parameter that holds a NaN or an infinity, or None."""
    named = list(trained(model))
    # One look for all of them: a NaN or an infinity anywhere makes the sum one.
    norms = torch._foreach_norm([parameter.detach() for _, parameter in named], math.inf)
    if bool(torch.stack(norms).isfinite().all()):
        return None
    return next(name for name, parameter in named if not bool(parameter.isfinite().all()))


def not_finite(
    objective: Objective, inputs: Tensor, step: int, loss: float, config: TrainConfig
) -> TrainingError:
    """The error that ends a run whose loss, gradient or weights are no longer finite.

    Args:
        objective: the loss of the model, whose gradients are still those of the step.
        inputs: the token ids of the step (B, T).
        step: the number of the step, from 1.
        loss: its loss.
        config: the settings, to say what to change.
    """
    return TrainingError(
        "training stopped at step {step} with loss {loss}: the first value that is not finite is "
        "in {where}; earlier checkpoints are kept; {advice}",
        step=step,
        loss=f"{loss:.4g}",
        where=_where(objective, inputs),
        advice=_advice(objective, config),
    )


def _where(objective: Objective, inputs: Tensor) -> Notice:
    model = objective.model
    weight = bad_weight(model)
    if weight is not None:
        return Notice("the weights {name}", name=weight)
    if isinstance(model, GPT | Seq2Seq):
        # In the precision of the run: a value that overflows float16 is finite in float32.
        with objective.precision.autocast():
            layer = first_non_finite(model, inputs)
        if layer is not None:
            return Notice("the output of {name}", name=layer)
    for name, parameter in trained(model):
        if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
            return Notice("the gradient of {name}", name=name)
    return Notice("the loss itself")


def _advice(objective: Objective, config: TrainConfig) -> Notice:
    lower = config.lr / 3
    if objective.precision.dtype == torch.float16:
        return Notice("try dtype=bfloat16 or float32, or lr={lr:.2g}", lr=lower)
    if config.grad_clip is None:
        return Notice("try grad_clip=1.0, or lr={lr:.2g}", lr=lower)
    if config.optimizer == "muon":
        return Notice(
            "try muon_lr={muon_lr:.2g} and lr={lr:.2g}", muon_lr=config.muon_lr / 3, lr=lower
        )
    return Notice(
        "try lr={lr:.2g}, or warmup_steps={warmup}",
        lr=lower,
        warmup=max(100, 3 * config.warmup_steps),
    )
