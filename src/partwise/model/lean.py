"""Parts with their gradients written out: the same values in fewer passes over memory.

A CPU that trains a small model operation by operation spends a third of its time on carrying
activations to and from memory. `torch` does that for every operator of a formula, and again for its
gradient; here a formula and its gradient are a few operations each. Nothing is compiled. It serves
training in float32, also with products in bfloat16; see `GPT.use_lean`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from partwise.model.dropout import draw, dropped, kept_scale

# Queries that are attended for at once: none of them needs the keys after the last of them, so that
# blocks save nearly half of the work of a causal mask.
QUERIES = 64

# Weights of attention that are worked on at once, which then stay in a core's cache from one
# operation to the next.
WEIGHTS = 2**18


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)², and its gradient 2 max(x, 0)."""
    found: Tensor = _call(_SquaredRelu, x)
    return found


class _SquaredRelu(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        above = x.relu()
        context.save_for_backward(above)
        return above * above

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        (above,) = context.saved_tensors
        slope: Tensor = gradients[0] * above
        return slope.mul_(2)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) * weight, over the last dimension."""
    found: Tensor = _call(_RmsNorm, x, weight, eps)
    return found


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = _scale(x, eps)
        normed = x * scale
        context.save_for_backward(normed, scale, weight)
        return normed * weight

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        normed, scale, weight = context.saved_tensors
        product = gradients[0] * normed
        of_weight = product.reshape(-1, len(weight)).sum(0)
        along = (product @ weight).div_(-len(weight)).unsqueeze(-1)
        of_x = (gradients[0] * weight).addcmul_(normed, along).mul_(scale)
        return of_x, of_weight, None


def blend(x: Tensor, other: Tensor, shares: Tensor) -> Tensor:
    """shares[0] x + shares[1] other."""
    found: Tensor = _call(_Blend, x, other, shares)
    return found


class _Blend(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, other: Tensor, shares: Tensor) -> Tensor:
        context.save_for_backward(x, other, shares)
        first, second = shares.tolist()
        return torch.add(x * first, other, alpha=second)

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, other, shares = context.saved_tensors
        (gradient,) = gradients
        flat = gradient.reshape(-1)
        of_shares = torch.stack((flat.dot(x.reshape(-1)), flat.dot(other.reshape(-1))))
        first, second = shares.tolist()
        return gradient * first, gradient * second, of_shares


def causal_attention(
    qkv: Tensor,
    n_heads: int,
    rotation: tuple[Tensor, Tensor] | None,
    norms: tuple[Tensor, Tensor, float] | None,
    rate: float = 0.0,
) -> Tensor:
    """softmax(q kᵀ / sqrt(head_size)) v of each head, each token over itself and those before.

    Args:
        qkv: (B, T, 3 heads head_size), all query heads, then all keys, then all values.
        n_heads: heads.
        rotation: cos and sin of `Rotary`, each (T, 1, head_size).
        norms: the learned scales of the norms of queries and keys, and their eps.
        rate: share of the weights that is dropped out, as `dropout` does it.

    Returns:
        (B, T, heads head_size).
    """
    cos, sin = rotation if rotation is not None else (None, None)
    of_query, of_key, eps = norms if norms is not None else (None, None, 0.0)
    found: Tensor = _call(_CausalAttention, qkv, of_query, of_key, cos, sin, n_heads, eps, rate)
    return found


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        qkv: Tensor,
        of_query: Tensor | None,
        of_key: Tensor | None,
        cos: Tensor | None,
        sin: Tensor | None,
        n_heads: int,
        eps: float,
        rate: float,
    ) -> Tensor:
        batch, length, width = qkv.shape
        size = width // (3 * n_heads)
        parts = qkv.view(batch, length, 3, n_heads, size).permute(2, 0, 3, 1, 4)
        both, v = parts[:2], parts[2].reshape(-1, length, size)  # (2, B, heads, T, h), (B heads, …)
        scale = normed = weight = None
        if of_query is not None and of_key is not None:
            weight = torch.stack((of_query, of_key))[:, None, None, None]
            scale = _scale(both, eps)
            normed = qkv.new_empty(both.shape)
            torch.mul(both, scale, out=normed)
            both = normed * weight
        if cos is not None and sin is not None:
            both = _turn(both, cos[:, 0], sin[:, 0])
        both = both.reshape(2, -1, length, size)
        q, k = both[0] * size**-0.5, both[1]
        if rate:
            v = v * kept_scale(rate)  # what the kept weights would be multiplied by
        y = torch.empty_like(v)
        kept: list[Tensor] = []
        for few in _groups(len(q), length):
            kept += _mix(q[few], k[few], v[few], rate, out=y[few])
        context.shape, context.rate = (batch, length, n_heads, size), rate
        context.save_for_backward(q, k, v, normed, scale, weight, cos, sin, *kept)
        return y.view(batch, n_heads, length, size).transpose(1, 2).reshape(batch, length, -1)

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        batch, length, n_heads, size = context.shape
        q, k, v, normed, scale, weight, cos, sin, *kept = context.saved_tensors
        of_y = gradients[0].view(batch, length, n_heads, size).transpose(1, 2)
        of_y = of_y.reshape(-1, length, size)
        of_both = q.new_empty(2, *q.shape)
        of_q, of_k = of_both[0], of_both[1]
        of_v = torch.empty_like(v)
        blocks = -(-length // QUERIES)
        for number, few in enumerate(_groups(len(q), length)):
            _unmix(
                (q[few], k[few], v[few]),
                kept[number * blocks :][:blocks],
                of_y[few],
                context.rate,
                out=(of_q[few], of_k[few], of_v[few]),
            )
        of_q *= size**-0.5
        if context.rate:
            of_v *= kept_scale(context.rate)
        of_both = of_both.view(2, batch, n_heads, length, size)
        if cos is not None:
            of_both = _turn(of_both, cos[:, 0], -sin[:, 0])
        of_query = of_key = None
        found = q.new_empty(batch, length, 3, n_heads, size)
        places = found.permute(2, 0, 3, 1, 4)
        places[2] = of_v.view(batch, n_heads, length, size)
        if normed is None:
            places[:2] = of_both
        else:
            product = of_both * normed
            of_query, of_key = product.flatten(1, 3).sum(1)
            along = (product * weight).sum(-1, keepdim=True).div_(-size)
            torch.mul(of_both.mul_(weight).addcmul_(normed, along), scale, out=places[:2])
        return found.view(batch, length, -1), of_query, of_key, None, None, None, None, None


def _groups(heads: int, length: int) -> list[slice]:
    """So many heads at a time that the weights of a block of queries stay in a cache."""
    size = max(1, WEIGHTS // max(1, min(QUERIES, length) * length))
    return [slice(first, first + size) for first in range(0, heads, size)]


def _mix(q: Tensor, k: Tensor, v: Tensor, rate: float, out: Tensor) -> list[Tensor]:
    """softmax(q kᵀ) v of a few heads, block by block.

    Args:
        q, k, v: (heads, T, head_size), q and v scaled.
        rate: share of the weights that is dropped out.
        out: is given the result (heads, T, head_size).

    Returns:
        The weights of each block (heads, queries, keys). None is below 0, so that the sign is free
        to say that one is dropped.
    """
    length = q.shape[1]
    kept = []
    for first in range(0, length, QUERIES):
        last = min(first + QUERIES, length)
        scores = torch.bmm(q[:, first:last], k[:, :last].mT)
        scores[:, :, first:].add_(_hidden(last - first, scores))
        weights = used = scores.softmax(-1)
        if rate:
            weights.addcmul_(weights, draw(scores, dropped(rate)), value=-2)
            used = torch.clamp_min(weights, 0, out=scores)
        out[:, first:last] = torch.bmm(used, v[:, :last])
        kept.append(weights)
    return kept


def _unmix(
    qkv: tuple[Tensor, Tensor, Tensor],
    kept: list[Tensor],
    of_y: Tensor,
    rate: float,
    out: tuple[Tensor, Tensor, Tensor],
) -> None:
    """The gradients of `_mix`.

    Args:
        qkv: what it was given.
        kept: what it returned.
        of_y: gradient of its result.
        rate: as it was.
        out: are given the gradients of q, k and v.
    """
    (q, k, v), (of_q, of_k, of_v) = qkv, out
    length = q.shape[1]
    # From the last block back, which is the one that reaches every key. The products are added
    # by hand: into a part of a tensor torch multiplies matrix by matrix.
    for number, weights in reversed(list(enumerate(kept))):
        first = number * QUERIES
        last = min(first + QUERIES, length)
        of_weights = torch.bmm(of_y[:, first:last], v[:, :last].mT)
        used = weights
        if rate:
            of_weights = torch.ops.aten.threshold_backward(of_weights, weights, 0)  # 0 if dropped
            used, weights = weights.relu(), weights.abs()
        of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
        of_q[:, first:last] = torch.bmm(of_scores, k[:, :last])
        to_k = torch.bmm(of_scores.mT, q[:, first:last])
        to_v = torch.bmm(used.mT, of_y[:, first:last])
        if last == length:
            of_k.copy_(to_k)
            of_v.copy_(to_v)
        else:
            of_k[:, :last].add_(to_k)
            of_v[:, :last].add_(to_v)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As `rotate`, with features last and tokens before them (…, T, h)."""
    half = x.shape[-1] // 2
    turned = x * cos
    turned[..., :half].addcmul_(x[..., half:], sin[:, :half])
    turned[..., half:].addcmul_(x[..., :half], sin[:, half:])
    return turned


def _scale(x: Tensor, eps: float) -> Tensor:
    """1 / sqrt(mean(x²) + eps) over the last dimension, which stays with size 1."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    found: Tensor = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return found


def _hidden(queries: int, scores: Tensor) -> Tensor:
    """-inf where a key comes after its query, else 0 (queries, queries)."""
    return scores.new_full((queries, queries), -torch.inf).triu_(1)


def _call(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    apply: Any = function.apply
    return apply(*arguments)
