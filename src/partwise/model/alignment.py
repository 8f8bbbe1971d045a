"""Alignment: which tokens of the source the decoder looked at while it wrote each token."""

import torch
from torch import Tensor

from partwise.model.seq2seq import Seq2Seq
from partwise.model.trace import evaluating


def alignment(
    model: Seq2Seq,
    source: Tensor,
    target: Tensor,
    *,
    layer: int | None = None,
    head: int | None = None,
) -> Tensor:
    """The cross-attention weights, each row a distribution over the source's tokens.

    Row t belongs to the token that is written after target[:, t]. It is what the decoder looked
    at, which is often, but need not be, what the token translates.

    Args:
        model: is left as it was.
        source: token numbers (B, S), int64.
        target: token numbers (B, T), START first.
        layer: which decoder block's weights, from 0; none: the mean of all.
        head: which head's, from 0; none: the mean of all.

    Returns:
        (B, T, S).

    Source: Vaswani et al. (2017), section 3.2.3; the picture is that of Bahdanau, Cho and Bengio
    (2015), figure 3.
    """
    found: list[Tensor] = []

    def look(name: str, value: Tensor) -> None:
        if name.endswith("cross_attention.weights"):
            found.append(value)

    with evaluating(model), torch.no_grad():
        model(source, target, look)
    weights = torch.stack(found, dim=1)  # (B, layers, heads, T, S)
    weights = weights.mean(1) if layer is None else weights[:, layer]
    return weights.mean(1) if head is None else weights[:, head]
