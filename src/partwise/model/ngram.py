"""N-gram embeddings: the last few tokens, taken together, have an embedding of their own.

A table lookup costs next to nothing, and spares the first blocks the work of finding out which
tokens stand beside each other.
"""

import torch
from torch import Tensor, nn


class NgramTable(nn.Embedding):
    """The row of the n tokens that end at each place; zero where there are not n of them yet.

    It starts at zero and draws no random numbers: a model with it starts as the one without.

    Args:
        n: tokens in an n-gram.
        vocab_size: number of different tokens.
        rows: of the table.
        width: of the residual stream (features).
    """

    def __init__(self, n: int, vocab_size: int, rows: int, width: int) -> None:
        super().__init__(rows, width, _weight=torch.zeros(rows, width))
        self.n = n
        self.vocab_size = vocab_size

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed each n-gram.

        Args:
            tokens: (B, n - 1 + T), the first n - 1 of them before the text; -1 where there is none.

        Returns:
            (B, T, width).
        """
        # When the oldest of the n tokens exists, all do.
        whole = tokens[:, : tokens.shape[1] - self.n + 1] >= 0  # (B, T)
        rows = ngram_rows(tokens.clamp(min=0), self.n, self.vocab_size, self.num_embeddings)
        return super().forward(rows).masked_fill(~whole[..., None], 0.0)


def ngram_rows(tokens: Tensor, n: int, vocab_size: int, rows: int) -> Tensor:
    """ids[t-n+1] V^(n-1) + … + ids[t], or a hash of the n tokens where V^n is more than `rows`.

    The hash is the last h of: h = 0; then for each of the n tokens, oldest first,
    h = (h * 1000003 + token + 1) mod rows.

    Args:
        tokens: (B, n - 1 + T).
        n: tokens in an n-gram.
        vocab_size: V.
        rows: of the table.

    Returns:
        Which row each n-gram has (B, T).
    """
    length = tokens.shape[1] - n + 1
    exact = vocab_size**n <= rows
    index = torch.zeros_like(tokens[:, :length])
    for i in range(n):
        token = tokens[:, i : i + length]
        index = index * vocab_size + token if exact else (index * 1_000_003 + token + 1) % rows
    return index
