"""A trace's tensors by name: those that were seen, those that follow from them, and their figures.

What crosses to the page is one window of one matrix: `pack` writes a short JSON header and then the
numbers as little-endian float32.
"""

import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from partwise.errors import ConfigError
from partwise.model.attention import Attention
from partwise.model.block import Block
from partwise.model.feedforward import FeedForward
from partwise.model.position import rotate
from partwise.studio.traces import Traced

# Numbers that are sent at once: 4 MiB.
MOST_SENT = 2**20

_OF_BLOCK = re.compile(r"block\.(\d+)\.([a-z0-9.]+)")

_HEADED = ("attention.weights", "attention.query", "attention.key", "attention.value")


@dataclass(frozen=True)
class Window:
    """Which part of a matrix is wanted.

    Args:
        row, column: the first of each, from 0.
        rows, columns: how many; None: all that follow.
    """

    row: int = 0
    rows: int | None = None
    column: int = 0
    columns: int | None = None


def find(traced: Traced, name: str, head: int = 0) -> Tensor:
    """The matrix called `name`: a row for each token.

    The names of `model.trace.trace`, and `block.{i}.input`; `block.{i}.attention.query`, `.key` and
    `.value` of one head, as they meet in the product (turned, where positions are rotary);
    `block.{i}.attention.joined`, the heads side by side before the projection;
    `block.{i}.feedforward.hidden`, after the activation; `embedding.token`, `embedding.position`
    and `embedding.ngram`, whose sum is the embedding; `stream`, see `stream`.

    Args:
        traced: the trace.
        name: the tensor's.
        head: which head, from 0, where each has its own.

    Returns:
        (T, features), on the CPU; attention weights (T, T).

    Raises:
        ConfigError: the model has no such tensor or head.
    """
    if name in traced.values and not name.endswith("weights"):
        return traced.values[name]
    if name == "stream":
        return stream(traced)[1]
    makers: dict[str, Callable[[Traced], Tensor | None]] = {
        "embedding.token": _token_rows,
        "embedding.position": _position_rows,
        "embedding.ngram": _ngram_rows,
    }
    found = makers[name](traced) if name in makers else None
    of_block = _OF_BLOCK.fullmatch(name)
    if of_block and int(of_block[1]) < traced.config.n_layers:
        found = _of_block(traced, int(of_block[1]), of_block[2], head)
    if found is None:
        raise ConfigError("this model has no tensor {name!r} (head {head})", name=name, head=head)
    return found


def maps(traced: Traced, layer: int, most: int = 64) -> Tensor:
    """The attention weights of all heads of a layer, small.

    Args:
        traced: the trace.
        layer: which block, from 0.
        most: pixels a side; of a longer text each pixel is the largest weight of its square.

    Returns:
        (heads, side, side).

    Raises:
        ConfigError: there is no such layer, or it has no attention.
    """
    weights = traced.values.get(f"block.{layer}.attention.weights")
    if weights is None:
        raise ConfigError("layer {layer} of this model has no attention", layer=layer + 1)
    square = -(-weights.shape[-1] // most)
    if square == 1:
        return weights
    return F.max_pool2d(weights[None], square, ceil_mode=True)[0]


def thumbnail(values: Tensor, rows: int = 16, columns: int = 48) -> Tensor:
    """A matrix in small: each pixel is the number of its patch that is farthest from 0.

    Args:
        values: (rows, columns).
        rows, columns: of the picture, at most.
    """
    height, width = (
        -(-size // most) for size, most in zip(values.shape, (rows, columns), strict=True)
    )
    high, low = (
        F.max_pool2d(each[None], (height, width), ceil_mode=True)[0] for each in (values, -values)
    )
    return torch.where(high >= low, high, -low)


def stream(traced: Traced) -> tuple[tuple[str, ...], Tensor]:
    """How long each token's vector is at every point: names, and norms (names, T).

    "embedding", of each block whatever of `attention`, `residual1`, `norm1`, `feedforward`,
    `residual2`, `norm2` and `output` it has, and "final_norm", in the order of computation.
    """
    names = tuple(
        name for name in traced.values if name != "logits" and not name.endswith("weights")
    )
    return names, torch.stack([traced.values[name].norm(dim=-1) for name in names])


def statistics(values: Tensor) -> dict[str, float | int | None]:
    """Of a whole matrix: min, max, mean, std, the 99th percentile of |x|, how many are not finite.

    They are those of its finite numbers, and None where it has none. The percentile of a large
    matrix is that of every n-th number.
    """
    flat = values.flatten()
    there = flat.isfinite()
    broken = flat.numel() - int(there.sum())
    flat = flat[there] if broken else flat
    if not flat.numel():
        none = dict.fromkeys(("min", "max", "mean", "std", "p99"))
        return {**none, "not_finite": broken}
    low, high = flat.aminmax()
    std, mean = torch.std_mean(flat, correction=0)
    some = flat[:: -(-flat.numel() // MOST_SENT)].abs().numpy()
    place = math.ceil(0.99 * len(some)) - 1
    return {
        "min": low.item(),
        "max": high.item(),
        "mean": mean.item(),
        "std": std.item(),
        "p99": float(np.partition(some, place)[place]),
        "not_finite": broken,
    }


def by_token(values: Tensor) -> dict[str, list[float | None]]:
    """Of each row: mean, standard deviation and norm."""
    wide = values.double()
    figures = {
        "mean": wide.mean(dim=-1),
        "std": wide.std(dim=-1, correction=0),
        "norm": wide.norm(dim=-1),
    }
    return {name: _plain(each) for name, each in figures.items()}


def pack(values: Tensor, header: dict[str, Any], window: Window | None = None) -> bytes:
    """A window of a tensor for the page: length of the header, header, numbers.

    The length is 4 bytes, little-endian; the header is JSON, filled up with spaces so that the
    numbers begin at a multiple of 4; they are float32, little-endian, row by row. The header gains
    `shape` (the whole tensor's), `from` (the first row and column) and `sent` (the shape of what
    follows), and what is too much for one answer is left for the next.

    Args:
        values: one or more matrices, (..., rows, columns).
        header: what else to say.
        window: which part of each matrix.
    """
    window = window or Window()
    rows, columns = values.shape[-2:]
    row, column = min(max(window.row, 0), rows), min(max(window.column, 0), columns)
    width = min(columns - column, _count(window.columns, columns), MOST_SENT)
    height = min(rows - row, _count(window.rows, rows))
    others = max(1, math.prod(values.shape[:-2]))
    height = min(height, max(1, MOST_SENT // max(1, width * others)))
    part = values[..., row : row + height, column : column + width].to(torch.float32).contiguous()
    header = {
        **header,
        "shape": list(values.shape),
        "from": [row, column],
        "sent": list(part.shape),
    }
    text = json.dumps(header, ensure_ascii=False, allow_nan=False).encode("utf-8")
    text += b" " * (-len(text) % 4)
    return struct.pack("<I", len(text)) + text + part.numpy().astype("<f4", copy=False).tobytes()


def unpack(data: bytes) -> tuple[dict[str, Any], Sequence[float]]:
    """What `pack` wrote: header and numbers."""
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length].decode("utf-8"))
    numbers = data[4 + length :]
    return header, struct.unpack(f"<{len(numbers) // 4}f", numbers)


def attention_input(traced: Traced, layer: int) -> Tensor:
    """What the attention of a block reads (T, d_model)."""
    return _sublayer_input(traced, layer, "norm1")


def feedforward_input(traced: Traced, layer: int) -> Tensor:
    """What the feed-forward layer of a block reads (T, d_model)."""
    block = block_of(traced, layer)
    if block.parallel:
        return _sublayer_input(traced, layer, "norm1")
    if block.placement == "post" and f"block.{layer}.norm1" in traced.values:
        return traced.values[f"block.{layer}.norm1"]
    if block.placement != "pre" and f"block.{layer}.residual1" in traced.values:
        return traced.values[f"block.{layer}.residual1"]
    return _sublayer_input(traced, layer, "norm2")


def block_of(traced: Traced, layer: int) -> Block:
    """A block of the traced model, from 0."""
    block = traced.model.blocks[layer]
    assert isinstance(block, Block)
    return block


def _sublayer_input(traced: Traced, layer: int, norm: str) -> Tensor:
    normed = traced.values.get(f"block.{layer}.{norm}")
    if normed is None or block_of(traced, layer).placement != "pre":
        return _block_input(traced, layer)
    return normed


def _block_input(traced: Traced, layer: int) -> Tensor:
    below = "embedding" if layer == 0 else f"block.{layer - 1}.output"
    x, shortcut = traced.values[below], traced.model.shortcut
    if shortcut is None:
        return x
    kept, added = shortcut[layer].detach().cpu()
    mixed: Tensor = kept * x + added * traced.values["embedding"]
    return mixed


def _of_block(traced: Traced, layer: int, what: str, head: int) -> Tensor | None:
    block = block_of(traced, layer)
    if what == "input":
        return _block_input(traced, layer)
    if what == "feedforward.hidden" and block.feedforward is not None:
        return _hidden(block.feedforward, feedforward_input(traced, layer))
    if block.attention is None or not 0 <= head < block.attention.n_heads:
        return None
    if what == "attention.weights":
        return traced.values[f"block.{layer}.attention.weights"][head]
    if what == "attention.joined":
        weights = traced.values[f"block.{layer}.attention.weights"]  # (H, T, T)
        v = _heads(traced, layer, block.attention)[2]
        v = v.repeat_interleave(weights.shape[0] // v.shape[0], dim=0)
        return (weights @ v).transpose(0, 1).flatten(1)  # (T, H * head_size)
    parts = {"attention.query": 0, "attention.key": 1, "attention.value": 2}
    if what not in parts:
        return None
    found = _heads(traced, layer, block.attention)[parts[what]]
    # Query head h reads the keys and values of head h // group.
    return found[head * found.shape[0] // block.attention.n_heads]


@torch.no_grad()
def _heads(traced: Traced, layer: int, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as they meet in the product: (heads, T, head_size) each."""
    device = attention.qkv.weight.device
    x = attention_input(traced, layer).to(device, attention.qkv.weight.dtype)
    heads = (attention.n_heads, attention.n_kv_heads, attention.n_kv_heads)
    qkv: Tensor = attention.qkv(x)
    qkv = qkv.view(x.shape[0], sum(heads), attention.head_size)
    q, k, v = qkv.split_with_sizes(heads, dim=1)  # (T, heads, head_size)
    if attention.query_norm is not None and attention.key_norm is not None:
        q, k = attention.query_norm(q), attention.key_norm(k)
    if traced.model.rotary is not None:
        turn = traced.model.rotary(torch.arange(x.shape[0], device=device))
        q, k = rotate(q, *turn), rotate(k, *turn)
    q, k, v = (each.float().cpu().transpose(0, 1) for each in (q, k, v))
    return q, k, v


@torch.no_grad()
def _hidden(feedforward: FeedForward, x: Tensor) -> Tensor:
    weight = feedforward.up.weight
    return feedforward.hidden(x.to(weight.device, weight.dtype)).float().cpu()


@torch.no_grad()
def _token_rows(traced: Traced) -> Tensor:
    weight = traced.model.token_embedding.weight
    rows = weight[torch.tensor(traced.ids, device=weight.device)].float().cpu()
    return rows * math.sqrt(traced.config.d_model) if traced.config.scale_embeddings else rows


@torch.no_grad()
def _position_rows(traced: Traced) -> Tensor | None:
    model, length = traced.model, len(traced.ids)
    for part in (model.position_embedding, model.sinusoidal):
        if part is not None:
            device = model.token_embedding.weight.device
            rows: Tensor = part(torch.arange(length, device=device))
            return rows.float().cpu()
    return None


def _ngram_rows(traced: Traced) -> Tensor | None:
    if traced.model.ngram_tables is None:
        return None
    rest = traced.values["embedding"] - _token_rows(traced)
    place = _position_rows(traced)
    return rest if place is None else rest - place


def _count(wanted: int | None, most: int) -> int:
    return most if wanted is None else max(0, wanted)


def _plain(values: Tensor) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]
