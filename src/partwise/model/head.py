"""The output layer: from the residual stream to a score for every token of the vocabulary."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TiedHead(nn.Module):
    """logits = x E^T + bias, with E the token embedding itself.

    The embedding is borrowed: it is saved, counted and moved once, where it belongs.

    Args:
        embedding: of the tokens.
        bias: whether each token has a learned score of its own.

    Source: Press and Wolf (2017).
    """

    def __init__(self, embedding: nn.Embedding, bias: bool = False) -> None:
        super().__init__()
        # In a tuple, nn.Module does not take it for a part of this one.
        self._borrowed = (embedding,)
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings)) if bias else None

    @property
    def weight(self) -> Tensor:
        """The token embedding's weight (vocab_size, d_model)."""
        return self._borrowed[0].weight

    def forward(self, x: Tensor) -> Tensor:  # (..., d_model) -> (..., vocab_size)
        return F.linear(x, self.weight, self.bias)


def soft_cap(logits: Tensor, cap: float) -> Tensor:
    """cap * tanh(logits / cap): nearly the logits near 0, and never beyond ±cap.

    Source: Gemma Team (2024), "Gemma 2", section 2.
    """
    return cap * torch.tanh(logits / cap)
