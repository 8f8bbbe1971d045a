"""A whole training step of a small model as one compiled function: loss, gradient, clip, AdamW.

A small model spends its step not in arithmetic but in starting a thousand small operations. Here
they are one call. Weights, gradients and AdamW's memory each lie in one vector, so that the update
is one loop; the model's parameters and the optimizer's state are views of these vectors, so that
everything else, checkpoints among it, sees what it always sees.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from partwise.messages import Notice
from partwise.model.gpt import GPT
from partwise.training.config import TrainConfig
from partwise.training.feature_major import FeatureMajor, stored, turned
from partwise.training.flat import Layout
from partwise.training.objective import IGNORED, Objective
from partwise.training.optim import set_rate, trained
from partwise.training.package import Function, has_package, load_package
from partwise.training.pieces import reads_short
from partwise.training.step import Step, Update

# Multiplications a step up to which a model is small. Measured with torch 2.13 on one core of a
# Xeon: a whole step takes a quarter of the usual one's time at 3e7 (the ladder's rung 5), 0.6 of it
# at 3e8, and 0.8 at 6e8, where matrix products, which a compiler makes no faster, are most of it.
SMALL = 3e8

# Tokens of a batch that is evaluated at once: its activations fit into a core's cache.
EVALUATED_AT_ONCE = 2048


class WholeStep:
    """A `Step` that is one call of compiled code.

    A step whose loss or gradient is not finite changes nothing; the usual step takes it again, to
    say what is wrong.

    Args:
        weights: the model's, which move into one vector.
        optimizer: AdamW over all of them; its memory moves along.
        config: clipping, label smoothing.
        usual: the step of many operations.
        shape: of a batch, (B, T).

    Raises:
        Exception: the compiler fails.
    """

    def __init__(
        self,
        weights: "Weights",
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        usual: Step,
        shape: torch.Size,
    ) -> None:
        self._optimizer = optimizer
        self._clip = config.grad_clip
        self._usual = usual
        clipped, smoothing = self._clip is not None, config.label_smoothing
        length = weights.layout.length
        package = load_package(
            _what_step(weights.model, config, shape),
            lambda: _step(weights, smoothing, clipped),
            lambda: [
                *(torch.rand(length) for _ in range(5)),
                torch.ones(8),
                *(torch.zeros(shape, dtype=torch.int64) for _ in range(2)),
            ],
        )
        self._package = package
        self.seconds = package.seconds  # that the compiler took, evaluations included
        weights.settle()
        self._weights = weights.vector
        self._means, self._squares, self._counts = _settle(weights, optimizer)
        groups = {
            id(parameter): group
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        mine = [groups[id(parameter)] for parameter in weights.parameters]
        spread = weights.layout.spread
        self._peaks = spread([group["peak"] for group in mine])
        self._decays = spread([group["peak"] * group["weight_decay"] for group in mine])
        self._beta1, self._beta2 = mine[0]["betas"]
        self._scalars = torch.ones(8)
        # Written through NumPy: setting one number of a tensor takes torch a microsecond.
        self._numbers = self._scalars.numpy()
        self._numbers[1:4] = 1 - self._beta1, self._beta2, 1 - self._beta2
        self._numbers[6:8] = mine[0]["eps"], self._clip or 0.0

    def __call__(
        self, inputs: Tensor, targets: Tensor, rate: float, measure: bool = False
    ) -> Update:
        """One step; see `Step`."""
        step = self._counts[0].item() + 1
        set_rate((self._optimizer,), rate)
        self._numbers[0] = rate
        self._numbers[4] = 1 - self._beta1**step
        self._numbers[5] = math.sqrt(1 - self._beta2**step)
        loss, norm = self._package(
            [
                self._weights,
                self._means,
                self._squares,
                self._peaks,
                self._decays,
                self._scalars,
                inputs,
                targets,
            ]
        )
        # The product is finite only where both are.
        if not math.isfinite(loss.item() * norm.item()):
            return self._usual(inputs, targets, rate, measure=True)
        self._counts += 1
        return Update(loss, norm if measure or self._clip is not None else None, applied=True)


class Weights:
    """A model's weights, to be moved into one vector.

    Args:
        model: whose.
    """

    def __init__(self, model: GPT) -> None:
        named = dict(trained(model))
        self.model = model
        self.names = list(named)
        self.parameters = list(named.values())
        self.layout = Layout([parameter.shape for parameter in self.parameters])
        self.vector = torch.empty(0)

    def settle(self) -> None:
        """Move them; from here on every parameter is a view of `vector`."""
        self.vector = self.layout.joined([parameter.detach() for parameter in self.parameters])
        for parameter, view in zip(self.parameters, self.layout.views(self.vector), strict=True):
            parameter.data = view

    def loss(
        self, parameters: Sequence[Tensor], inputs: Tensor, targets: Tensor, smoothing: float
    ) -> Tensor:
        """As `Objective` computes it, with other weights and in another order in memory.

        Args:
            parameters: weights that take the place of the model's.
            inputs, targets: (B, T).
            smoothing: see `Objective`.
        """
        ids, expected = (stored(turned(part).contiguous()) for part in (inputs, targets))  # (T, B)
        with FeatureMajor():
            chosen = dict(zip(self.names, parameters, strict=True))
            logits = torch.func.functional_call(self.model, chosen, (turned(ids),))
        columns = turned(logits)  # (vocab_size, T, B)
        return F.cross_entropy(
            columns.reshape(columns.shape[0], -1).T,
            expected.reshape(-1),
            ignore_index=IGNORED,
            label_smoothing=smoothing,
        )


def _settle(weights: Weights, optimizer: torch.optim.Optimizer) -> tuple[Tensor, Tensor, Tensor]:
    """Move AdamW's memory into vectors; returns its means, its squares and its counts of steps."""
    vectors = []
    for name in ("exp_avg", "exp_avg_sq"):
        before = [
            optimizer.state[p].get(name, torch.zeros_like(p.detach())) for p in weights.parameters
        ]
        vectors.append(weights.layout.joined(before))
    none = torch.tensor(0.0)
    counts = torch.stack([optimizer.state[p].get("step", none) for p in weights.parameters])
    for parameter, count, mean, square in zip(
        weights.parameters,
        counts.unbind(),
        *(weights.layout.views(vector) for vector in vectors),
        strict=True,
    ):
        optimizer.state[parameter] = {"step": count, "exp_avg": mean, "exp_avg_sq": square}
    return vectors[0], vectors[1], counts


def _step(weights: Weights, smoothing: float, clipped: bool) -> Function:
    """The step as a function of tensors alone: (loss, norm), and the first three are changed.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2, in
    the order of torch's own AdamW.
    """
    weights.model.train()

    def step(
        vector: Tensor,
        means: Tensor,
        squares: Tensor,
        peaks: Tensor,
        decays: Tensor,
        scalars: Tensor,
        inputs: Tensor,
        targets: Tensor,
    ) -> tuple[Tensor, ...]:
        rate, part1, beta2, part2, correction1, correction2, eps, clip = scalars.unbind()
        parameters = [view.detach().requires_grad_() for view in weights.layout.views(vector)]
        loss = weights.loss(parameters, inputs, targets, smoothing)
        gradient = weights.layout.joined(torch.autograd.grad(loss, parameters))
        loss = loss.detach()
        norm = gradient.square().sum().sqrt()
        finite = loss.isfinite() & norm.isfinite()
        if clipped:
            gradient = gradient * (clip / (norm + 1e-6)).clamp(max=1.0)
        new_means = means + (gradient - means) * part1
        new_squares = squares * beta2 + gradient * gradient * part2
        slope = new_means / (new_squares.sqrt() / correction2 + eps)
        new = vector * (1 - rate * decays) - rate / correction1 * peaks * slope
        for old, changed in ((vector, new), (means, new_means), (squares, new_squares)):
            old.copy_(torch.where(finite, changed, old))
        return loss, norm

    return step


def compile_evaluation(objective: Objective, weights: Weights, context_length: int) -> float:
    """Let `objective` evaluate large batches by compiled code; returns the compiler's seconds.

    Args:
        objective: the loss of the model of `weights`.
        weights: moved into their vector already.
        context_length: tokens T of a window.

    Raises:
        Exception: the compiler fails.
    """
    shape = _evaluated(context_length)

    def function() -> Function:
        weights.model.eval()

        def loss(vector: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
            with torch.no_grad():
                return (weights.loss(weights.layout.views(vector), inputs, targets, 0.0),)

        return loss

    package = load_package(
        _what_evaluation(weights.model, shape),
        function,
        lambda: [
            torch.rand(weights.layout.length),
            *(torch.zeros(shape, dtype=torch.int64) for _ in range(2)),
        ],
    )
    vector = weights.vector
    objective.evaluate_by(shape, lambda inputs, targets: package([vector, inputs, targets])[0])
    return package.seconds


def whole_step(
    objective: Objective,
    optimizers: Sequence[torch.optim.Optimizer],
    config: TrainConfig,
    usual: Step,
    shape: torch.Size,
) -> WholeStep:
    """The step of `config` as one function; evaluations are compiled with it.

    Args:
        objective, optimizers, config: as for `make_step`; `unsuited` finds nothing against them.
        usual: what `make_step` gave.
        shape: of a batch, (B, T).

    Raises:
        Exception: the compiler fails.
    """
    model = objective.model
    assert isinstance(model, GPT)
    was_training = model.training
    try:
        weights = Weights(model)
        step = WholeStep(weights, optimizers[0], config, usual, shape)
        step.seconds += compile_evaluation(objective, weights, shape[1])
    finally:
        model.train(was_training)
    return step


def is_kept(model: GPT, config: TrainConfig, shape: torch.Size) -> bool:
    """Whether `whole_step` would find its code compiled; arguments as there."""
    evaluated = _evaluated(shape[1])
    return has_package(_what_step(model, config, shape)) and has_package(
        _what_evaluation(model, evaluated)
    )


def _evaluated(context_length: int) -> torch.Size:
    return torch.Size((max(1, EVALUATED_AT_ONCE // context_length), context_length))


def _what_step(model: GPT, config: TrainConfig, shape: torch.Size) -> dict[str, Any]:
    return {
        "what": "step",
        "model": asdict(model.config),
        "batch": list(shape),
        "smoothing": config.label_smoothing,
        "clipped": config.grad_clip is not None,
    }


def _what_evaluation(model: GPT, shape: torch.Size) -> dict[str, Any]:
    return {"what": "evaluation", "model": asdict(model.config), "batch": list(shape)}


def compile_evaluations(objective: Objective) -> None:
    """Compile the evaluations of a model that was trained in whole steps, where that suits it.

    What is put into the model afterwards, such as a hook, is not seen by evaluations.

    Args:
        objective: the loss of the model, eager so far; it stays so where the compiler fails.
    """
    model = objective.model
    if not is_small(objective, torch.Size((EVALUATED_AT_ONCE,))) or unsuited(objective):
        return
    assert isinstance(model, GPT)
    was_training = model.training
    weights = Weights(model)
    weights.settle()
    # The training said already what the compiler does not do here.
    with suppress(Exception):
        compile_evaluation(objective, weights, model.config.context_length)
    model.train(was_training)


def is_small(objective: Objective, shape: torch.Size) -> bool:
    """Whether steps of this model are too small to fill their operations, on the CPU.

    Args:
        objective: the loss of the model.
        shape: of a batch.
    """
    model = objective.model
    if objective.device.type != "cpu" or type(model) is not GPT:
        return False
    weights = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Linear))
    # Forward, and backward towards the input and the weight.
    return 3.0 * weights * shape.numel() <= SMALL


def unsuited(objective: Objective, config: TrainConfig | None = None) -> Notice | None:
    """Why a small model's step is not one function, or None.

    Args:
        objective: the loss of the model.
        config: its training; None: evaluations alone.
    """
    model = objective.model
    if objective.precision.dtype != torch.float32:
        return Notice("not compiled: a small model gains by it in float32 alone")
    if config is not None and (config.optimizer != "adamw" or config.accumulation > 1):
        return Notice(
            "not compiled: a small model gains by it with optimizer=adamw and accumulation=1 alone"
        )
    context_length = model.config.context_length if isinstance(model, GPT) else 0
    if config is not None and reads_short(config, context_length):
        return Notice("not compiled: a small model gains by it where all texts are equally long")
    if watched(model):
        return Notice(
            "not compiled: a small model gains by it as a whole alone, and a hook is inside"
        )
    kept = {id(value) for value in model.state_dict(keep_vars=True).values()}
    if kept != {id(parameter) for _, parameter in trained(model)}:
        return Notice(
            "not compiled: a small model gains by it where gradients train all that it keeps"
        )
    return None


def watched(model: nn.Module) -> bool:
    """Whether somebody listens to what happens inside, which compiled code does not tell."""
    hooks = (
        *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
        "_post_accumulate_grad_hooks",
    )
    parts = (*model.modules(), *model.parameters())
    return any(getattr(part, name, None) for part in parts for name in hooks)
