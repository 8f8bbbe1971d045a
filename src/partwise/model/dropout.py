"""Dropout: in training some numbers are struck out at random, so that none is relied upon alone.

torch draws the numbers of a CPU one at a time, which costs a model of width 384 more than the half
of its arithmetic. Here 16 random bits decide on a number, and a piece is drawn, compared and
multiplied while it is in the processor's cache: an eighth of the time. The bits are torch's own, so
that whoever seeds torch has the same draws again, in however many threads.
"""

from typing import Any

import torch
from torch import Tensor
from torch.fx._symbolic_trace import is_fx_symbolic_tracing
from torch.nn import functional as F

# Numbers that are worked on at once: with their bits they fit into a core's cache.
PIECE = 2**17

STEPS = 2**16  # what 16 bits can tell apart


def dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """x_i m_i / (1 - rate), where each m_i is 0 with probability `rate` and else 1.

    The mean of what comes out is x. In evaluation, x itself. On a CPU `rate` is rounded to a
    65,536th (but not to 0 or 1), and what is divided by follows it, so that the mean stays x.

    Args:
        x: of any shape.
        rate: share that is struck out, in [0, 1).
        training: false: nothing is struck out.

    Returns:
        As `x`.

    Source: Srivastava et al. (2014), section 4; divided in training rather than multiplied in
    evaluation, section 10.
    """
    if not training or rate == 0.0:
        return x
    if not is_by_hand(x):
        return F.dropout(x, rate)
    apply: Any = _Dropout.apply
    found: Tensor = apply(x, rate)[0]
    return found


def is_by_hand(x: Tensor) -> bool:
    """Whether `x` is dropped out piece by piece: on a CPU, operation by operation.

    A GPU is fastest with torch's own, and a compiler sees through no other.
    """
    traced = torch.compiler.is_compiling() or is_fx_symbolic_tracing()
    return x.device.type == "cpu" and not traced


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        mask = x.new_empty(x.shape, dtype=torch.uint8)
        for piece in (mask,) if x.numel() <= PIECE else torch.split(mask.view(-1), PIECE):
            draw(piece, STEPS - dropped(rate))
        return _masked(x, mask, kept_scale(rate)), mask

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor, float], output: Any) -> None:
        mask = output[1]
        context.mark_non_differentiable(mask)
        context.save_for_backward(mask)
        context.scale = kept_scale(inputs[1])

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (mask,) = context.saved_tensors
        return _masked(gradients[0], mask, context.scale), None


def dropped(rate: float) -> int:
    """How many draws of 65,536 strike a number out."""
    return min(max(1, round(rate * STEPS)), STEPS - 1)


def kept_scale(rate: float) -> float:
    """What the kept numbers are multiplied by: one over their share."""
    return STEPS / (STEPS - dropped(rate))


def draw(out: Tensor, chances: int) -> Tensor:
    """Fill `out` with 1 where a draw hits, which `chances` of 65,536 do, and with 0 elsewhere.

    Args:
        out: contiguous, of any shape and number format.
        chances: 1 to 65,535.

    Returns:
        `out`.
    """
    count = out.numel()
    bits = out.new_empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    drawn = bits.view(torch.int16)[:count].view(out.shape)  # -32,768 to 32,767
    return torch.le(drawn, chances - 1 - STEPS // 2, out=out)


def _masked(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    """x mask scale, piece by piece unless that is itself to have a gradient."""
    if x.numel() <= PIECE or (x.requires_grad and torch.is_grad_enabled()):
        return torch.mul(x, mask).mul_(scale)
    out = x.new_empty(x.shape)
    flat = (torch.split(each, PIECE) for each in (x.reshape(-1), mask.view(-1), out.view(-1)))
    for numbers, kept, product in zip(*flat, strict=True):
        torch.mul(numbers, kept, out=product).mul_(scale)
    return out
