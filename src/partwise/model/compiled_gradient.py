"""The loss of a GPT and its gradient as machine code: `gradient.c`, for training on a CPU.

What the model, cross-entropy and autograd say operation by operation, in one call.
"""

import ctypes
import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from partwise.machine import registers
from partwise.machine.facts import cpu_features
from partwise.model import compiled_attention
from partwise.model.attention import Attention
from partwise.model.block import Block
from partwise.model.config import ModelConfig
from partwise.model.dropout import dropped, kept_scale
from partwise.model.feedforward import FeedForward
from partwise.model.gpt import GPT
from partwise.model.head import TiedHead
from partwise.model.ngram import NgramTable
from partwise.model.norm import LayerNorm, RMSNorm
from partwise.model.parameters import count_parameters
from partwise.model.position import Rotary

SOURCE = registers.source(Path(__file__).with_name("gradient.c"))

# Bytes of a line of the cache, where memory for C begins.
_LINE = 64

# A token's scores are all kept in a core's cache.
_LARGEST_VOCABULARY = 4096

# Beyond this width torch's products in bfloat16 should win where a processor has AMX, which it uses
# and `gradient.c` does not. No such processor was at hand.
_NARROW_FOR_AMX = 128

_NORMS = {"layernorm": 1, "rmsnorm": 2}
_ACTIVATIONS = {"relu": 1, "gelu": 2, "gelu_tanh": 3, "relu2": 4, "swiglu": 5}

_PARTS = frozenset(
    {
        *(GPT, Block, Attention, FeedForward, nn.Linear, TiedHead, nn.Embedding, NgramTable),
        *(LayerNorm, RMSNorm, Rotary, nn.ModuleList),
    }
)

_INT, _REAL, _PLACE = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class _Norm(ctypes.Structure):
    _fields_ = [(name, _PLACE) for name in ("weight", "bias", "of_weight", "of_bias")]


class _Matrix(ctypes.Structure):
    _fields_ = [*_Norm._fields_, ("rows", _INT), ("columns", _INT)]


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, _Norm) for name in ("norm1", "norm2")),
        *((name, _Matrix) for name in ("qkv", "projection", "up", "gate", "down")),
        *((name, _PLACE) for name in ("of_query", "of_key", "of_query_slope", "of_key_slope")),
    ]


class _Table(ctypes.Structure):
    _fields_ = [("rows", _PLACE), ("slope", _PLACE), ("count", _INT), ("n", _INT)]


class _Model(ctypes.Structure):
    _fields_ = [
        *(
            (name, _INT)
            for name in (
                *("layers", "width", "heads", "head_size", "inner", "vocab", "texts", "length"),
                *("threads", "norm", "activation", "tables", "halves"),
                *("dropped", "weights_dropped", "embedding_dropped"),
            )
        ),
        *((name, _REAL) for name in ("kept", "weights_kept", "embedding_kept")),
        ("seed", ctypes.c_uint64),
        *((name, _REAL) for name in ("eps", "scale")),
        *((name, _PLACE) for name in ("shares", "of_shares", "table", "layer")),
        ("final_norm", _Norm),
        ("head", _Matrix),
        ("tied", _INT),
        *((name, _PLACE) for name in ("cosine", "sine", "inputs", "targets")),
    ]


def serves(config: ModelConfig, dtype: torch.dtype) -> bool:
    """Whether a model is of parts that `gradient.c` has, on a processor that it is written for.

    Args:
        config: of the model.
        dtype: what its matrix products are computed in.
    """
    parts = (
        config.norm in _NORMS
        and config.norm_placement == "pre"
        and config.residual
        and not config.parallel
        and config.feedforward in _ACTIVATIONS
        and config.feedforward_output
        and config.output_projection
        and config.position in ("learned", "rotary", "none")
        and config.logit_soft_cap is None
        and config.vocab_size <= _LARGEST_VOCABULARY
    )
    widths = (config.d_model, config.n_heads * config.head_size)
    whole = all(width % registers.WHOLE == 0 for width in widths)
    products = dtype == torch.float32 or (dtype == torch.bfloat16 and has_halves())
    if dtype == torch.bfloat16 and "amx_bf16" in cpu_features().split():
        products = products and config.d_model <= _NARROW_FOR_AMX
    return bool(parts and whole and products) and compiled_attention.serves(config)


def has_halves() -> bool:
    """Whether this processor multiplies bfloat16 as `gradient.c` does."""
    return registers.are_longest() and "avx512_bf16" in cpu_features().split()


def is_plain(model: GPT) -> bool:
    """Whether a model is float32 on the CPU, all of it learning, and as its config builds it.

    Somebody may have put another part in, let two parts share a weight, or changed what a part
    goes by.
    """
    config = model.config
    weights = [p for _, p in model.named_parameters(remove_duplicate=False)]
    learning = all(
        p.requires_grad and p.dtype == torch.float32 and p.is_contiguous() and p.is_cpu
        for p in weights
    )
    shared = len({id(p) for p in weights}) < len(weights)
    whole = sum(p.numel() for p in weights) == count_parameters(config)
    known = all(type(part) in _PARTS for part in model.modules())
    norms = (part for part in model.modules() if isinstance(part, LayerNorm | RMSNorm))
    return (
        learning
        and whole
        and known
        and not shared
        and all(norm.eps == config.norm_eps for norm in norms)
        and all(_is_as_built(block, config) for block in model.blocks)
    )


def _is_as_built(block: nn.Module, config: ModelConfig) -> bool:
    assert isinstance(block, Block)
    attention, feedforward = block.attention, block.feedforward
    assert attention is not None and feedforward is not None
    width, inner, joined = config.d_model, config.inner_width, config.n_heads * config.head_size
    shapes = {
        attention.qkv: (3 * joined, width),
        attention.projection: (width, joined),
        feedforward.up: (inner, width),
        feedforward.gate: (inner, width),
        feedforward.down: (width, inner),
    }
    return (
        all(part is None or part.weight.shape == shape for part, shape in shapes.items())
        and (attention.n_heads, attention.head_size) == (config.n_heads, config.head_size)
        and feedforward.kind == config.feedforward
        and attention.implementation == "sdpa"
        and attention.dropout == config.attention_dropout_rate
        and block.dropout == config.dropout
    )


def computes_in(library: Path, dtype: torch.dtype) -> bool:
    """Whether a library has products in this precision: an old compiler knows none in bfloat16."""
    return dtype == torch.float32 or bool(loaded(library).partwise_gradient_halves())


@functools.cache
def loaded(library: Path) -> ctypes.CDLL:
    """The functions of a compiled `gradient.c`.

    Raises:
        OSError: it cannot be loaded; a file system may forbid it.
    """
    functions = ctypes.CDLL(str(library))
    for each in (functions.partwise_gradient_lanes, functions.partwise_gradient_halves):
        each.argtypes = []
        each.restype = _INT
    functions.partwise_gradient_room.argtypes = [_PLACE]
    functions.partwise_gradient_room.restype = _INT
    functions.partwise_gradient.argtypes = [_PLACE, _PLACE, _INT]
    functions.partwise_gradient.restype = _REAL
    return functions


class CompiledGradient:
    """The loss of a model, and its gradient; `gradients` are those of the parameters, in order.

    Args:
        model: float32 on the CPU, of a kind that `serves` and `is_plain` know.
        library: of `SOURCE`.
        dtype: what matrix products are computed in, float32 or bfloat16; sums are float32.
    """

    def __init__(self, model: GPT, library: Path, dtype: torch.dtype) -> None:
        assert serves(model.config, dtype) and is_plain(model)
        self._model = model
        self._functions = loaded(library)
        self._halves = dtype == torch.bfloat16
        self._parameters = list(model.parameters())
        self.gradients = [torch.empty_like(parameter) for parameter in self._parameters]
        self._described: dict[tuple[int, ...], _Described] = {}
        self._room = torch.empty(0, dtype=torch.uint8, device="cpu")

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor | None:
        """Mean of -log softmax(logits)[target] over the targets that are not below 0.

        Args:
            inputs: token ids (B, T).
            targets: the ids that follow them (B, T).

        Returns:
            The loss; None where the model has to say what is wrong, as with an id outside the
            vocabulary or a text longer than its context, or where it was changed since.
        """
        return self._compute(inputs, targets, False)

    def backward(self, inputs: Tensor, targets: Tensor) -> Tensor | None:
        """As `loss`; every parameter is given its gradient, in place of what it had.

        The gradients are the same tensors each time.
        """
        loss = self._compute(inputs, targets, True)
        if loss is not None:
            for parameter, gradient in zip(self._parameters, self.gradients, strict=True):
                parameter.grad = gradient
        return loss

    def _compute(self, inputs: Tensor, targets: Tensor, back: bool) -> Tensor | None:
        whole = inputs.shape == targets.shape and inputs.dtype == targets.dtype == torch.int64
        if not whole or inputs.ndim != 2 or inputs.shape[1] > self._model.config.context_length:
            return None
        inputs, targets = inputs.contiguous(), targets.contiguous()
        described = self._describe(inputs.shape)
        if described is None:
            return None
        model = described.model
        model.inputs, model.targets = inputs.data_ptr(), targets.data_ptr()
        self._drop(model)
        # Kept from step to step: so large a piece the system would clear anew each time.
        if len(self._room) < described.room:
            self._room = torch.empty(described.room, dtype=torch.uint8, device="cpu")
        place = -(-self._room.data_ptr() // _LINE) * _LINE
        loss = self._functions.partwise_gradient(ctypes.byref(model), place, back)
        return None if loss < 0 else torch.tensor(loss, dtype=torch.float32, device="cpu")

    def _drop(self, model: _Model) -> None:
        """What is dropped in training follows from torch's seed, as it does in the model itself."""
        config, places = self._model.config, ("", "weights_", "embedding_")
        rates = (config.dropout, config.attention_dropout_rate, config.embedding_dropout)
        drops = self._model.training and any(rates)
        for name, rate in zip(places, rates, strict=True):
            here = drops and rate > 0
            setattr(model, f"{name}dropped", dropped(rate) if here else 0)
            setattr(model, f"{name}kept", kept_scale(rate) if here else 1.0)
        model.seed = int(torch.randint(2**63 - 1, (), device="cpu")) if drops else 0

    def _describe(self, shape: torch.Size) -> "_Described | None":
        """The model as `gradient.c` reads it for batches of this shape; None: it no longer can."""
        threads = torch.get_num_threads()
        key = (*shape, threads, *(parameter.data_ptr() for parameter in self._parameters))
        if key not in self._described:
            if not is_plain(self._model):
                return None
            model, kept = _described(self._model, self._slopes(), shape, threads, self._halves)
            room = self._functions.partwise_gradient_room(ctypes.byref(model)) + _LINE
            # Weights that were put elsewhere leave their old places for good.
            self._described = {k: d for k, d in self._described.items() if k[3:] == key[3:]}
            self._described[key] = _Described(model, room, kept)
        return self._described[key]

    def _slopes(self) -> dict[int, Tensor]:
        pairs = zip(self._parameters, self.gradients, strict=True)
        return {id(parameter): gradient for parameter, gradient in pairs}


class _Described(NamedTuple):
    """A model for batches of one shape, the bytes that a step needs, and what must live as long."""

    model: _Model
    room: int
    kept: list[Any]


def _described(
    model: GPT, slopes: dict[int, Tensor], shape: torch.Size, threads: int, halves: bool
) -> tuple[_Model, list[Any]]:
    config = model.config

    def place(tensor: Tensor | None) -> int | None:
        return None if tensor is None else tensor.data_ptr()

    def slope(parameter: Tensor | None) -> int | None:
        return None if parameter is None else slopes[id(parameter)].data_ptr()

    def norm(part: nn.Module | None) -> _Norm:
        if part is None:
            return _Norm()
        assert isinstance(part, LayerNorm | RMSNorm)
        bias = getattr(part, "bias", None)
        return _Norm(place(part.weight), place(bias), slope(part.weight), slope(bias))

    def matrix(part: nn.Module | None) -> _Matrix:
        assert isinstance(part, nn.Linear | TiedHead)
        weight, bias = part.weight, part.bias
        return _Matrix(
            place(weight), place(bias), slope(weight), slope(bias), *map(int, weight.shape)
        )

    def layer(block: nn.Module) -> _Layer:
        assert isinstance(block, Block)
        attention, feedforward = block.attention, block.feedforward
        assert isinstance(attention, Attention) and isinstance(feedforward, FeedForward)
        norms = [attention.query_norm, attention.key_norm]
        scales = [None if part is None else part.weight for part in norms]
        return _Layer(
            norm(block.norm1),
            norm(block.norm2),
            matrix(attention.qkv),
            matrix(attention.projection),
            matrix(feedforward.up),
            _Matrix() if feedforward.gate is None else matrix(feedforward.gate),
            matrix(feedforward.down),
            *map(place, scales),
            *map(slope, scales),
        )

    def table(part: nn.Embedding, n: int) -> _Table:
        return _Table(place(part.weight), slope(part.weight), len(part.weight), n)

    tables = [table(model.token_embedding, 1)]
    if model.position_embedding is not None:
        tables.append(table(model.position_embedding, 0))
    for part in model.ngram_tables or ():
        assert isinstance(part, NgramTable)
        tables.append(table(part, part.n))
    layers = [layer(block) for block in model.blocks]
    all_tables, all_layers = (_Table * len(tables))(*tables), (_Layer * len(layers))(*layers)
    texts, length = shape
    turns: list[Tensor] = []
    if model.rotary is not None:
        found = model.rotary(torch.arange(length, device="cpu"))
        turns = [compiled_attention.in_vectors(part) for part in found]
    cosine, sine = map(place, turns) if turns else (None, None)
    described = _Model(
        layers=len(layers),
        width=config.d_model,
        heads=config.n_heads,
        head_size=config.head_size,
        inner=config.inner_width,
        vocab=config.vocab_size,
        texts=texts,
        length=length,
        threads=threads,
        norm=_NORMS[config.norm],
        activation=_ACTIVATIONS[config.feedforward],
        tables=len(tables),
        halves=halves,
        eps=config.norm_eps,
        scale=math.sqrt(config.d_model) if config.scale_embeddings else 1.0,
        shares=place(model.shortcut),
        of_shares=slope(model.shortcut),
        table=ctypes.addressof(all_tables),
        layer=ctypes.addressof(all_layers),
        final_norm=norm(model.final_norm),
        head=matrix(model.head),
        tied=config.tie_embeddings,
        cosine=cosine,
        sine=sine,
    )
    return described, [all_tables, all_layers, *turns]
