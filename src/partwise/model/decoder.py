"""The decoder: blocks in which a token sees what was written before it, and all of the source."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from partwise.model.attention import Attention
from partwise.model.block import Observe, Sight
from partwise.model.cache import KVCache
from partwise.model.config import ModelConfig
from partwise.model.cross_attention import CrossAttention
from partwise.model.dropout import dropout
from partwise.model.feedforward import FeedForward
from partwise.model.norm import make_norm

# Keys and values that a layer's cross-attention makes of the source.
KeysValues = tuple[Tensor, Tensor]


class DecoderBlock(nn.Module):
    """x = norm1(x + attention(x)); x = norm2(x + cross(x, memory)); x = norm3(x + feedforward(x)).

    That is post-norm, the paper's. Pre-norm: x = x + sublayer(norm(x)). In training each sublayer's
    output is dropped out before it joins x.

    Args:
        config: `Seq2SeqConfig.decoder`.

    Source: Vaswani et al. (2017), section 3.1 and figure 1; Xiong et al. (2020) (pre-norm).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.placement = "none" if config.norm == "none" else config.norm_placement
        self.dropout = config.dropout

        def norm() -> nn.Module | None:
            if self.placement == "none":
                return None
            return make_norm(config.norm, config.d_model, config.norm_eps, config.norm_bias)

        self.norm1 = norm()
        self.attention = Attention(
            config.d_model,
            config.n_heads,
            config.key_value_heads,
            config.head_size,
            qkv_bias=config.qkv_bias,
            projection_bias=config.projection_bias,
            qk_norm=config.qk_norm,
            norm_eps=config.norm_eps,
            dropout=config.attention_dropout_rate,
        )
        self.norm2 = norm()
        self.cross_attention = CrossAttention(
            config.d_model,
            config.n_heads,
            config.key_value_heads,
            config.head_size,
            bias=config.qkv_bias,
            dropout=config.attention_dropout_rate,
        )
        self.feedforward = None
        self.norm3 = None
        if config.feedforward != "none":
            self.norm3 = norm()
            self.feedforward = FeedForward(
                config.d_model, config.inner_width, config.feedforward, config.feedforward_bias
            )

    def forward(
        self,
        x: Tensor,
        sight: Sight,
        memory: Tensor | KeysValues,
        memory_mask: Tensor | None = None,
        layer: int = 0,
        observe: Observe | None = None,
    ) -> Tensor:
        """One step up the stack.

        Args:
            x: the residual stream of the target (B, T, d_model).
            sight: what the target's tokens see of each other.
            memory: what the encoder read (B, S, d_model), or the keys and values made of it.
            memory_mask: (B, S), true for tokens, false for padding.
            layer: this block's number, from 0.
            observe: is given each value by its name, "block.0.cross_attention" and so on.

        Returns:
            (B, T, d_model).
        """

        def note(name: str, value: Tensor) -> Tensor:
            if observe is not None:
                observe(f"block.{layer}.{name}", value)
            return value

        def join(place: int, x: Tensor, y: Tensor, name: str) -> Tensor:
            y = note(name, dropout(y, self.dropout, self.training))
            x = note(f"residual{place}", x + y)
            return normed(place, x) if self.placement == "post" else x

        def normed(place: int, h: Tensor) -> Tensor:
            norm = (self.norm1, self.norm2, self.norm3)[place - 1]
            return h if norm is None else note(f"norm{place}", norm(h))

        def before(place: int, x: Tensor) -> Tensor:
            return normed(place, x) if self.placement == "pre" else x

        def weights(name: str) -> "partial[None] | None":
            return None if observe is None else partial(observe, f"block.{layer}.{name}.weights")

        y = self.attention(
            before(1, x),
            mask=sight.mask,
            causal=sight.causal,
            rotation=sight.rotation,
            past=sight.past,
            layer=layer,
            observe=weights("attention"),
        )
        x = join(1, x, y, "attention")
        y = self.cross_attention(before(2, x), memory, memory_mask, weights("cross_attention"))
        x = join(2, x, y, "cross_attention")
        if self.feedforward is not None:
            x = join(3, x, self.feedforward(before(3, x)), "feedforward")
        return note("output", x)


class Decoder(nn.Module):
    """final_norm(block_N(… block_1(embedded target, memory) …, memory)).

    Args:
        config: `Seq2SeqConfig.decoder`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.n_layers))
        self.final_norm = None
        if config.final_norm:
            self.final_norm = make_norm(
                config.norm, config.d_model, config.norm_eps, config.norm_bias
            )

    def forward(
        self,
        x: Tensor,
        sight: Sight,
        memory: Tensor | Sequence[KeysValues],
        memory_mask: Tensor | None = None,
        observe: Observe | None = None,
    ) -> Tensor:
        """Write: see `DecoderBlock.forward`; keys and values come one pair a layer."""
        for layer, block in enumerate(self.blocks):
            read = memory if isinstance(memory, Tensor) else memory[layer]
            x = block(x, sight, read, memory_mask, layer, observe)
        if self.final_norm is not None:
            x = self.final_norm(x)
            if observe is not None:
                observe("final_norm", x)
        return x

    def keys_values(self, memory: Tensor) -> list[KeysValues]:
        """What each layer's cross-attention makes of the memory (B, S, d_model)."""
        found = []
        for block in self.blocks:
            assert isinstance(block, DecoderBlock)
            found.append(block.cross_attention.keys_values(memory))
        return found


class DecoderCache:
    """What need not be computed again for the next token: the source, and the target so far.

    Args:
        past: keys and values of the target's tokens.
        memory: keys and values of the source, one pair a layer.
        memory_mask: (B, S), true for tokens, false for padding.
    """

    def __init__(self, past: KVCache, memory: list[KeysValues], memory_mask: Tensor) -> None:
        self.past = past
        self.memory = memory
        self.memory_mask = memory_mask

    def select(self, rows: Tensor) -> None:
        """Go on with these texts only, in this order; one may be taken several times.

        Args:
            rows: numbers of texts (B',), int64.
        """
        self.past.select(rows)
        self.memory = [(keys[rows], values[rows]) for keys, values in self.memory]
        self.memory_mask = self.memory_mask[rows]
