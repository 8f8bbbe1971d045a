"""Causal attention and its gradient as machine code: `attention.c`, for training on a CPU.

What `lean.causal_attention` says operation by operation, in one call each way. Beside the result
only one number a query is kept for the gradient, in place of all weights.
"""

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from partwise.machine import registers
from partwise.model.config import ModelConfig
from partwise.model.dropout import dropped, kept_scale

SOURCE = registers.source(Path(__file__).with_name("attention.c"))

_INT, _REAL, _PLACE = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class _Shape(ctypes.Structure):
    _fields_ = [
        *((name, _INT) for name in ("texts", "length", "heads", "size", "threads")),
        *((name, _PLACE) for name in ("of_query", "of_key", "cosine", "sine")),
        ("eps", _REAL),
        ("seed", ctypes.c_uint64),
        ("dropped", _INT),
        ("kept", _REAL),
        ("halves", _INT),
    ]


def serves(config: ModelConfig) -> bool:
    """Whether a model has attention of this kind, and this processor the registers for it."""
    kind = config.attention and config.causal and config.window is None
    alone = config.position != "alibi" and config.key_value_heads == config.n_heads
    return bool(kind and alone) and registers.serve()


@functools.cache
def loaded(library: Path) -> ctypes.CDLL:
    """The functions of a compiled `attention.c`.

    Raises:
        OSError: it cannot be loaded; a file system may forbid it.
    """
    functions = ctypes.CDLL(str(library))
    functions.partwise_attention_room.argtypes = [_PLACE]
    functions.partwise_attention_room.restype = _INT
    functions.partwise_attention.argtypes = [_PLACE] * 5
    functions.partwise_attention.restype = None
    functions.partwise_attention_slope.argtypes = [_PLACE] * 7
    functions.partwise_attention_slope.restype = None
    return functions


def causal_attention(
    qkv: Tensor,
    n_heads: int,
    rotation: tuple[Tensor, Tensor] | None,
    norms: tuple[Tensor, Tensor, float] | None,
    rate: float,
    library: Path,
) -> Tensor:
    """softmax(q kᵀ / sqrt(head_size)) v of each head, each token over itself and those before.

    Args:
        qkv: (B, T, 3 heads head_size) float32 on a CPU: all query heads, all keys, all values.
        n_heads: heads.
        rotation: cos and sin of `Rotary`, each (T, 1, head_size).
        norms: the learned scales of the norms of queries and keys, and their eps.
        rate: share of the weights that is dropped out; which ones follows from torch's seed.
        library: of `SOURCE`.

    Returns:
        (B, T, heads head_size).
    """
    cosine, sine = (None, None) if rotation is None else map(in_vectors, rotation)
    of_query, of_key, eps = (None, None, 0.0) if norms is None else norms
    apply: Any = _CausalAttention.apply
    found: Tensor = apply(qkv, of_query, of_key, cosine, sine, n_heads, eps, rate, library)
    return found


def in_vectors(table: Tensor) -> Tensor:
    """(T, 1, head_size) -> (T, whole vectors), zeros behind."""
    return F.pad(table[:, 0], (0, -table.shape[-1] % registers.WHOLE)).contiguous()


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        qkv: Tensor,
        of_query: Tensor | None,
        of_key: Tensor | None,
        cosine: Tensor | None,
        sine: Tensor | None,
        n_heads: int,
        eps: float,
        rate: float,
        library: Path,
    ) -> Tensor:
        batch, length, width = qkv.shape
        size = width // (3 * n_heads)
        qkv = qkv.contiguous()
        shape = _Shape(
            texts=batch,
            length=length,
            heads=n_heads,
            size=size,
            threads=torch.get_num_threads(),
            of_query=_place(of_query),
            of_key=_place(of_key),
            cosine=_place(cosine),
            sine=_place(sine),
            eps=eps,
            seed=int(torch.randint(2**63 - 1, (), device="cpu")) if rate else 0,
            dropped=dropped(rate) if rate else 0,
            kept=kept_scale(rate) if rate else 1.0,
        )
        y = qkv.new_empty(batch, length, n_heads * size)
        sums = qkv.new_empty(batch * n_heads, length)
        functions = loaded(library)
        room = _room(functions, shape)
        functions.partwise_attention(ctypes.byref(shape), *map(_place, (room, qkv, y, sums)))
        context.functions, context.shape = functions, shape
        context.save_for_backward(qkv, sums, of_query, of_key, cosine, sine)
        return y

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        qkv, sums, *pointed = context.saved_tensors
        functions, shape = context.functions, context.shape
        # What was saved may have been put elsewhere since, and its first place be another's.
        shape.of_query, shape.of_key, shape.cosine, shape.sine = map(_place, pointed)
        of_y = gradients[0].contiguous()
        out = torch.empty_like(qkv)
        scales = qkv.new_empty(shape.texts * shape.heads, 2, shape.size)
        room = _room(functions, shape)
        places = map(_place, (room, qkv, sums, of_y, out, scales))
        functions.partwise_attention_slope(ctypes.byref(shape), *places)
        of_scales = (None, None) if shape.of_query is None else scales.sum(0).unbind()
        return out, *of_scales, None, None, None, None, None, None


def _room(functions: ctypes.CDLL, shape: _Shape) -> Tensor:
    """Memory for all threads, as torch has it at hand."""
    each = functions.partwise_attention_room(ctypes.byref(shape))
    return torch.empty(shape.threads * each, dtype=torch.float32, device="cpu")


def _place(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
