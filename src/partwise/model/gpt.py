"""GPT: token ids in, for each of them the scores of what comes next out."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from partwise.errors import PartwiseError
from partwise.model.attention import Implementation
from partwise.model.block import Block, Observe, Sight
from partwise.model.cache import KVCache, Step
from partwise.model.config import ModelConfig
from partwise.model.initialisation import initialise, zero_table
from partwise.model.norm import make_norm
from partwise.model.position import Alibi, Rotary, Sinusoidal


class TiedHead(nn.Module):
    """logits = x E^T + bias, with E the token embedding itself.

    The embedding is borrowed: it is saved, counted and moved once, where it belongs.

    Source: Press and Wolf (2017).
    """

    def __init__(self, embedding: nn.Embedding, bias: bool = False) -> None:
        super().__init__()
        # In a tuple, nn.Module does not take it for a part of this one.
        self._borrowed = (embedding,)
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings)) if bias else None

    @property
    def weight(self) -> Tensor:
        """The token embedding's weight (vocab_size, d_model)."""
        return self._borrowed[0].weight

    def forward(self, x: Tensor) -> Tensor:  # (..., d_model) -> (..., vocab_size)
        return F.linear(x, self.weight, self.bias)


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
                zero_table(config.ngram_table_rows(n), width) for n in range(2, config.ngram + 1)
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
        cap = self.config.logit_soft_cap
        if cap is not None:
            scores = cap * torch.tanh(scores / cap)
        if observe is not None:
            observe("logits", scores)
        return scores

    def new_cache(self, batch_size: int = 1, capacity: int | None = None) -> KVCache:
        """An empty cache for this model, on its device and in its number format."""
        weight = self.token_embedding.weight
        return KVCache(self.config, batch_size, capacity, weight.device, weight.dtype)

    def use_attention(self, implementation: Implementation) -> None:
        """Compute attention by "sdpa" (fused and fast) or "plain" (as the formula reads)."""
        for block in self.blocks:
            if isinstance(block, Block) and block.attention is not None:
                block.attention.implementation = implementation

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
                rows = config.ngram_table_rows(n)
                index, whole = ngram_index(
                    tokens[:, config.ngram - n :], n, config.vocab_size, rows
                )
                x = x + table(index).masked_fill(~whole[..., None], 0.0)
        if config.embedding_dropout:
            x = F.dropout(x, config.embedding_dropout, self.training)
        return x

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
        length = positions.shape[0]
        rotation = None
        if self.rotary is not None:
            within = not config.past_context or (step is None and length <= config.context_length)
            rotation = self.rotary(positions, within)
        if self.alibi is None and step is None:
            if not config.causal or config.window is None or length <= config.window:
                return Sight(None, config.causal, rotation, None)
        elif self.alibi is None and step is not None and step.start is not None:
            everything = config.window is None or step.start + length <= config.window
            if step.start == 0 and everything:
                return Sight(None, True, rotation, step)
            if length == 1 and (everything or config.past_context):
                return Sight(None, False, rotation, step)
        keys = positions if step is None else step.seen
        distance = positions[:, None] - keys  # (T, S)
        if not config.causal:
            assert self.alibi is not None
            return Sight(self.alibi(distance)[None], False, rotation, step)
        visible = (distance >= 0) & (keys >= 0)
        if config.window is not None:
            visible = visible & (distance < config.window)
        if self.alibi is None:
            return Sight(visible[None, None], False, rotation, step)
        bias = self.alibi(distance).masked_fill(~visible, -math.inf)
        return Sight(bias[None], False, rotation, step)


def ngram_index(tokens: Tensor, n: int, vocab_size: int, rows: int) -> tuple[Tensor, Tensor]:
    """Row of each n-gram in its table: ids[t-n+1] V^(n-1) + … + ids[t], or a hash of it.

    Where V^n is more than `rows`, the row is the last h of: h = 0; then for each of the n tokens,
    oldest first, h = (h * 1000003 + token + 1) mod rows.

    Args:
        tokens: (B, n - 1 + T), the first n - 1 of them before the text; -1 where there is none.
        n: tokens in an n-gram.
        vocab_size: V.
        rows: of the table.

    Returns:
        The rows (B, T), and whether all n tokens are there (B, T).
    """
    length = tokens.shape[1] - n + 1
    known = tokens.clamp(min=0)
    exact = vocab_size**n <= rows
    index = torch.zeros_like(known[:, :length])
    for i in range(n):
        token = known[:, i : i + length]
        index = index * vocab_size + token if exact else (index * 1_000_003 + token + 1) % rows
    return index, tokens[:, :length] >= 0
