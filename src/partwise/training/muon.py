"""Muon: a matrix moves by its momentum made orthogonal, so that every direction learns alike."""

import inspect
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from partwise.training import compiled_muon

# (a, b, c) of the polynomial a s + b s^3 + c s^5 that each iteration applies to singular values s.
Polynomial = tuple[float, float, float]

# One polynomial for every iteration: singular values end between about 0.7 and 1.2.
# Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024.
JORDAN: Polynomial = (3.4445, -4.7750, 2.0315)

# One for each iteration, the best for what those before it leave; the last one repeats.
# Source: Amsel et al., "The Polar Express: Optimal Matrix Sign Methods and Their Application to the
# Muon Algorithm", 2025, algorithm 1, with singular values from 1e-3 on.
POLAR_EXPRESS: tuple[Polynomial, ...] = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.875, -1.25, 0.375),
)

# Such a share is left between the largest singular value and 1, where the polynomials end.
_SAFETY = 1.01

# Up to so many iterations the small matrix X Xᵀ stands for X: its rounding errors, which grow with
# each, stay below 1e-2.
_BY_SMALL_MATRIX = 4

# Where Muon's momentum begins, if it is warmed up.
FIRST_MOMENTUM = 0.85


def polynomials(steps: int, polar_express: bool) -> list[Polynomial]:
    """The polynomial of each of `steps` iterations."""
    if not polar_express:
        return [JORDAN] * steps
    found = []
    for step in range(steps):
        a, b, c = POLAR_EXPRESS[min(step, len(POLAR_EXPRESS) - 1)]
        if step < steps - 1:
            a, b, c = a / _SAFETY, b / _SAFETY**3, c / _SAFETY**5
        found.append((a, b, c))
    return found


def orthogonalise(x: Tensor, by: Iterable[Polynomial]) -> Tensor:
    """U p(S) Vᵀ for X = U S Vᵀ, with p the polynomials one after the other: S becomes nearly 1.

    An iteration is X ← (a I + b X Xᵀ + c (X Xᵀ)²) X. Few iterations of a matrix that is wider than
    high are applied to A = X Xᵀ instead, A ← P A P, while Q collects the P, and the result is Q X.

    Args:
        x: matrices (n, rows, columns).
        by: the polynomials.

    Returns:
        As `x`.
    """
    turned = x.shape[1] > x.shape[2]
    if turned:
        x = x.mT
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) * _SAFETY + 1e-7)
    steps = list(by)
    small = x.shape[1] < x.shape[2] and len(steps) <= _BY_SMALL_MATRIX
    gram = x @ x.mT  # (n, rows, rows)
    collected: Tensor | None = None
    for number, (a, b, c) in enumerate(steps):
        if number and not small:
            gram = x @ x.mT
        # p(A) = a I + b A + c A²
        poly = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        poly.diagonal(dim1=1, dim2=2).add_(a)
        if not small:
            x = poly @ x
            continue
        collected = poly if collected is None else poly @ collected
        if number < len(steps) - 1:
            gram = poly @ gram @ poly
    if collected is not None:
        x = collected @ x
    return x.mT if turned else x


class Muon(torch.optim.Optimizer):
    """W ← (1 - lr λ) W - lr √max(1, rows / columns) orthogonal(μ m + (1 - μ) g).

    m ← μ m + (1 - μ) g is the mean of the gradients g.

    Matrices of one shape are made orthogonal together. torch's own Muon takes them one by one, in
    bfloat16, which many CPUs multiply more slowly than float32.

    Args:
        params: matrices, or groups of them.
        lr: learning rate.
        momentum: μ, once it is warmed up.
        momentum_steps: steps over which μ rises from `FIRST_MOMENTUM`; 0: none.
        weight_decay: λ.
        steps: iterations.
        polar_express: polynomials of the Polar Express rather than Jordan's.

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; the
    momentum's warm-up is that of their record runs.
    """

    # Of the class, as a copy or a pickle of an optimizer holds no more than its state.
    _library: Path | None = None

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        momentum: float,
        momentum_steps: int = 0,
        weight_decay: float = 0.0,
        steps: int = 5,
        polar_express: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "momentum_steps": momentum_steps,
            "weight_decay": weight_decay,
            "steps": steps,
            "polar_express": polar_express,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's, without loading its compiler (see `optim.AdamW`)."""
        inspect.unwrap(torch.optim.Optimizer.add_param_group)(self, param_group)

    def use_library(self, library: Path | None) -> None:
        """Move matrices by `muon.c` where it serves; values differ by rounding.

        Args:
            library: of `compiled_muon.SOURCE`; None: operation by operation.
        """
        self._library = library

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every matrix that has a gradient once."""
        loss = None if closure is None else closure()
        with torch.no_grad():
            for group in self.param_groups:
                moved = [p for p in group["params"] if p.grad is not None]
                if self._library is not None and self._alike(moved) and compiled_muon.serves(moved):
                    self._move_compiled(self._library, moved, group)
                    continue
                by_shape: dict[torch.Size, list[Tensor]] = {}
                for parameter in moved:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
                for parameters in by_shape.values():
                    self._move(parameters, group)
        return loss

    def _alike(self, parameters: list[Tensor]) -> bool:
        """Whether there are any, and all were moved as often."""
        return len({self.state[parameter].get("step", 0) for parameter in parameters}) == 1

    def _begin(
        self, parameters: list[Tensor], group: dict[str, Any]
    ) -> tuple[list[Tensor], list[Tensor], float]:
        """The running mean of each, which begins at zero, its gradient, and the momentum of this
        move, which is counted."""
        states = [self.state[parameter] for parameter in parameters]
        for state, parameter in zip(states, parameters, strict=True):
            if not state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
                state["step"] = 0
        done: int = states[0]["step"]
        for state in states:
            state["step"] = done + 1
        gradients = [p.grad for p in parameters if p.grad is not None]
        momentum = _momentum(done, group["momentum"], group["momentum_steps"])
        return [state["momentum_buffer"] for state in states], gradients, momentum

    def _move_compiled(
        self, library: Path, parameters: list[Tensor], group: dict[str, Any]
    ) -> None:
        buffers, gradients, momentum = self._begin(parameters, group)
        compiled_muon.move(
            library,
            list(zip(parameters, buffers, gradients, strict=True)),
            polynomials(group["steps"], group["polar_express"]),
            momentum=momentum,
            rate=group["lr"],
            decay=group["weight_decay"],
            safety=_SAFETY,
            small=_BY_SMALL_MATRIX,
        )

    def _move(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        buffers, gradients, momentum = self._begin(parameters, group)
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, buffers, momentum)  # Nesterov's
        by = polynomials(group["steps"], group["polar_express"])
        stacked = torch.stack(ahead)
        if stacked.device.type == "cuda":
            stacked = stacked.bfloat16()
        moves = orthogonalise(stacked, by).to(parameters[0].dtype)
        rows, columns = parameters[0].shape
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        scale = -group["lr"] * math.sqrt(max(1.0, rows / columns))
        torch._foreach_add_(parameters, list(moves.unbind()), alpha=scale)


def _momentum(step: int, full: float, steps: int) -> float:
    """Rises from `FIRST_MOMENTUM` (or `full`, if that is less) to `full` over `steps` steps."""
    if step >= steps:
        return full
    first = min(FIRST_MOMENTUM, full)
    return first + (full - first) * step / steps
