"""Trace: every intermediate value of one forward pass, by name, for the explorer and for tests."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from partwise.model.gpt import GPT
from partwise.model.seq2seq import Seq2Seq

Trace = dict[str, Tensor]


def trace(model: GPT | Seq2Seq, ids: Tensor) -> Trace:
    """Name -> value, in the order of computation, in evaluation mode and without gradients.

    With plain attention, so that its weights are there to be seen. Names: "embedding"; for block i
    "block.{i}.norm1", "block.{i}.attention.weights" (B, heads, T, T), "block.{i}.attention",
    "block.{i}.residual1", "block.{i}.norm2", "block.{i}.feedforward", "block.{i}.residual2" and
    "block.{i}.output"; "final_norm"; "logits" (B, T, vocab_size). Without note they are
    (B, T, d_model). An absent part has no entry; parallel blocks have no residual1 and residual2.

    The two sides of an encoder-decoder have the same names behind "encoder." and "decoder.", and
    the decoder's blocks "cross_attention.weights" (B, heads, T, S), "cross_attention", "norm3" and
    "residual3" as well.

    Args:
        model: is left as it was.
        ids: token numbers (B, T), int64; source and target side by side, (B, 2, L), for an
            encoder-decoder.

    Raises:
        PartwiseError: see `GPT.forward`.
    """
    values: Trace = {}
    with evaluating(model), torch.no_grad():
        model(ids, observe=values.__setitem__)
    return values


def first_non_finite(model: GPT | Seq2Seq, ids: Tensor) -> str | None:
    """The name, as in `trace`, of the first value that holds an infinity or a NaN; else None.

    Args:
        model: is left as it was.
        ids: token numbers (B, T), int64.
    """
    found: list[str] = []

    def look(name: str, value: Tensor) -> None:
        if not found and not bool(value.isfinite().all()):
            found.append(name)

    with evaluating(model), torch.no_grad():
        model(ids, observe=look)
    return found[0] if found else None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the `with`; afterwards each module is in the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
