"""Cross-entropy of the next token over a batch: eager, compiled or in C, in any precision."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from partwise.messages import Notice
from partwise.model.compiled_gradient import CompiledGradient
from partwise.training.data import Batch
from partwise.training.precision import Precision

# A target that counts for nothing, such as the padding of a batch of pairs.
IGNORED = -100


class Objective:
    """`-log softmax(logits)[target]`, mean over a batch's targets (nats a token).

    Targets that are `IGNORED` do not count; one at least must.

    Args:
        model: ids (B, …) -> logits (B, T, vocab_size).
        precision: what matrix products are computed in; None: float32 where the weights are.
    """

    def __init__(self, model: nn.Module, precision: Precision | None = None) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.precision = precision or Precision(self.device, torch.float32)
        self._compiled = self._loss
        self._compiled_shapes: set[torch.Size] = set()
        self._evaluate: Callable[[Tensor, Tensor], Tensor] | None = None
        self._evaluated_shape: torch.Size | None = None
        self._gradient: CompiledGradient | None = None

    def __call__(self, inputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """The mean loss of a batch.

        Args:
            inputs: token ids (B, T), or however the model reads B texts.
            targets: the ids that follow them (B, T).
            smoothing: share of each target spread over all tokens.
        """
        if self._evaluate is not None and inputs.shape == self._evaluated_shape:
            judging = not self.model.training and not torch.is_grad_enabled()
            if judging and smoothing == 0.0:
                return self._evaluate(inputs, targets)
        if self._gradient is not None and smoothing == 0.0 and not torch.is_grad_enabled():
            loss = self._gradient.loss(inputs, targets)
            if loss is not None:
                return loss
        # Another shape, such as a split's last short window, would be compiled anew for one use.
        if inputs.shape in self._compiled_shapes:
            return self._compiled(inputs, targets, smoothing)
        return self._loss(inputs, targets, smoothing)

    def backward(
        self, inputs: Tensor, targets: Tensor, smoothing: float = 0.0, share: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch, times `share`; its gradient is added to that of the parameters.

        Args:
            inputs, targets, smoothing: as for the loss alone.
            share: of a larger batch whose parts are taken one after the other; None: it is whole,
                and the parameters have no gradient yet.
        """
        if self._gradient is not None and smoothing == 0.0 and share is None:
            found = self._gradient.backward(inputs, targets)
            if found is not None:
                return found
        loss = self(inputs, targets, smoothing)
        if share is not None:
            loss = loss * share
        scaler = self.precision.scaler
        torch.autograd.backward(loss if scaler is None else scaler.scale(loss))
        return loss.detach()

    def _loss(self, inputs: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        with self.precision.autocast():
            logits: Tensor = self.model(inputs)  # (B, T, vocab_size)
        return F.cross_entropy(
            logits.float().flatten(0, 1),
            targets.flatten(),
            ignore_index=IGNORED,
            label_smoothing=smoothing,
        )

    @property
    def compiled(self) -> bool:
        """Whether batches of the usual shapes run compiled."""
        return bool(self._compiled_shapes) or self._evaluated_shape is not None

    @property
    def evaluated_rows(self) -> int | None:
        """Rows of the batches that evaluations should have; None where it does not matter."""
        return None if self._evaluated_shape is None else self._evaluated_shape[0]

    def evaluate_by(self, shape: torch.Size, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Let `function` compute the loss of batches of one shape in evaluation mode.

        Args:
            shape: of inputs and targets.
            function: (inputs, targets) -> mean loss; no gradient is asked of it.
        """
        self._evaluated_shape, self._evaluate = shape, function

    @property
    def in_c(self) -> bool:
        """Whether C code computes losses and gradients."""
        return self._gradient is not None

    def use_gradient(self, gradient: CompiledGradient) -> None:
        """Let C code compute what is not smoothed: losses without a gradient, and `backward`."""
        self._gradient = gradient

    def compile(self, inputs: Tensor, targets: Tensor, smoothing: float) -> Notice | None:
        """Compile for batches of this shape too, trying both directions once on the given batch.

        Weights, running statistics, gradients and mode are afterwards as they were; compiled and
        eager code share them.

        Returns:
            None, or why the objective is eager, for all shapes.
        """
        model = self.model
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        was_training = model.training
        try:
            if not self._compiled_shapes:
                self._compiled = torch.compile(self._loss, dynamic=False)
            model.train()
            torch.autograd.backward(self._compiled(inputs, targets, smoothing))
            model.eval()
            with torch.no_grad():
                self._compiled(inputs, targets, 0.0)
        # What a missing or broken compiler raises is not documented and differs by platform.
        except Exception as error:
            self._compiled_shapes.clear()
            return Notice(
                "not compiled: the compiler failed ({reason}); training goes on without it",
                reason=first_line(error),
            )
        finally:
            model.train(was_training)
            for buffer, before in buffers:
                buffer.copy_(before)
            for parameter in model.parameters():
                parameter.grad = None
        self._compiled_shapes.add(inputs.shape)
        return None


def counted(targets: Tensor) -> Tensor:
    """How many of the targets count; a number on their device, so that nobody need wait for it."""
    return (targets != IGNORED).sum()


def upload(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor]:
    """A batch as tensors on `device`; on a GPU without making the host wait."""
    inputs, targets = torch.from_numpy(batch[0]), torch.from_numpy(batch[1])
    if device.type == "cpu":
        return inputs, targets
    if device.type == "cuda":
        inputs, targets = inputs.pin_memory(), targets.pin_memory()
    return inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)


def first_line(error: Exception) -> str:
    """What an error says first, or its kind."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
