"""A decoder-only Transformer described by data; GPT-2, LLaMA, PaLM and every rung are values of it.

One block, pre-norm, is `x = x + attention(norm(x)); x = x + feedforward(norm(x))`; the fields below
say which parts stand in it and how wide they are.
"""

import math
from dataclasses import dataclass
from typing import Literal

from partwise.errors import ConfigError
from partwise.settings import above_zero, at_least_one, check, option, share

Norm = Literal["layernorm", "rmsnorm", "batchnorm", "none"]
NormPlacement = Literal["pre", "post", "none"]
Position = Literal["learned", "sinusoidal", "rotary", "alibi", "none"]
RopeScaling = Literal["none", "linear", "llama3"]
FeedForwardKind = Literal["relu", "gelu", "gelu_tanh", "relu2", "swiglu", "none"]
Initialisation = Literal["torch", "normal", "gpt2", "fan_in", "zero_projection"]


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a GPT and the choice of each part.

    Fields that are None follow from the others: see `key_value_heads`, `head_size`, `inner_width`
    and `attention_dropout_rate`.

    Raises:
        ConfigError: the combination makes no sense; the message names what would do.
    """

    vocab_size: int = option(65, "number of different tokens")
    context_length: int = option(256, "longest text the model reads at once (tokens)")
    n_layers: int = option(6, "number of blocks")
    d_model: int = option(384, "width of the residual stream (features)")

    attention: bool = option(True, "self-attention in each block")
    n_heads: int = option(6, "number of attention heads")
    n_kv_heads: int | None = option(
        None, "heads of keys and values; none: as many as n_heads; 1: multi-query"
    )
    head_dim: int | None = option(None, "width of one head (features); none: d_model / n_heads")
    output_projection: bool = option(True, "a matrix after the heads are joined")
    causal: bool = option(True, "each token sees only itself and what came before")
    window: int | None = option(None, "how far back attention reaches (tokens); none: all the way")
    qk_norm: bool = option(False, "RMSNorm with a learned scale on each query and key")
    qkv_bias: bool = option(True, "bias in the query, key and value matrices")
    projection_bias: bool = option(True, "bias in the attention's output projection")

    feedforward: FeedForwardKind = option("gelu", "the feed-forward layer's activation, or none")
    d_ff: int | None = option(
        None,
        "inner width of the feed-forward layer (features); none: 4 d_model, SwiGLU 8/3",
    )
    feedforward_bias: bool = option(True, "bias in the feed-forward matrices")
    feedforward_output: bool = option(
        True, "a second feed-forward matrix after the activation, back to the residual stream"
    )
    parallel: bool = option(False, "attention and feed-forward side by side, as in PaLM")

    norm: Norm = option("layernorm", "the kind of normalisation")
    norm_placement: NormPlacement = option(
        "pre", "before each sublayer, after it has rejoined the residual stream, or nowhere"
    )
    norm_bias: bool = option(True, "LayerNorm and BatchNorm have a learned shift (beta)")
    norm_eps: float = option(1e-5, "added to the variance before its root is taken")
    final_norm: bool = option(True, "one more norm before the output layer")
    residual: bool = option(True, "x + sublayer(x) instead of sublayer(x)")

    position: Position = option("learned", "how the model knows where a token stands")
    rope_base: float = option(10000.0, "base of the rotary frequencies")
    rope_scaling: RopeScaling = option("none", "how rotary frequencies are stretched")
    rope_factor: float = option(1.0, "how many times rotary frequencies are stretched")
    rope_low_frequency_factor: float = option(1.0, "llama3 scaling: below it, stretched in full")
    rope_high_frequency_factor: float = option(4.0, "llama3 scaling: above it, not stretched")
    rope_original_context: int = option(8192, "llama3 scaling: context before stretching (tokens)")

    dropout: float = option(0.0, "share of each sublayer's output dropped in training")
    attention_dropout: float | None = option(
        None, "share of attention weights dropped in training; none: as dropout"
    )
    embedding_dropout: float = option(0.0, "share of the embeddings dropped in training")

    tie_embeddings: bool = option(True, "the output layer reuses the token embedding")
    head_bias: bool = option(False, "bias in the output layer")
    logit_soft_cap: float | None = option(None, "logits become cap * tanh(logits / cap); none: off")
    scale_embeddings: bool = option(False, "token embeddings times the root of d_model")
    ngram: int = option(1, "embed each token with up to this many last tokens; 1: off, 2: bigrams")
    ngram_rows: int | None = option(
        None, "rows of each n-gram table; none: one for every n-gram, at most 65,536 (then hashed)"
    )
    embedding_shortcut: bool = option(
        False, "every block also receives the embeddings, with learned weights"
    )

    initialisation: Initialisation = option("gpt2", "how weights start")
    init_std: float = option(0.02, "standard deviation of the normal and gpt2 initialisation")

    def __post_init__(self) -> None:
        check(self)
        self._check_sizes()
        self._check_heads()
        self._check_combinations()

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def head_size(self) -> int:
        """Width of one head (features): d_k of the papers."""
        return self.d_model // self.n_heads if self.head_dim is None else self.head_dim

    @property
    def inner_width(self) -> int:
        """Inner width of the feed-forward layer (features); 0 without one."""
        if self.feedforward == "none":
            return 0
        if self.d_ff is not None:
            return self.d_ff
        if not self.feedforward_output:
            return self.d_model
        if self.feedforward == "swiglu":
            # 8/3 d keeps SwiGLU's three matrices as large as two of width 4d (Shazeer, 2020).
            return 8 * math.ceil(self.d_model / 3)
        return 4 * self.d_model

    @property
    def attention_dropout_rate(self) -> float:
        """Share of attention weights dropped in training."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    @property
    def past_context(self) -> bool:
        """Whether a text may be longer than context_length.

        Attention must forget what lies too far back, and positions must go on without end.
        """
        return self.window is not None and self.position in ("rotary", "alibi", "none")

    def ngram_table_rows(self, n: int) -> int:
        """Rows of the table for n-grams of length `n`: exact while they are few, else hashed."""
        exact: int = self.vocab_size**n
        return min(exact, 65_536 if self.ngram_rows is None else self.ngram_rows)

    def _check_sizes(self) -> None:
        at_least_one(self, "vocab_size", "context_length", "n_layers", "d_model", "n_heads")
        at_least_one(self, "n_kv_heads", "head_dim", "window", "d_ff", "ngram", "ngram_rows")
        at_least_one(self, "rope_original_context")
        share(self, "dropout", "attention_dropout", "embedding_dropout")
        above_zero(self, "norm_eps", "rope_base", "rope_factor", "init_std", "logit_soft_cap")
        above_zero(self, "rope_low_frequency_factor", "rope_high_frequency_factor")

    def _check_heads(self) -> None:
        if not self.attention:
            return
        if self.head_dim is None and self.d_model % self.n_heads:
            fitting = _divisors(self.d_model)
            near = sorted(sorted(fitting, key=lambda n: abs(n - self.n_heads))[:3])
            raise ConfigError(
                "d_model={d_model} is not divisible by n_heads={n_heads}; n_heads {choices} would "
                "do, or set head_dim",
                d_model=self.d_model,
                n_heads=self.n_heads,
                choices=", ".join(map(str, near)),
            )
        if self.n_heads % self.key_value_heads:
            fitting = _divisors(self.n_heads)
            raise ConfigError(
                "n_heads={n_heads} is not divisible by n_kv_heads={n_kv_heads}; n_kv_heads "
                "{choices} would do",
                n_heads=self.n_heads,
                n_kv_heads=self.n_kv_heads,
                choices=", ".join(map(str, fitting)),
            )
        if self.position == "rotary" and self.head_size % 2:
            raise ConfigError(
                "rotary positions turn pairs of features, and a head of {head_size} has an odd "
                "number; head_dim={choice} would do",
                head_size=self.head_size,
                choice=self.head_size + 1,
            )
        if not self.output_projection and self.n_heads * self.head_size != self.d_model:
            raise ConfigError(
                "without output_projection the heads must be as wide as the residual stream, but "
                "{n_heads} heads of {head_size} are not d_model={d_model}; set "
                "output_projection=true or head_dim=none",
                n_heads=self.n_heads,
                head_size=self.head_size,
                d_model=self.d_model,
            )
        if self.window is not None and not self.causal:
            raise ConfigError(
                "window={window} looks back from each token and needs causal=true; set window=none "
                "for attention in both directions",
                window=self.window,
            )

    def _check_combinations(self) -> None:
        if not self.attention and self.feedforward == "none":
            raise ConfigError(
                "attention=false with feedforward=none leaves the blocks empty; keep one of them"
            )
        if self.parallel and (not self.attention or self.feedforward == "none"):
            raise ConfigError(
                "parallel=true puts attention and feed-forward side by side and needs both; set "
                "parallel=false"
            )
        if self.parallel and self.norm_placement == "post":
            raise ConfigError(
                "parallel=true shares one norm before both sublayers; norm_placement=post has none "
                "there, pre or none would do"
            )
        one_matrix = self.feedforward != "none" and not self.feedforward_output
        if one_matrix and self.inner_width != self.d_model:
            raise ConfigError(
                "without feedforward_output the feed-forward layer must be as wide as the residual "
                "stream, but d_ff={d_ff} is not d_model={d_model}; set feedforward_output=true or "
                "d_ff=none",
                d_ff=self.d_ff,
                d_model=self.d_model,
            )
        if self.ngram > self.context_length:
            raise ConfigError(
                "ngram={ngram} is more than context_length={context_length}; "
                "ngram={context_length} or less would do",
                ngram=self.ngram,
                context_length=self.context_length,
            )
        if self.position == "sinusoidal" and self.d_model % 2:
            raise ConfigError(
                "sinusoidal positions come in pairs of features and d_model={d_model} is odd; "
                "{choice} would do",
                d_model=self.d_model,
                choice=self.d_model + 1,
            )
        if self.rope_scaling == "llama3" and (
            self.rope_low_frequency_factor >= self.rope_high_frequency_factor
        ):
            raise ConfigError(
                "rope_low_frequency_factor={low} must be below rope_high_frequency_factor={high}",
                low=self.rope_low_frequency_factor,
                high=self.rope_high_frequency_factor,
            )


def _divisors(number: int) -> list[int]:
    """The smaller divisors of a number, and what each leaves, in order.

    Those up to a million are looked for, so that a mistyped number is not waited for.
    """
    small = [n for n in range(1, min(math.isqrt(number), 10**6) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
