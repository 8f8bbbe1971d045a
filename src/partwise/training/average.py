"""A running mean of the weights (EMA), which often generalises better than the weights themselves.

`average = d average + (1 - d) weights` after every step, with d = min(decay, (1 + n) / (10 + n)) in
step n = 1, 2, …: an early mean forgets the initial weights quickly.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from partwise.training.optim import trained


class Average:
    """The mean of a model's trained weights.

    Args:
        model: the model; the mean starts at its weights.
        decay: share of the mean that stays in each step, in [0, 1).

    Source: Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992; the
    early decay is that of TensorFlow's ExponentialMovingAverage with `num_updates`.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._names = [name for name, _ in trained(model)]
        self._parameters = [parameter for _, parameter in trained(model)]
        self._means = [weight.clone() for weight in self._weights]
        self._decay = decay

    @property
    def _weights(self) -> list[Tensor]:
        # Looked up each time: a compiled step gives the parameters another place in memory.
        return [parameter.detach() for parameter in self._parameters]

    def update(self, step: int) -> None:
        """Take the weights of step `step`, from 1, into the mean."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._means, self._weights, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the mean into the model inside the `with`, and the weights back at its end."""
        weights = [weight.clone() for weight in self._weights]
        torch._foreach_copy_(self._weights, self._means)
        try:
            yield
        finally:
            torch._foreach_copy_(self._weights, weights)

    def settle(self) -> None:
        """Leave the mean in the model for good: training is over."""
        torch._foreach_copy_(self._weights, self._means)

    def tensors(self) -> dict[str, Tensor]:
        """The mean by parameter name."""
        return dict(zip(self._names, self._means, strict=True))

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from the mean that `tensors` gave."""
        torch._foreach_copy_(self._means, [tensors[name] for name in self._names])
