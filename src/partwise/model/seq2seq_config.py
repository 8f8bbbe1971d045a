"""The original Transformer described by data: one text in, another one out.

An encoder reads the source, a decoder writes the target and looks at what the encoder read. The
fields have the names and meanings that they have in `ModelConfig`, and the parts are the same.
"""

from dataclasses import dataclass
from typing import Literal

from partwise.errors import ConfigError
from partwise.model.config import FeedForwardKind, Initialisation, ModelConfig, NormPlacement
from partwise.settings import at_least_one, check, option

# BatchNorm would mix the padding of a batch into its tokens.
PairNorm = Literal["layernorm", "rmsnorm", "none"]
# A distance between two texts means nothing, so ALiBi has no place here.
PairPosition = Literal["sinusoidal", "learned", "rotary", "none"]

# PAD, START and END stand behind the tokenizer's own tokens.
SPECIAL = 3


@dataclass(frozen=True)
class Seq2SeqConfig:
    """The shape of an encoder-decoder Transformer; the defaults are the paper's choices.

    The last three token numbers are PAD (fills short texts up), START (what the decoder reads
    first) and END (what closes both texts).

    Raises:
        ConfigError: the combination makes no sense; the message names what would do.

    Source: Vaswani et al. (2017), section 3.
    """

    vocab_size: int = option(2003, "number of different tokens, PAD, START and END among them")
    context_length: int = option(128, "longest source and longest target (tokens)")
    n_encoder_layers: int = option(2, "blocks that read the source")
    n_decoder_layers: int = option(2, "blocks that write the target")
    d_model: int = option(128, "width of the residual stream (features)")

    n_heads: int = option(4, "number of attention heads")
    n_kv_heads: int | None = option(
        None, "heads of keys and values; none: as many as n_heads; 1: multi-query"
    )
    head_dim: int | None = option(None, "width of one head (features); none: d_model / n_heads")
    qk_norm: bool = option(False, "RMSNorm with a learned scale on each query and key")
    attention_bias: bool = option(False, "biases in the attention matrices")

    feedforward: FeedForwardKind = option("relu", "the feed-forward layer's activation, or none")
    d_ff: int | None = option(
        None,
        "inner width of the feed-forward layer (features); none: 4 d_model, SwiGLU 8/3",
    )
    feedforward_bias: bool = option(True, "bias in the feed-forward matrices")

    norm: PairNorm = option("layernorm", "the kind of normalisation")
    norm_placement: NormPlacement = option(
        "post", "before each sublayer, after it has rejoined the residual stream, or nowhere"
    )
    norm_bias: bool = option(True, "LayerNorm has a learned shift (beta)")
    norm_eps: float = option(1e-5, "added to the variance before its root is taken")
    final_norm: bool | None = option(
        None, "one more norm after the last block of each side; none: with norm_placement=pre"
    )

    position: PairPosition = option("sinusoidal", "how the model knows where a token stands")
    rope_base: float = option(10000.0, "base of the rotary frequencies")

    dropout: float = option(0.1, "share of each sublayer's output dropped in training")
    attention_dropout: float = option(0.0, "share of attention weights dropped in training")
    embedding_dropout: float = option(0.1, "share of the embeddings dropped in training")

    share_embeddings: bool = option(True, "source and target have one token embedding")
    tie_embeddings: bool = option(True, "the output layer reuses the target's token embedding")
    head_bias: bool = option(False, "bias in the output layer")
    scale_embeddings: bool = option(True, "token embeddings times the root of d_model")

    initialisation: Initialisation = option("fan_in", "how weights start")
    init_std: float = option(0.02, "standard deviation of the normal and gpt2 initialisation")

    def __post_init__(self) -> None:
        check(self)
        at_least_one(self, "n_encoder_layers", "n_decoder_layers")
        if self.vocab_size <= SPECIAL:
            raise ConfigError(
                "vocab_size={vocab_size} leaves no token beside PAD, START and END; give {least} "
                "or more",
                vocab_size=self.vocab_size,
                least=SPECIAL + 1,
            )
        # All that is wrong with a width, a head or a share is wrong there too, and said there.
        _ = self.encoder

    @property
    def pad(self) -> int:
        """The token that fills a short text up; nothing attends to it."""
        return self.vocab_size - 3

    @property
    def start(self) -> int:
        """The token that the decoder reads first."""
        return self.vocab_size - 2

    @property
    def end(self) -> int:
        """The token that closes a text."""
        return self.vocab_size - 1

    @property
    def encoder(self) -> ModelConfig:
        """The blocks that read the source: each token sees all others."""
        return self._stack(self.n_encoder_layers, causal=False)

    @property
    def decoder(self) -> ModelConfig:
        """The blocks that write the target, but for their cross-attention."""
        return self._stack(self.n_decoder_layers, causal=True)

    def _stack(self, n_layers: int, *, causal: bool) -> ModelConfig:
        pre = self.norm_placement == "pre"
        return ModelConfig(
            vocab_size=self.vocab_size,
            context_length=self.context_length,
            n_layers=n_layers,
            d_model=self.d_model,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            causal=causal,
            qk_norm=self.qk_norm,
            qkv_bias=self.attention_bias,
            projection_bias=self.attention_bias,
            feedforward=self.feedforward,
            d_ff=self.d_ff,
            feedforward_bias=self.feedforward_bias,
            norm=self.norm,
            norm_placement=self.norm_placement,
            norm_bias=self.norm_bias,
            norm_eps=self.norm_eps,
            final_norm=pre if self.final_norm is None else self.final_norm,
            position=self.position,
            rope_base=self.rope_base,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            embedding_dropout=self.embedding_dropout,
            tie_embeddings=self.tie_embeddings,
            head_bias=self.head_bias,
            scale_embeddings=self.scale_embeddings,
            initialisation=self.initialisation,
            init_std=self.init_std,
        )
