"""The original Transformer: a source in, and for each token of the target the next one's scores."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from partwise.errors import PartwiseError
from partwise.model.attention import Attention, Implementation
from partwise.model.block import Observe, Sight
from partwise.model.cache import KVCache
from partwise.model.cross_attention import CrossAttention
from partwise.model.decoder import Decoder, DecoderCache, KeysValues
from partwise.model.dropout import dropout
from partwise.model.encoder import Encoder
from partwise.model.head import TiedHead
from partwise.model.initialisation import initialise
from partwise.model.mask import attention_mask
from partwise.model.position import Rotary, Sinusoidal, fill_tables
from partwise.model.seq2seq_config import Seq2SeqConfig


class Seq2Seq(nn.Module):
    """logits = head(decoder(embedding(target), encoder(embedding(source)))).

    The embedding of a token is its row of the table times the root of d_model, plus its position's.
    A part that the config leaves out is None.

    Args:
        config: the model's shape and parts.
        implementation: how attention is computed, "sdpa" or "plain".

    Source: Vaswani et al. (2017), section 3.
    """

    def __init__(self, config: Seq2SeqConfig, implementation: Implementation = "sdpa") -> None:
        super().__init__()
        self.config = config
        width, length = config.d_model, config.context_length
        self.token_embedding = nn.Embedding(config.vocab_size, width)
        self.target_embedding = (
            None if config.share_embeddings else nn.Embedding(config.vocab_size, width)
        )
        learned = config.position == "learned"
        self.source_position_embedding = nn.Embedding(length, width) if learned else None
        self.target_position_embedding = nn.Embedding(length, width) if learned else None
        self.sinusoidal = Sinusoidal(length, width) if config.position == "sinusoidal" else None
        self.rotary = (
            Rotary(config.encoder.head_size, length, config.rope_base)
            if config.position == "rotary"
            else None
        )
        self.encoder = Encoder(config.encoder)
        self.decoder = Decoder(config.decoder)
        self.head: nn.Linear | TiedHead = (
            TiedHead(self._table(target=True), config.head_bias)
            if config.tie_embeddings
            else nn.Linear(width, config.vocab_size, bias=config.head_bias)
        )
        self.use_attention(implementation)
        initialise(
            self,
            config.initialisation,
            std=config.init_std,
            n_layers=config.n_encoder_layers + config.n_decoder_layers,
            tied=config.tie_embeddings,
        )
        after_loading: Callable[..., object] = self.register_load_state_dict_post_hook
        after_loading(fill_tables)

    def forward(
        self, source: Tensor, target: Tensor | None = None, observe: Observe | None = None
    ) -> Tensor:
        """Score every token as the next one of the target, after each token of it.

        Args:
            source: token numbers (B, S), int64, END after the text and PAD after that.
            target: token numbers (B, T), START first; PAD behind a shorter one.
            observe: is given each intermediate value by its name (see `trace.py`).

        A training loop that hands over one tensor gives both side by side, (B, 2, L), as `source`.

        Returns:
            Logits (B, T, vocab_size).

        Raises:
            PartwiseError: the numbers have the wrong shape or format, or a text is too long.
        """
        if target is None:
            self._check(source, dimensions=3)
            source, target = source.unbind(1)
        memory = self.encode(source, observe)
        return self.decode(target, memory, source != self.config.pad, observe=observe)

    def encode(self, source: Tensor, observe: Observe | None = None) -> Tensor:
        """The memory (B, S, d_model) of a source (B, S)."""
        self._check(source)
        note = _prefixed("encoder", observe)
        positions = torch.arange(source.shape[1], device=source.device)  # (S,)
        x = self._embed(source, positions, target=False)
        if note is not None:
            note("embedding", x)
        memory: Tensor = self.encoder(x, source != self.config.pad, self._rotation(positions), note)
        return memory

    def decode(
        self,
        target: Tensor,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: DecoderCache | None = None,
        observe: Observe | None = None,
    ) -> Tensor:
        """Logits (B, T, vocab_size) after each token of a target.

        Args:
            target: token numbers (B, T), START first; with a cache, what follows what it has read.
            memory: what `encode` returned; with a cache, None.
            memory_mask: (B, S), true for tokens, false for padding.
            cache: what `new_cache` made; the tokens are added to it.
            observe: is given each intermediate value by its name.

        Raises:
            SamplingError: `target` does not fit the cache.
        """
        self._check(target)
        note = _prefixed("decoder", observe)
        step = None
        read: Tensor | list[KeysValues]
        if cache is None:
            assert memory is not None
            read = memory
            positions = torch.arange(target.shape[1], device=target.device)  # (T,)
        else:
            read, memory_mask = cache.memory, cache.memory_mask
            step = cache.past.begin(target)
            positions = step.positions
        x = self._embed(target, positions, target=True)
        if note is not None:
            note("embedding", x)
        mask, causal = attention_mask(positions, step)
        sight = Sight(mask, causal, self._rotation(positions), step)
        x = self.decoder(x, sight, read, memory_mask, note)
        if step is not None:
            step.finish()
        logits: Tensor = self.head(x)
        if observe is not None:
            observe("logits", logits)
        return logits

    @torch.no_grad()
    def new_cache(self, source: Tensor, capacity: int | None = None) -> DecoderCache:
        """Read a source (B, S) once, for as many tokens of its target as will be asked for.

        Args:
            source: token numbers, as `forward` takes them.
            capacity: longest target (tokens, START among them); none: context_length.
        """
        memory = self.encode(source)
        past = KVCache(self.config.decoder, source.shape[0], capacity, memory.device, memory.dtype)
        return DecoderCache(past, self.decoder.keys_values(memory), source != self.config.pad)

    def use_attention(self, implementation: Implementation) -> None:
        """Compute attention by "sdpa" (fused and fast) or "plain" (as the formula reads)."""
        for module in self.modules():
            if isinstance(module, Attention | CrossAttention):
                module.implementation = implementation

    def _table(self, *, target: bool) -> nn.Embedding:
        if target and self.target_embedding is not None:
            return self.target_embedding
        return self.token_embedding

    def _embed(self, ids: Tensor, positions: Tensor, *, target: bool) -> Tensor:
        config = self.config
        x: Tensor = self._table(target=target)(ids)  # (B, T, d_model)
        if config.scale_embeddings:
            x = x * math.sqrt(config.d_model)
        learned = self.target_position_embedding if target else self.source_position_embedding
        if learned is not None:
            x = x + learned(positions)
        if self.sinusoidal is not None:
            x = x + self.sinusoidal(positions)
        return dropout(x, config.embedding_dropout, self.training)

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        if self.rotary is None:
            return None
        rotation: tuple[Tensor, Tensor] = self.rotary(positions)
        return rotation

    def _check(self, ids: Tensor, dimensions: int = 2) -> None:
        if ids.dim() != dimensions:
            raise PartwiseError(
                "the model reads a source (texts, tokens) and a target (texts, tokens), or both "
                "side by side (texts, 2, tokens), not {shape}; add or remove a dimension",
                shape=tuple(ids.shape),
            )
        if ids.dtype != torch.int64:
            raise PartwiseError(
                "token ids must be int64, not {dtype}; convert them with ids.long()",
                dtype=str(ids.dtype).removeprefix("torch."),
            )
        if ids.shape[-1] > self.config.context_length:
            raise PartwiseError(
                "{tokens} tokens are more than context_length={context_length}; give a shorter "
                "text, or a model with a longer context",
                tokens=ids.shape[-1],
                context_length=self.config.context_length,
            )


def _prefixed(side: str, observe: Observe | None) -> Observe | None:
    if observe is None:
        return None
    return lambda name, value: observe(f"{side}.{name}", value)
