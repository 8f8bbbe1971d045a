"""Small models laid out for the compiler: features outermost in memory, texts innermost.

A narrow model spends its time in loops over a handful of features, which a CPU's vectors do not
fill. With activations stored as (features, T, B) every loop, sum over features and softmax runs
along the texts of the batch instead, full vectors at a time. The model's own code is unchanged: its
tensors keep the shapes (B, T, features) and have other strides.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

# Rows of a table up to which a look-up is a product with one-hot columns: 7 us where the sums of
# its gradient, one token after the other, take longer.
ONE_HOT_ROWS = 512

# Tokens up to which attention is written as loops that run along the batch; longer texts fill the
# vectors of a matrix product.
LOOPED_TOKENS = 32


class FeatureMajor(TorchFunctionMode):
    """Inside the `with`, the functions below take the place of torch's; values stay the same."""

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `func`, or what takes its place."""
        return _IN_PLACE_OF.get(func, func)(*args, **(kwargs or {}))


def turned(x: Tensor) -> Tensor:
    """The same memory with the dimensions in reverse."""
    return x.permute(*range(x.ndim - 1, -1, -1))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x weightᵀ + bias`, as `weight xᵀ` in memory.

    Args:
        x: (B, T, in).
        weight: (out, in).
        bias: (out,).
    """
    columns = turned(x)  # (in, T, B)
    out = weight @ columns.reshape(x.shape[-1], -1)  # (out, T B)
    out = out.view(-1, *columns.shape[1:])
    if bias is not None:
        # After the view: next to the product the compiler would make it a part of that, and first
        # copy the bias to the size of the result.
        out = out + bias.view(-1, *[1] * (x.ndim - 1))
    return turned(out)


def embedding(ids: Tensor, weight: Tensor, *rest: Any, **settings: Any) -> Tensor:
    """The rows `ids` of a table, as columns in memory.

    Args:
        ids: (B, T) or (T,).
        weight: (rows, features).
        *rest, **settings: as torch has them.
    """
    if weight.shape[0] > ONE_HOT_ROWS:
        return F.embedding(ids, weight, *rest, **settings)
    places = turned(ids)
    rows = torch.arange(weight.shape[0])
    chosen = (rows[:, None] == places.reshape(1, -1)).to(weight.dtype)  # (rows, T B)
    return turned((weight.T @ chosen).view(-1, *places.shape))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q kᵀ / sqrt(head_size) + mask) v, with every loop along the batch.

    Args:
        query: (B, heads, T, head_size).
        key, value: (B, kv_heads, S, head_size).
        attn_mask, dropout_p, is_causal, scale, enable_gqa: as torch has them.
    """
    if max(query.shape[2], key.shape[2]) > LOOPED_TOKENS:
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attn_mask,
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )
    q, k, v = (part.permute(1, 3, 2, 0) for part in (query, key, value))  # (heads, size, T, B)
    if enable_gqa:
        k, v = (part.repeat_interleave(q.shape[0] // k.shape[0], dim=0) for part in (k, v))
    scores = (q.unsqueeze(3) * k.unsqueeze(2)).sum(1)  # (heads, T, S, B)
    scores = kept(scores) * (1 / math.sqrt(q.shape[1]) if scale is None else scale)
    if is_causal:
        seen = torch.ones(scores.shape[1:3], dtype=torch.bool).tril()[:, :, None]
        scores = scores.masked_fill(~seen, -math.inf)
    if attn_mask is not None:
        mask = attn_mask.permute(1, 2, 3, 0)
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = F.dropout(kept(scores.softmax(2)), dropout_p)
    mixed = (weights.unsqueeze(1) * v.unsqueeze(2)).sum(3)  # (heads, size, T, B)
    return mixed.permute(3, 0, 2, 1)


def stored(x: Tensor) -> Tensor:
    """`x`, computed once and put into memory.

    Left to itself the compiler computes a short formula anew in every loop that reads it, which for
    the weights of attention is a division a feature.
    """
    # The compiler never looks through this operation, though it changes nothing here.
    return x.as_strided(x.shape, x.stride())


def kept(x: Tensor) -> Tensor:
    """As `stored`, and the gradient too."""
    apply: Any = _Kept.apply
    found: Tensor = apply(x)
    return found


class _Kept(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return stored(x)

    @staticmethod
    def backward(_: Any, *gradients: Tensor) -> Tensor:
        return stored(gradients[0])


_IN_PLACE_OF: dict[Any, Callable[..., Tensor]] = {
    F.linear: linear,
    F.embedding: embedding,
    F.scaled_dot_product_attention: attention,
}

_ATEN = torch.ops.aten
_SUMS = (
    _ATEN.sum.dim_IntList,
    _ATEN.mean.dim,
    _ATEN.amax.default,
    _ATEN.amin.default,
    _ATEN.var_mean.correction,
)


class InMemoryOrder(fx.Interpreter):
    """Runs a graph with every operation in the order in which its numbers lie in memory.

    The compiler stores what it computes in the order of its dimensions. Where the strides say
    otherwise, an operation is given its tensors with their dimensions sorted, slowest first, and
    its result is turned back, which costs nothing. Traced anew, the graph is the same arithmetic
    without a copy from one order into another.
    """

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operation.

        Raises:
            ValueError: it changes a tensor, which a sorted operation must not.
        """
        if target is _ATEN.clone.default:
            # Made for a view, which takes any order here, or for safety, and nothing here writes
            # into a tensor. Only token ids are really put into another order.
            return args[0] if args[0].is_floating_point() else args[0].contiguous()
        if target is _ATEN.as_strided.default:
            return stored(args[0])
        if target is _ATEN.view.default:
            return args[0].reshape(args[1])
        if target is _ATEN.cat.default:
            return _join(*args)
        if target in _SUMS:
            return _reduce(target, args, kwargs)
        if torch.Tag.pointwise in getattr(target, "tags", ()):
            if target._schema.is_mutable:
                raise ValueError(f"{target} changes a tensor")
            return _pointwise(target, args, kwargs)
        return super().call_function(target, args, kwargs)


def _order(x: Tensor) -> list[int]:
    """The dimensions from the slowest in memory to the fastest."""
    return sorted(range(x.ndim), key=lambda dim: -x.stride()[dim])


def _back(order: list[int]) -> list[int]:
    return [order.index(dim) for dim in sorted(order)]


def _pointwise(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    common: Any = torch.broadcast_shapes
    shape = common(*(tensor.shape for tensor in tensors))
    full = [tensor for tensor in tensors if tensor.shape == shape and 0 not in tensor.stride()]
    if not full:
        return target(*args, **kwargs)
    order = _order(full[0])

    def sort(arg: Any) -> Any:
        if not isinstance(arg, Tensor) or arg.ndim == 0:
            return arg
        return arg[(None,) * (len(shape) - arg.ndim)].permute(order)

    return target(*map(sort, args), **kwargs).permute(_back(order))


def _reduce(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    order = _order(x)
    asked = args[1] if len(args) > 1 else None
    dims = [dim % x.ndim for dim in ([asked] if isinstance(asked, int) else asked or range(x.ndim))]
    found = target(x.permute(order), [order.index(dim) for dim in dims], *args[2:], **kwargs)
    whole = found[0] if isinstance(found, tuple) else found
    left = order if whole.ndim == x.ndim else [dim for dim in order if dim not in dims]
    back = _back(left)
    if isinstance(found, tuple):
        return tuple(each.permute(back) for each in found)
    return found.permute(back)


def _join(tensors: list[Tensor], dim: int = 0) -> Tensor:
    order = _order(tensors[0])
    sorted_ones = [tensor.permute(order) for tensor in tensors]
    return torch.cat(sorted_ones, order.index(dim % len(order))).permute(_back(order))
