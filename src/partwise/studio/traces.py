"""One forward pass of one text, kept whole for a while, so that every view of it is only a look."""

import secrets
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from partwise.errors import GoneError
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.model.trace import trace
from partwise.studio.reading import Label, Reading, read_text
from partwise.studio.recent import Recent
from partwise.text.tokenizers import Tokenizer

# What one trace may hold, and all that are kept together (bytes).
MOST_BYTES = 2**30

# Figures that are kept beside one trace: those of a model of 12 layers and 12 heads, all of them.
FIGURES = 512


@dataclass(eq=False)
class Traced:
    """Every intermediate value of one text, on the CPU and in float32.

    Args:
        key: names it.
        model: what was traced; a twin of its own that nobody changes, so that many may read it.
        tokenizer: cuts its text.
        reading: the text's tokens.
        values: as `model.trace.trace` names them, without the dimension of texts.
        seconds: what the forward pass took.
        figures: what was found out about a tensor, by name and head: the last `FIGURES`.
    """

    key: str
    model: GPT
    tokenizer: Tokenizer
    reading: Reading
    values: dict[str, Tensor]
    seconds: float
    figures: Recent[tuple[str, int], dict[str, Any]] = field(
        default_factory=lambda: Recent(FIGURES)
    )

    @property
    def config(self) -> ModelConfig:
        """The model's, with the mask that was traced."""
        return self.model.config

    @property
    def ids(self) -> tuple[int, ...]:
        """The text's tokens."""
        return self.reading.ids

    @property
    def labels(self) -> tuple[Label, ...]:
        """Their names."""
        return self.reading.labels

    @property
    def bytes(self) -> int:
        """What it holds in memory."""
        return sum(value.numel() * value.element_size() for value in self.values.values())

    @property
    def scored(self) -> int:
        """Tokens that may come next: a model may have more rows than its tokenizer has tokens."""
        return min(self.config.vocab_size, self.tokenizer.vocab_size)


def trace_text(
    model: GPT, tokenizer: Tokenizer, text: str, *, most_bytes: int = MOST_BYTES
) -> Traced:
    """Read `text` once and keep everything.

    Args:
        model: any GPT; it is left as it was.
        tokenizer: its own.
        text: any text; see `read_text`.
        most_bytes: a text whose trace would hold more is cut.

    Raises:
        TextError: nothing is left of the text.
        SamplingError: the tokenizer is not the model's.
    """
    most = most_tokens(model.config, most_bytes)
    reading = read_text(text, tokenizer, vocab_size=model.config.vocab_size, most=most)
    return trace_ids(model, tokenizer, reading)


def trace_ids(model: GPT, tokenizer: Tokenizer, reading: Reading) -> Traced:
    """As `trace_text`, of tokens."""
    device = model.token_embedding.weight.device
    ids = torch.tensor([reading.ids], device=device)  # (1, T)
    start = time.perf_counter()
    seen = trace(model, ids)
    values = {name: value[0].float().cpu() for name, value in seen.items()}
    seconds = time.perf_counter() - start
    return Traced(secrets.token_hex(8), model, tokenizer, reading, values, seconds)


def twin(model: GPT, causal: bool | None = None) -> GPT:
    """A model of its own that shares the weights, so that it can be changed while others use them.

    Args:
        model: any GPT.
        causal: with the mask (True) or without (False); None: as the model has it.
    """
    config = model.config
    if causal is not None and causal != config.causal:
        # A window looks back from each token and means nothing without the mask.
        config = replace(config, causal=causal, window=config.window if causal else None)
    return rebuilt(model, config)


def rebuilt(model: GPT, config: ModelConfig) -> GPT:
    """A model of another config with the very same weights, in evaluation mode.

    Args:
        model: whose weights it shares.
        config: needs the same ones.
    """
    with torch.device("meta"):
        other = GPT(config)
    other.load_state_dict(model.state_dict(), assign=True)
    return other.eval()


def traced_bytes(config: ModelConfig, tokens: int) -> int:
    """What a trace of so many tokens holds, at most."""
    streams = 2 + 7 * config.n_layers
    maps = config.n_layers * config.n_heads * tokens**2 if config.attention else 0
    return 4 * (tokens * (streams * config.d_model + config.vocab_size) + maps)


def most_tokens(config: ModelConfig, most_bytes: int = MOST_BYTES) -> int:
    """The longest text, up to the context, whose trace holds no more than `most_bytes`."""
    low, high = 1, config.context_length
    while low < high:
        middle = (low + high + 1) // 2
        if traced_bytes(config, middle) <= most_bytes:
            low = middle
        else:
            high = middle - 1
    return low


class Twins:
    """One twin for each model and mask, made when it is first asked for."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[GPT, dict[bool, GPT]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, model: GPT, causal: bool | None = None) -> GPT:
        """The twin of `model` (see `twin`)."""
        causal = model.config.causal if causal is None else causal
        with self._lock:
            mine = self._known.setdefault(model, {})
            if causal not in mine:
                mine[causal] = twin(model, causal)
            return mine[causal]


class Traces:
    """The last traces, as many as their bytes allow; the newest is always kept.

    Args:
        most_bytes: what all of them may hold together.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.twins = Twins()
        self._most = most_bytes
        self._kept: Recent[str, Traced] = Recent(most_bytes, lambda traced: traced.bytes)

    def trace(
        self, model: GPT, tokenizer: Tokenizer, text: str, causal: bool | None = None
    ) -> tuple[Traced, bool]:
        """The trace of `text`, and whether it was at hand.

        Args:
            model: any GPT.
            tokenizer: its own.
            text: any text.
            causal: see `twin`.
        """
        own = self.twins.of(model, causal)
        most = most_tokens(own.config, self._most)
        reading = read_text(text, tokenizer, vocab_size=own.config.vocab_size, most=most)
        for key, known in self._kept.items():
            if known.model is own and known.ids == reading.ids:
                self._kept.get(key)
                return replace(known, reading=reading), True
        made = trace_ids(own, tokenizer, reading)
        return self._kept.put(made.key, made), False

    def get(self, key: str) -> Traced:
        """The trace with that key.

        Raises:
            GoneError: it is no longer kept.
        """
        known = self._kept.get(key)
        if known is None:
            raise GoneError("this trace is no longer kept; read the text again")
        return known
