"""Attention: each token asks a question of the tokens it may see and mixes what they answer."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from partwise.model import compiled_attention, lean
from partwise.model.cache import Step
from partwise.model.dropout import dropout as drop
from partwise.model.dropout import is_by_hand
from partwise.model.norm import RMSNorm
from partwise.model.position import rotate

Implementation = Literal["sdpa", "plain"]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """softmax(q k^T / sqrt(head_size) + mask) v, written out.

    Args:
        q: queries (B, heads, T, head_size).
        k, v: keys and values (B, kv_heads, S, head_size); query head h reads kv head
            h // (heads / kv_heads).
        mask: broadcastable to (B, heads, T, S): true where a query sees a key, or numbers that are
            added to the scores. Every query must see one key at least.
        causal: query i sees keys 0..i, instead of a mask.
        dropout: share of the weights that is dropped.

    Returns:
        The mixed values (B, heads, T, head_size) and the weights (B, heads, T, S) as they were
        before dropout.

    Source: Vaswani et al. (2017), section 3.2.1; Ainslie et al. (2023) (grouped queries).
    """
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    if causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, heads, T, S)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + mask
    weights = scores.softmax(dim=-1)
    return drop(weights, dropout).to(v.dtype) @ v, weights


def attend_fast(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """As `attend`, by torch's fused kernels, which never hold the weights whole.

    With dropout they would have to on a CPU; there it is `attend` itself, in float32 or more.

    Source: Dao et al. (2022).
    """
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q.dtype)
    if dropout and is_by_hand(q):
        wide = torch.promote_types(q.dtype, torch.float32)
        with torch.autocast("cpu", enabled=False):
            y, _ = attend(
                q.to(wide), k.to(wide), v.to(wide), mask=mask, causal=causal, dropout=dropout
            )
        return y.to(q.dtype)
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, enable_gqa=grouped
    )


class Attention(nn.Module):
    """projection(concat over heads of softmax(q k^T / sqrt(head_size)) v), with q, k, v from x.

    Args:
        d_model: width of the residual stream (features).
        n_heads: query heads.
        n_kv_heads: key and value heads; none: as many as n_heads; 1: multi-query.
        head_size: width of a head (features); none: d_model / n_heads.
        qkv_bias: biases in the query, key and value matrices.
        projection: whether a matrix follows the joined heads.
        projection_bias: a bias there.
        qk_norm: RMSNorm with a learned scale over each query and key, before they are turned.
        norm_eps: of that norm.
        dropout: share of the attention weights dropped in training.
        implementation: "sdpa" for torch's fused kernels, "plain" for the readable formula. With
            `lean` set, "sdpa" is computed as in `lean.py` where that serves, and with `library` set
            too by `attention.c`.

    Source: Vaswani et al. (2017), section 3.2; Shazeer (2019) (multi-query); Ainslie et al. (2023)
    (grouped queries); Henry et al. (2020) and Dehghani et al. (2023), section 2 (QK-norm).
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        head_size: int | None = None,
        *,
        qkv_bias: bool = True,
        projection: bool = True,
        projection_bias: bool = True,
        qk_norm: bool = False,
        norm_eps: float = 1e-5,
        dropout: float = 0.0,
        implementation: Implementation = "sdpa",
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        self.head_size = d_model // n_heads if head_size is None else head_size
        self.dropout = dropout
        self.implementation: Implementation = implementation
        self.lean = False
        self.library: Path | None = None
        joined = n_heads * self.head_size
        # One matrix: rows of all query heads, then of all key heads, then of all value heads.
        rows = (n_heads + 2 * self.n_kv_heads) * self.head_size
        self.qkv = nn.Linear(d_model, rows, bias=qkv_bias)
        self.query_norm = RMSNorm(self.head_size, norm_eps) if qk_norm else None
        self.key_norm = RMSNorm(self.head_size, norm_eps) if qk_norm else None
        self.projection = nn.Linear(joined, d_model, bias=projection_bias) if projection else None

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = True,
        rotation: tuple[Tensor, Tensor] | None = None,
        past: Step | None = None,
        layer: int = 0,
        observe: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """Mix the tokens of `x`.

        Args:
            x: (B, T, d_model).
            mask: see `attend`; it takes the place of `causal`.
            causal: without a mask, token i sees tokens 0..i; false: all.
            rotation: cos and sin of `Rotary`, for these T positions.
            past: where the keys and values of earlier tokens are kept.
            layer: which of its layers this is.
            observe: is given the weights (B, n_heads, T, S); the plain formula then serves.

        Returns:
            (B, T, d_model).
        """
        batch, length, _ = x.shape
        heads = (self.n_heads, self.n_kv_heads, self.n_kv_heads)
        qkv: Tensor = self.qkv(x)
        alone = mask is None and past is None and observe is None
        dropout = self.dropout if self.training else 0.0
        if self.lean and alone and causal and self._is_plain:
            y = self._attend_lean(qkv, rotation, dropout)
            return y if self.projection is None else self.projection(y)
        qkv = qkv.view(batch, length, sum(heads), self.head_size)
        q, k, v = qkv.split_with_sizes(heads, dim=2)  # (B, T, heads, head_size)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if rotation is not None:
            q, k = rotate(q, *rotation), rotate(k, *rotation)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, heads, T, …)
        if past is not None:
            k, v = past.extend(layer, k, v)  # (B, n_kv_heads, S, head_size)
        causal = causal and mask is None
        if observe is None and self.implementation == "sdpa":
            y = attend_fast(q, k, v, mask=mask, causal=causal, dropout=dropout)
        else:
            y, weights = attend(q, k, v, mask=mask, causal=causal, dropout=dropout)
            if observe is not None:
                observe(weights)
        y = y.transpose(1, 2).reshape(batch, length, self.n_heads * self.head_size)
        if self.projection is not None:
            y = self.projection(y)
        return y  # (B, T, d_model)

    def _attend_lean(
        self, qkv: Tensor, rotation: tuple[Tensor, Tensor] | None, dropout: float
    ) -> Tensor:
        """As `lean.py` or `attention.c` do it: in float32, also between products in bfloat16."""
        wide = qkv.float() if qkv.dtype == torch.bfloat16 else qkv
        asked = (wide, self.n_heads, rotation, self._norms, dropout)
        here = wide.device.type == "cpu" and wide.dtype == torch.float32
        if self.library is not None and here:
            return compiled_attention.causal_attention(*asked, self.library).to(qkv.dtype)
        with torch.autocast("cpu", enabled=False):
            return lean.causal_attention(*asked).to(qkv.dtype)

    @property
    def _is_plain(self) -> bool:
        return self.implementation == "sdpa" and self.n_kv_heads == self.n_heads

    @property
    def _norms(self) -> tuple[Tensor, Tensor, float] | None:
        if self.query_norm is None or self.key_norm is None:
            return None
        return self.query_norm.weight, self.key_norm.weight, self.query_norm.eps
