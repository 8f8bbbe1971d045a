"""One block: tokens talk to each other (attention), then each thinks (feed-forward)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from partwise.model.attention import Attention
from partwise.model.cache import Step
from partwise.model.config import ModelConfig
from partwise.model.dropout import dropout
from partwise.model.feedforward import FeedForward
from partwise.model.norm import make_norm

Observe = Callable[[str, Tensor], None]


@dataclass(slots=True)
class Sight:
    """What the tokens of one forward pass see; it is the same for every layer.

    Args:
        mask: (1, heads or 1, T, S), or none where `causal` says it all.
        causal: without a mask, each token sees itself and those before.
        rotation: cos and sin of the rotary positions, or none.
        past: the cache's step, or none.
    """

    mask: Tensor | None
    causal: bool
    rotation: tuple[Tensor, Tensor] | None
    past: Step | None


class Block(nn.Module):
    """x = x + attention(norm1(x)); x = x + feedforward(norm2(x)).

    That is pre-norm. Post-norm: x = norm(x + sublayer(x)). Without residual: x = sublayer(…) in
    place of x + sublayer(…). Parallel: x = x + attention(norm1(x)) + feedforward(norm1(x)), with
    one norm. In training each sublayer's output is dropped out before it joins x.

    Args:
        config: which parts there are; an absent one is None, and so is its norm.

    Source: Vaswani et al. (2017), section 3.1 (post-norm); Radford et al. (2019), section 2.3
    (pre-norm); Chowdhery et al. (2022), section 2 (parallel).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.placement = "none" if config.norm == "none" else config.norm_placement
        self.residual = config.residual
        self.parallel = config.parallel
        self.dropout = config.dropout

        def norm(wanted: bool) -> nn.Module | None:
            if not wanted or self.placement == "none":
                return None
            return make_norm(config.norm, config.d_model, config.norm_eps, config.norm_bias)

        self.norm1 = norm(config.attention)
        self.attention = (
            Attention(
                config.d_model,
                config.n_heads,
                config.key_value_heads,
                config.head_size,
                qkv_bias=config.qkv_bias,
                projection=config.output_projection,
                projection_bias=config.projection_bias,
                qk_norm=config.qk_norm,
                norm_eps=config.norm_eps,
                dropout=config.attention_dropout_rate,
            )
            if config.attention
            else None
        )
        self.norm2 = norm(config.feedforward != "none" and not config.parallel)
        self.feedforward = (
            FeedForward(
                config.d_model,
                config.inner_width,
                config.feedforward,
                config.feedforward_bias,
                config.feedforward_output,
            )
            if config.feedforward != "none"
            else None
        )

    def forward(
        self, x: Tensor, sight: Sight, layer: int = 0, observe: Observe | None = None
    ) -> Tensor:
        """One step up the stack.

        Args:
            x: the residual stream (B, T, d_model).
            sight: what the tokens see.
            layer: this block's number, from 0.
            observe: is given each value by its name, "block.0.attention" and so on.

        Returns:
            (B, T, d_model).
        """

        def note(name: str, value: Tensor) -> Tensor:
            if observe is not None:
                observe(f"block.{layer}.{name}", value)
            return value

        def normed(name: str, norm: nn.Module | None, h: Tensor) -> Tensor:
            return h if norm is None else note(name, norm(h))

        before, after = self.placement == "pre", self.placement == "post"
        if self.parallel and self.attention is not None and self.feedforward is not None:
            h = normed("norm1", self.norm1, x)
            y = note("attention", self._drop(self._attend(h, sight, layer, observe)))
            y = y + note("feedforward", self._drop(self.feedforward(h)))
            return note("output", x + y if self.residual else y)
        if self.attention is not None:
            h = normed("norm1", self.norm1, x) if before else x
            y = note("attention", self._drop(self._attend(h, sight, layer, observe)))
            x = note("residual1", x + y if self.residual else y)
            x = normed("norm1", self.norm1, x) if after else x
        if self.feedforward is not None:
            h = normed("norm2", self.norm2, x) if before else x
            y = note("feedforward", self._drop(self.feedforward(h)))
            x = note("residual2", x + y if self.residual else y)
            x = normed("norm2", self.norm2, x) if after else x
        return note("output", x)

    def _attend(self, h: Tensor, sight: Sight, layer: int, observe: Observe | None) -> Tensor:
        assert self.attention is not None
        weights = None
        if observe is not None:
            weights = partial(observe, f"block.{layer}.attention.weights")
        y: Tensor = self.attention(
            h,
            mask=sight.mask,
            causal=sight.causal,
            rotation=sight.rotation,
            past=sight.past,
            layer=layer,
            observe=weights,
        )
        return y

    def _drop(self, y: Tensor) -> Tensor:
        return dropout(y, self.dropout, self.training)
