"""Cross-attention: the tokens of one text ask, the tokens of another answer."""

from collections.abc import Callable

from torch import Tensor, nn

from partwise.model.attention import Implementation, attend, attend_fast


class CrossAttention(nn.Module):
    """projection(concat over heads of softmax(q k^T / sqrt(head_size)) v), k and v from `memory`.

    The decoder of the original Transformer reads the encoder's output so.

    Args:
        d_model: width of the text that asks (features).
        n_heads: query heads.
        n_kv_heads: key and value heads; none: as many as n_heads.
        head_size: width of a head (features); none: d_model / n_heads.
        memory_width: width of the text that answers (features); none: d_model.
        bias: biases in all matrices.
        dropout: share of the attention weights dropped in training.
        implementation: "sdpa" for torch's fused kernels, "plain" for the readable formula.

    Source: Vaswani et al. (2017), section 3.2.3.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        head_size: int | None = None,
        *,
        memory_width: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        implementation: Implementation = "sdpa",
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        self.head_size = d_model // n_heads if head_size is None else head_size
        self.dropout = dropout
        self.implementation: Implementation = implementation
        joined = n_heads * self.head_size
        asked = d_model if memory_width is None else memory_width
        self.query = nn.Linear(d_model, joined, bias=bias)
        # One matrix: rows of all key heads, then of all value heads.
        self.key_value = nn.Linear(asked, 2 * self.n_kv_heads * self.head_size, bias=bias)
        self.projection = nn.Linear(joined, d_model, bias=bias)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """What the memory answers: to be computed once, however many tokens then ask.

        Args:
            memory: (B, S, memory_width).

        Returns:
            Keys and values, each (B, n_kv_heads, S, head_size).
        """
        batch, length, _ = memory.shape
        both: Tensor = self.key_value(memory)
        both = both.view(batch, length, 2, self.n_kv_heads, self.head_size)
        keys, values = both.permute(2, 0, 3, 1, 4).unbind(0)
        return keys, values

    def forward(
        self,
        x: Tensor,
        memory: Tensor | tuple[Tensor, Tensor],
        memory_mask: Tensor | None = None,
        observe: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """Let each token of `x` gather from the memory.

        Args:
            x: (B, T, d_model).
            memory: (B, S, memory_width), or what `keys_values` made of it.
            memory_mask: (B, S), true for tokens, false for padding; each row has a token.
            observe: is given the weights (B, n_heads, T, S); the plain formula then serves.

        Returns:
            (B, T, d_model).
        """
        batch, length, _ = x.shape
        q: Tensor = self.query(x)
        q = q.view(batch, length, self.n_heads, self.head_size).transpose(1, 2)
        k, v = self.keys_values(memory) if isinstance(memory, Tensor) else memory
        mask = None if memory_mask is None else memory_mask[:, None, None]  # (B, 1, 1, S)
        dropout = self.dropout if self.training else 0.0
        if observe is None and self.implementation == "sdpa":
            y = attend_fast(q, k, v, mask=mask, dropout=dropout)
        else:
            y, weights = attend(q, k, v, mask=mask, dropout=dropout)
            if observe is not None:
                observe(weights)
        out: Tensor = self.projection(y.transpose(1, 2).reshape(batch, length, -1))
        return out  # (B, T, d_model)
