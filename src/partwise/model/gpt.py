"""GPT: token ids in, for each of them the scores of what comes next out."""

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from partwise.errors import PartwiseError
from partwise.model import lean
from partwise.model.attention import Attention, Implementation
from partwise.model.block import Block, Observe, Sight
from partwise.model.cache import KVCache, Step
from partwise.model.config import ModelConfig
from partwise.model.dropout import dropout
from partwise.model.feedforward import FeedForward
from partwise.model.head import TiedHead, soft_cap
from partwise.model.initialisation import initialise
from partwise.model.mask import attention_mask
from partwise.model.ngram import NgramTable
from partwise.model.norm import RMSNorm, make_norm
from partwise.model.position import Alibi, Rotary, Sinusoidal, fill_tables


class GPT(nn.Module):
    """logits = head(final_norm(block_N(… block_1(embedding(ids))))).

    The embedding of a token is its row of `token_embedding`, plus its position's (learned or
    sinusoidal), plus, for n = 2..ngram, the row of the n tokens that end there. A part that the
    config leaves out is None.

    Args:
        config: the model's shape and parts.
        implementation: how attention is computed, "sdpa" or "plain".

    Source: Radford et al. (2018), section 3.1, and (2019), section 2.3.
    """

    def __init__(self, config: ModelConfig, implementation: Implementation = "sdpa") -> None:
        super().__init__()
        self.config = config
        self.lean = False
        width, length = config.d_model, config.context_length
        self.token_embedding = nn.Embedding(config.vocab_size, width)
        self.position_embedding = (
            nn.Embedding(length, width) if config.position == "learned" else None
        )
        self.sinusoidal = Sinusoidal(length, width) if config.position == "sinusoidal" else None
        heads = config.attention
        self.rotary = (
            Rotary(
                config.head_size,
                length,
                config.rope_base,
                config.rope_scaling,
                config.rope_factor,
                config.rope_low_frequency_factor,
                config.rope_high_frequency_factor,
                config.rope_original_context,
            )
            if heads and config.position == "rotary"
            else None
        )
        self.alibi = Alibi(config.n_heads) if heads and config.position == "alibi" else None
        self.ngram_tables = (
            nn.ModuleList(
                NgramTable(n, config.vocab_size, config.ngram_table_rows(n), width)
                for n in range(2, config.ngram + 1)
            )
            if config.ngram > 1
            else None
        )
        self.shortcut = None
        if config.embedding_shortcut:
            self.shortcut = nn.Parameter(torch.tensor([1.0, 0.0]).repeat(config.n_layers, 1))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.final_norm = None
        if config.final_norm:
            self.final_norm = make_norm(config.norm, width, config.norm_eps, config.norm_bias)
        self.head: nn.Linear | TiedHead = (
            TiedHead(self.token_embedding, config.head_bias)
            if config.tie_embeddings
            else nn.Linear(width, config.vocab_size, bias=config.head_bias)
        )
        self.use_attention(implementation)
        initialise(
            self,
            config.initialisation,
            std=config.init_std,
            n_layers=config.n_layers,
            tied=config.tie_embeddings,
        )
        after_loading: Callable[..., object] = self.register_load_state_dict_post_hook
        after_loading(fill_tables)

    def forward(
        self, ids: Tensor, cache: KVCache | None = None, observe: Observe | None = None
    ) -> Tensor:
        """Score every token as the next one, after each token of `ids`.

        Args:
            ids: token numbers (B, T), int64.
            cache: what was read before; `ids` go on from there and are added to it.
            observe: is given each intermediate value by its name (see `trace.py`).

        Returns:
            Logits (B, T, vocab_size).

        Raises:
            PartwiseError: `ids` has the wrong shape or number format, is longer than the model
                reads, or (on the CPU) holds a number outside the vocabulary.
            SamplingError: `ids` do not fit the cache.
        """
        return self.logits(self.hidden(ids, cache, observe), observe)

    def hidden(
        self, ids: Tensor, cache: KVCache | None = None, observe: Observe | None = None
    ) -> Tensor:
        """The residual stream as the output layer reads it: as `forward`, but (B, T, d_model)."""
        self._check(ids)
        step = None if cache is None else cache.begin(ids)
        if step is None:
            positions = torch.arange(ids.shape[1], device=ids.device)  # (T,)
        else:
            positions = step.positions
        embedded = self._embed(ids, positions, cache)
        if observe is not None:
            observe("embedding", embedded)
        sight = self._sight(positions, step)
        x = embedded
        for layer, block in enumerate(self.blocks):
            if self.shortcut is not None:
                if self.lean:
                    x = lean.blend(x.to(embedded.dtype), embedded, self.shortcut[layer])
                else:
                    kept, added = self.shortcut[layer]
                    x = kept * x + added * embedded
            x = block(x, sight, layer, observe)  # (B, T, d_model)
        if step is not None:
            step.finish()
        if self.final_norm is not None:
            x = self.final_norm(x)
            if observe is not None:
                observe("final_norm", x)
        return x

    def logits(self, x: Tensor, observe: Observe | None = None) -> Tensor:
        """What `hidden` returned, or some of its tokens, turned into scores.

        Args:
            x: (..., d_model).
            observe: is given the result.

        Returns:
            (..., vocab_size).
        """
        scores: Tensor = self.head(x)
        if self.config.logit_soft_cap is not None:
            scores = soft_cap(scores, self.config.logit_soft_cap)
        if observe is not None:
            observe("logits", scores)
        return scores

    def new_cache(
        self, batch_size: int = 1, capacity: int | None = None, dtype: torch.dtype | None = None
    ) -> KVCache:
        """An empty cache for this model, on its device and in `dtype` or its number format."""
        weight = self.token_embedding.weight
        return KVCache(self.config, batch_size, capacity, weight.device, dtype or weight.dtype)

    def use_attention(self, implementation: Implementation) -> None:
        """Compute attention by "sdpa" (fused and fast) or "plain" (as the formula reads)."""
        for block in self.blocks:
            if isinstance(block, Block) and block.attention is not None:
                block.attention.implementation = implementation

    def use_lean(self, on: bool, attention: Path | None = None) -> None:
        """Compute in fewer passes over memory, where that serves; values differ in last bits.

        For training on a CPU, operation by operation, in float32 or with products in bfloat16.

        Args:
            on: or as usual again.
            attention: the library of `compiled_attention.py`; without it attention too goes
                operation by operation.
        """
        for part in self.modules():
            if isinstance(part, GPT | RMSNorm | Attention | FeedForward):
                part.lean = on
            if isinstance(part, Attention):
                part.library = attention if on else None

    def _check(self, ids: Tensor) -> None:
        if ids.dim() != 2:
            raise PartwiseError(
                "the model reads ids of shape (texts, tokens), not {shape}; add or remove a "
                "dimension",
                shape=tuple(ids.shape),
            )
        if ids.dtype != torch.int64:
            raise PartwiseError(
                "token ids must be int64, not {dtype}; convert them with ids.long()",
                dtype=str(ids.dtype).removeprefix("torch."),
            )
        config = self.config
        if ids.shape[1] > config.context_length and not config.past_context:
            raise PartwiseError(
                "{tokens} tokens are more than context_length={context_length}; give fewer, or a "
                "model with a window and rotary, alibi or no positions",
                tokens=ids.shape[1],
                context_length=config.context_length,
            )

    def _embed(self, ids: Tensor, positions: Tensor, cache: KVCache | None) -> Tensor:
        config = self.config
        x = self._rows(ids)  # (B, T, d_model)
        if config.scale_embeddings:
            x = x * math.sqrt(config.d_model)
        if self.position_embedding is not None:
            x = x + self.position_embedding(positions)
        if self.sinusoidal is not None:
            x = x + self.sinusoidal(positions)
        if self.ngram_tables is not None:
            before = ids.new_full((ids.shape[0], config.ngram - 1), -1)
            tokens = torch.cat((before if cache is None else cache.recent, ids), dim=1)
            for n, table in enumerate(self.ngram_tables, start=2):
                x = x + table(tokens[:, config.ngram - n :])
        return dropout(x, config.embedding_dropout, self.training)

    def _rows(self, ids: Tensor) -> Tensor:
        if ids.device.type != "cpu" or torch.compiler.is_compiling():
            embedded: Tensor = self.token_embedding(ids)
            return embedded
        try:
            embedded = self.token_embedding(ids)
        except IndexError as error:
            # torch has just looked; asking before each step would cost every step.
            wrong = ids[(ids < 0) | (ids >= self.config.vocab_size)]
            if not len(wrong):
                raise
            raise PartwiseError(
                "token {token} is outside the vocabulary of {vocab_size} tokens; was this text "
                "prepared with another tokenizer?",
                token=int(wrong[0]),
                vocab_size=self.config.vocab_size,
            ) from error
        return embedded

    def _sight(self, positions: Tensor, step: Step | None) -> Sight:
        config = self.config
        if not config.attention:
            return Sight(None, False, None, step)
        mask, causal = attention_mask(
            positions, step, causal=config.causal, window=config.window, alibi=self.alibi
        )
        rotation = None
        if self.rotary is not None:
            short = step is None and positions.shape[0] <= config.context_length
            rotation = self.rotary(positions, within=short or not config.past_context)
        return Sight(mask, causal, rotation, step)
