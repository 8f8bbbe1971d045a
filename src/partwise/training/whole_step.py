"""A whole training step of a small model as one compiled function: loss, gradient, clip, AdamW.

A small model spends its step not in arithmetic but in starting a thousand small operations. Here
they are one call. Weights, gradients and AdamW's memory each lie in one vector, so that the update
is one loop; the model's parameters and the optimizer's state are views of these vectors, so that
everything else, checkpoints among it, sees what it always sees.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict

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
from partwise.training.package import Function, load_package
from partwise.training.step import Step, Update

# Multiplications a step beyond which matrix products, which a compiler makes no faster, are most of
# it (see docs/decisions.md).
SMALL = 2e9

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
        what = {"what": "step", "batch": list(shape), "smoothing": smoothing, "clipped": clipped}
        length = weights.layout.length
        package = load_package(
            {**what, "model": asdict(weights.model.config)},
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
    rows = max(1, EVALUATED_AT_ONCE // context_length)
    shape = torch.Size((rows, context_length))

    def function() -> Function:
        weights.model.eval()

        def loss(vector: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
            with torch.no_grad():
                return (weights.loss(weights.layout.views(vector), inputs, targets, 0.0),)

        return loss

    package = load_package(
        {"what": "evaluation", "batch": list(shape), "model": asdict(weights.model.config)},
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


def unsuited(
    objective: Objective,
    optimizers: Sequence[torch.optim.Optimizer],
    config: TrainConfig,
    inputs: Tensor,
) -> Notice | None:
    """Why a training's step is not one function, or None.

    Args:
        objective, optimizers, config: as for `whole_step`.
        inputs: token ids (B, T).
    """
    model = objective.model
    if objective.device.type != "cpu" or objective.precision.dtype != torch.float32:
        return Notice("compiled in parts: a step is one function in float32 on the CPU alone")
    if config.optimizer != "adamw" or len(optimizers) != 1 or config.accumulation > 1:
        return Notice(
            "compiled in parts: a step is one function with optimizer=adamw and accumulation=1 "
            "alone"
        )
    if type(model) is not GPT or _watched(model):
        return Notice("compiled in parts: a step is one function of an ordinary model alone")
    kept = {id(value) for value in model.state_dict(keep_vars=True).values()}
    if kept != {id(parameter) for _, parameter in trained(model)}:
        return Notice(
            "compiled in parts: a step is one function where all that a model keeps is trained by "
            "gradients"
        )
    if work(model, inputs.shape) > SMALL:
        return Notice(
            "compiled in parts: a step is one function in small models alone, which this is not"
        )
    return None


def work(model: GPT, shape: torch.Size) -> float:
    """About how many multiplications a step takes: three for each weight of a matrix and token.

    Args:
        model: the model.
        shape: of a batch (B, T).
    """
    weights = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Linear))
    return 3.0 * weights * shape.numel()


def _watched(model: nn.Module) -> bool:
    """Whether somebody listens to what happens inside, which compiled code does not tell."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    parts = (*model.modules(), *model.parameters())
    return any(getattr(part, name, None) for part in parts for name in hooks)
