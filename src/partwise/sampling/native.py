"""The step of sampling as machine code: `step.c`, compiled once a machine, for every model.

Said one operation after the other from Python, a token of a small model is mostly the starting of
operations. The C file does the whole of it, many tokens a call, on the tensors of the model and of
its cache.
"""

import ctypes
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor, nn

from partwise.machine.library import Source
from partwise.machine.pages import LargePages
from partwise.model.attention import Attention
from partwise.model.block import Block
from partwise.model.cache import KVCache
from partwise.model.config import ModelConfig
from partwise.model.feedforward import FeedForward
from partwise.model.gpt import GPT
from partwise.model.head import TiedHead
from partwise.model.ngram import NgramTable
from partwise.model.norm import BatchNorm, LayerNorm, RMSNorm
from partwise.model.position import Alibi, Rotary, Sinusoidal
from partwise.sampling.choose import MAXIMUM_TEMPERATURE, MINIMUM_TEMPERATURE
from partwise.sampling.config import SampleConfig

STEP = Source(Path(__file__).with_name("step.c"))

_INT, _REAL, _FLOAT, _PLACE = ctypes.c_int64, ctypes.c_double, ctypes.c_float, ctypes.c_void_p
_ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "relu2", "swiglu")
_NORMS = ("none", "layernorm", "rmsnorm", "batchnorm")
_ORDERS, _PLACES, _KEPT, _AHEAD, _EDGES = 5, 8192, 15, 4, 20  # as in guesses.h

# Columns of a matrix that lie in pairs in bfloat16, and that share a scale in int8; see products.h.
_BLOCK, _QUADS = 32, 64

# Tokens of a call that say little about its pace.
FEW = 8

# What matrices may be held in.
Held = Literal["float32", "bfloat16", "int8"]


def kept_in(held: Held) -> torch.dtype:
    """What keys and values are kept in beside such matrices."""
    return torch.float32 if held == "float32" else torch.bfloat16


class _Matrix(ctypes.Structure):
    _fields_ = [
        *((name, _PLACE) for name in ("weights", "scales", "bias")),
        *((name, _INT) for name in ("rows", "columns", "bytes")),
    ]


class _Norm(ctypes.Structure):
    _fields_ = [("weight", _PLACE), ("bias", _PLACE)]


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, _Norm) for name in ("norm1", "norm2", "query_norm", "key_norm")),
        *((name, _Matrix) for name in ("qkv", "projection", "up", "gate", "down")),
        *((name, _PLACE) for name in ("keys", "values")),
        *((name, _FLOAT) for name in ("kept", "added")),
    ]


class _Model(ctypes.Structure):
    _fields_ = [
        *(
            (name, _INT)
            for name in (
                *("layers", "width", "heads", "kv_heads", "head_size", "inner", "vocab"),
                *("slots", "texts", "norm", "norm_first", "norm_last", "residual"),
                *("parallel", "activation", "shortcut", "ring", "window", "ngram"),
                *("halves",),
            )
        ),
        *((name, _REAL) for name in ("eps", "scale", "soft_cap")),
        *((name, _PLACE) for name in ("tokens", "positions", "ngrams", "ngram_rows")),
        *((name, _PLACE) for name in ("frequencies", "slopes", "layer")),
        ("final_norm", _Norm),
        ("head", _Matrix),
    ]


class _Choice(ctypes.Structure):
    _fields_ = [
        *((name, _INT) for name in ("choices", "greedy", "top_k")),
        *((name, _REAL) for name in ("temperature", "top_p", "min_p", "penalty")),
        ("seen", _PLACE),
    ]


class _Guesses(ctypes.Structure):
    _fields_ = [
        ("ends", ctypes.c_uint32 * (2 + 2 * _KEPT) * _PLACES * _ORDERS),
        ("last", ctypes.c_int32 * _ORDERS),
        ("less", _FLOAT * _EDGES),
        ("took", _FLOAT * (1 + _AHEAD)),
    ]


class NativeStep:
    """Tokens of B texts, many a call, by the compiled step.

    Args:
        library: of `STEP`.
        model: float32 on the CPU, of parts that `is_plain` knows.
        cache: the texts' keys and values; the step reads and writes them.
        config: how tokens are drawn.
        choices: tokens that may be drawn, the first of the vocabulary.
        seen: (B, choices) bool, for a repetition penalty.
        held: what the matrices are held in: half or a quarter of float32 is read for each token.
            In int8 those whose columns are no whole blocks of 64 are held in bfloat16.
    """

    def __init__(
        self,
        library: Path,
        model: GPT,
        cache: KVCache,
        config: SampleConfig,
        choices: int,
        seen: Tensor | None,
        *,
        held: Held = "float32",
    ) -> None:
        code = ctypes.CDLL(str(library))
        self._run = code.partwise_run
        self._run.restype = _INT
        self._run.argtypes = [*[_PLACE] * 3, *[_INT] * 4, *[_PLACE] * 3]
        # Whatever a pointer leads to is kept here for as long as the step is.
        self._kept: list[object] = [seen]
        self._held: Held = held
        # Memory for what is rounded: two bytes of a weight are the most that it comes to.
        weights = 0 if held == "float32" else sum(each.numel() for each in model.parameters())
        self._pages = LargePages(2 * weights)
        self._cache = cache
        self._ngram = model.config.ngram
        self._choice = _Choice(
            choices=choices,
            greedy=config.takes_likeliest or config.temperature < MINIMUM_TEMPERATURE,
            top_k=config.top_k or 0,
            temperature=min(config.temperature or 1.0, MAXIMUM_TEMPERATURE),
            top_p=1.0 if config.top_p is None else config.top_p,
            min_p=config.min_p or 0.0,
            penalty=config.repetition_penalty,
            seen=None if seen is None else seen.data_ptr(),
        )
        self._model = self._described(model)
        # Whether many tokens are read faster by the step than by the model's own code.
        self.reads = held != "float32" and bool(_INT.in_dll(code, "partwise_reads").value)
        self._guesses = _Guesses()
        # A thread for each megabyte: those of a smaller model would wait for each other.
        share = sum(weight.nbytes for weight in model.parameters()) // (1 << 20)
        threads = sorted({max(1, min(torch.get_num_threads(), share)), 1}, reverse=True)
        # In a ring a guess would take the place of a token that is still in sight.
        guessing = cache.batch_size == 1 and not cache.ring
        self.pace = Pace([Way(number, guessing) for number in threads])

    def __call__(self, new: Tensor, uniforms: Tensor) -> Tensor:
        """Read `new`, choose what follows, read that, and so on.

        Args:
            new: (B, T), what is not in the cache yet, the newest token of each text last.
            uniforms: (steps, B), a number for each choice.

        Returns:
            (steps, B) int64, the tokens chosen; -1 from where the scores are not numbers. The cache
            has the keys and values of `new` and of all but the last of them, and is not yet told.
        """
        steps = len(uniforms)
        # The last columns are room for guesses.
        columns = (self._cache.recent, new, new[:, -1:].expand(-1, _AHEAD))
        recent = torch.cat(columns, dim=1).contiguous()  # (B, ngram - 1 + T + ahead)
        uniforms = uniforms.contiguous()
        chosen = torch.empty(uniforms.shape, dtype=torch.int64, device="cpu")
        way = self.pace.way
        began = time.perf_counter()
        read = self._run(
            ctypes.byref(self._model),
            ctypes.byref(self._choice),
            ctypes.byref(self._guesses) if way.guessing else None,
            way.threads,
            self._cache.length,
            new.shape[1] - 1,
            steps,
            recent.data_ptr(),
            uniforms.data_ptr(),
            chosen.data_ptr(),
        )
        if read < 0:
            raise MemoryError
        # A call of few tokens is mostly the starting of threads.
        if steps >= FEW:
            self.pace.took(way, (time.perf_counter() - began - 1e-9 * read) / steps)
        return chosen

    def _described(self, model: GPT) -> _Model:
        config, cache = model.config, self._cache
        sinusoidal = None if model.sinusoidal is None else model.sinusoidal.table
        learned = None if model.position_embedding is None else model.position_embedding.weight
        tables: list[Any] = [] if model.ngram_tables is None else list(model.ngram_tables)
        layers = (_Layer * config.n_layers)(*map(self._layer, range(config.n_layers), model.blocks))
        factors = [] if model.shortcut is None else model.shortcut.tolist()
        for number, (kept, added) in enumerate(factors):
            layers[number].kept, layers[number].added = kept, added
        pointers = (_PLACE * len(tables))(*(self._place(table.weight) for table in tables))
        rows = (_INT * len(tables))(*(table.num_embeddings for table in tables))
        rotary = None
        if model.rotary is not None:
            rotary = (_REAL * len(model.rotary.exact))(*model.rotary.exact)
        self._kept += [layers, pointers, rows, rotary]
        first, last = (config.norm_placement == where for where in ("pre", "post"))
        return _Model(
            layers=config.n_layers,
            width=config.d_model,
            heads=config.n_heads,
            kv_heads=config.key_value_heads,
            head_size=config.head_size,
            inner=config.inner_width,
            vocab=config.vocab_size,
            slots=cache.slots,
            texts=cache.batch_size,
            norm=_NORMS.index(config.norm),
            norm_first=first,
            norm_last=last,
            residual=config.residual,
            parallel=config.parallel,
            activation=_ACTIVATIONS.index(config.feedforward),
            shortcut=model.shortcut is not None,
            ring=cache.ring,
            window=config.window or 0,
            ngram=config.ngram,
            halves=any(keys.dtype == torch.bfloat16 for keys in cache.keys),
            eps=config.norm_eps,
            scale=math.sqrt(config.d_model) if config.scale_embeddings else 1.0,
            soft_cap=config.logit_soft_cap or 0.0,
            tokens=self._place(model.token_embedding.weight),
            positions=self._place(learned if learned is not None else sinusoidal),
            ngrams=ctypes.cast(pointers, _PLACE),
            ngram_rows=ctypes.cast(rows, _PLACE),
            frequencies=None if rotary is None else ctypes.cast(rotary, _PLACE),
            slopes=None if model.alibi is None else self._place(model.alibi.slopes),
            layer=ctypes.cast(layers, _PLACE),
            final_norm=self._norm(model.final_norm),
            head=self._matrix(model.head),
        )

    def _layer(self, number: int, block: Any) -> _Layer:
        attention, feedforward = block.attention, block.feedforward
        layer = _Layer(norm1=self._norm(block.norm1), norm2=self._norm(block.norm2))
        if attention is not None:
            layer.query_norm = self._norm(attention.query_norm)
            layer.key_norm = self._norm(attention.key_norm)
            layer.qkv = self._matrix(attention.qkv)
            layer.projection = self._matrix(attention.projection)
            layer.keys = self._cache.keys[number].data_ptr()
            layer.values = self._cache.values[number].data_ptr()
        if feedforward is not None:
            layer.up = self._matrix(feedforward.up)
            layer.gate = self._matrix(feedforward.gate)
            layer.down = self._matrix(feedforward.down)
        return layer

    def _matrix(self, part: Any) -> _Matrix:
        if part is None:
            return _Matrix()
        weight: Tensor = part.weight.detach()
        rows, columns = weight.shape
        scales = None
        if self._held == "int8" and columns % _QUADS == 0:
            weight, scales = map(self._pages.keep, in_bytes(weight))
        elif self._held != "float32":
            pairs = columns // _BLOCK * _BLOCK
            halves = weight[:, :pairs].bfloat16().reshape(rows, -1, 2, _BLOCK // 2)
            paired = halves.transpose(-1, -2).reshape(rows, pairs)
            weight = self._pages.keep(torch.cat((paired, weight[:, pairs:].bfloat16()), dim=1))
        places = (self._place(weight), self._place(scales), self._place(part.bias))
        return _Matrix(*places, rows, columns, weight.nbytes // (rows * columns))

    def _norm(self, part: Any) -> _Norm:
        if part is None:
            return _Norm()
        if isinstance(part, BatchNorm):
            # With running statistics it is one multiplication and one addition.
            slope = part.weight / (part.running_var + part.eps).sqrt()
            shift = -part.running_mean * slope
            return _Norm(
                self._place(slope),
                self._place(shift if part.bias is None else shift + part.bias),
            )
        bias = part.bias if isinstance(part, LayerNorm) else None
        return _Norm(self._place(part.weight), self._place(bias))

    def _place(self, tensor: Tensor | None) -> int | None:
        """Where its numbers lie, in their own order."""
        if tensor is None:
            return None
        tensor = tensor.detach().contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()


def in_bytes(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix in int8, as products.h reads it: weight = v s, with an s for 64 columns of a row.

    s = max |weight| / 127, so that v is from -127 to 127 and half a unit off at most. Weights below
    1e-36 are taken for zero.

    Args:
        weight: (rows, columns), columns in whole blocks.

    Returns:
        v (rows, columns) int8 and s (rows, columns / 64) float32.

    Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022, section 2.1, for
    a scale of each block.
    """
    rows = len(weight)
    blocks = weight.view(rows, -1, _QUADS)
    scales = blocks.abs().amax(dim=2) / 127  # (rows, blocks)
    # What is no number stays none by its scale.
    numbers = (blocks / scales.clamp(min=1e-38)[..., None]).nan_to_num().round()
    return numbers.to(torch.int8).view(rows, -1), scales


def loaded(library: Path) -> Path:
    """The library, which this process has loaded.

    Raises:
        OSError: the system refuses to.
    """
    ctypes.CDLL(str(library))
    return library


@dataclass(frozen=True)
class Way:
    """How a call of the step goes about it; the tokens are the same.

    A row of a matrix is summed up by one thread, whichever, and in one order, whatever else is read
    in the same pass.

    Args:
        threads: that share the rows of each matrix.
        guessing: read guesses of the next tokens along with the newest (see `guesses.h`).
    """

    threads: int
    guessing: bool


class Pace:
    """The fastest way at the moment: another work may keep threads waiting, a text defy guesses.

    Every way is tried three times, then the fastest by the median of its last calls is taken; one
    call in sixteen tries another, in case the machine or the text has changed.

    Args:
        ways: to choose from.
    """

    TRIALS, AGAIN, REMEMBERED = 3, 16, 5

    # Tokens of a call that tries a way which may be slow.
    TRIED = 16

    def __init__(self, ways: Sequence[Way]) -> None:
        self._seconds = {way: deque[float](maxlen=self.REMEMBERED) for way in ways}
        self._calls = 0

    @property
    def way(self) -> Way:
        """For the next call."""
        tried = min(self._seconds, key=lambda way: len(self._seconds[way]))
        if len(self._seconds[tried]) < self.TRIALS:
            return tried
        best, *others = sorted(self._seconds, key=lambda way: median(self._seconds[way]))
        turn, now = divmod(self._calls, self.AGAIN)
        return others[turn % len(others)] if others and not now else best

    @property
    def most(self) -> int | None:
        """Tokens that the next call should say at most; None: as many as one likes."""
        if len(self._seconds) == 1:
            return None
        tries = any(len(seconds) < self.TRIALS for seconds in self._seconds.values())
        return self.TRIED if tries or self._calls % self.AGAIN == 0 else None

    def took(self, way: Way, seconds: float) -> None:
        """A token took this long."""
        self._seconds[way].append(seconds)
        self._calls += 1


# The settings of a model that the step follows, or that only training or building follows; a model
# that changes any other is left to its own code.
_KNOWN = """
    vocab_size context_length n_layers d_model attention n_heads n_kv_heads head_dim
    output_projection causal window qk_norm qkv_bias projection_bias feedforward d_ff
    feedforward_bias feedforward_output parallel norm norm_placement norm_bias norm_eps
    final_norm residual position rope_base rope_scaling rope_factor rope_low_frequency_factor
    rope_high_frequency_factor rope_original_context dropout attention_dropout
    embedding_dropout tie_embeddings head_bias logit_soft_cap scale_embeddings ngram ngram_rows
    embedding_shortcut initialisation init_std
"""


# The parts that the step follows, none of them a changed one.
_PARTS = (
    *(GPT, Block, Attention, FeedForward, TiedHead, NgramTable, LayerNorm, RMSNorm, BatchNorm),
    *(Sinusoidal, Rotary, Alibi, nn.Linear, nn.Embedding, nn.ModuleList),
)


def is_plain(model: GPT) -> bool:
    """Whether every part of a model is one that the step knows, and nobody listens inside."""
    new = {field.name for field in fields(model.config)} - set(_KNOWN.split())
    usual = ModelConfig()
    if any(getattr(model.config, name) != getattr(usual, name) for name in new):
        return False
    for part in model.modules():
        changed = part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part)
        if type(part) not in _PARTS or changed:
            return False
    tensors = [*model.parameters(), *model.buffers()]
    usual_tensors = all(type(tensor) in (Tensor, nn.Parameter) for tensor in tensors)
    return type(model) is GPT and usual_tensors and _is_as_configured(model)


def _is_as_configured(model: GPT) -> bool:
    """Whether every matrix has the shape that the settings say: the step's room is made for it."""
    config = model.config
    width, inner, joined = config.d_model, config.inner_width, config.n_heads * config.head_size
    wanted: dict[str, tuple[int, int]] = {}
    if config.attention:
        wanted["attention.qkv"] = (joined + 2 * config.key_value_heads * config.head_size, width)
        if config.output_projection:
            wanted["attention.projection"] = (width, joined)
    if config.feedforward != "none":
        wanted["feedforward.up"] = (inner, width)
        if config.feedforward == "swiglu":
            wanted["feedforward.gate"] = (inner, width)
        if config.feedforward_output:
            wanted["feedforward.down"] = (width, inner)
    found = [
        {
            name: tuple(part.weight.shape)
            for name, part in block.named_modules()
            if isinstance(part, nn.Linear)
        }
        for block in model.blocks
    ]
    tokens = (config.vocab_size, width)
    ends = (tuple(model.token_embedding.weight.shape), tuple(model.head.weight.shape))
    return found == [wanted] * config.n_layers and ends == (tokens, tokens)
