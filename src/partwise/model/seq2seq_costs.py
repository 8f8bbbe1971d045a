"""Operations and memory of an encoder-decoder, for a source and a target of the same length.

A token stands here for one of the target and one of the source: the encoder reads the one, the
decoder writes the other.
"""

from collections.abc import Callable
from fractions import Fraction

from partwise.model.activations import Activations, Kernels, Value, Walk
from partwise.model.flops import mean_reach
from partwise.model.memory import (
    BYTES,
    Dtype,
    Optimizer,
    ServingMemory,
    TrainingMemory,
    cache_bytes,
    held,
    precision,
    served,
)
from partwise.model.parameters import (
    attention_matrices,
    feedforward_matrices,
    has_final_norm,
    parameters_by_part,
)
from partwise.model.seq2seq_config import Seq2SeqConfig
from partwise.model.seq2seq_parameters import seq2seq_matrices, seq2seq_parameters


def seq2seq_flops(config: Seq2SeqConfig, context: int) -> dict[str, int]:
    """Operations of one forward pass, a token on average.

    Args:
        config: the model.
        context: tokens T of the source, and of the target.

    Returns:
        By part: `attention` and `cross_attention` (their matrices), `attention_scores` (the
        quadratic terms: T of the source for each token of it, half of the target and all of the
        source for each token of the target), `feedforward`, `head`.
    """
    decoder, blocks = config.decoder, config.n_encoder_layers + config.n_decoder_layers
    reach = config.n_encoder_layers * Fraction(context)
    reach += config.n_decoder_layers * (mean_reach(decoder, context) + context)
    return {
        "attention": 2 * blocks * attention_matrices(decoder),
        "cross_attention": 2 * config.n_decoder_layers * attention_matrices(decoder),
        "attention_scores": round(_score(config) * reach),
        "feedforward": 2 * blocks * feedforward_matrices(decoder),
        "head": 2 * config.vocab_size * config.d_model,
    }


def seq2seq_unmasked_scores(config: Seq2SeqConfig, context: int) -> int:
    """The quadratic terms where the decoder computes what its mask hides, as many counts do."""
    layers = config.n_encoder_layers + 2 * config.n_decoder_layers
    return _score(config) * layers * context


def seq2seq_decode_flops(config: Seq2SeqConfig, seen: int, source: int) -> int:
    """Operations of one more token of the target, once the source is read.

    Args:
        config: the model.
        seen: tokens of the target before it, whose keys and values are cached.
        source: tokens of the source, whose keys and values are cached too.
    """
    decoder, layers = config.decoder, config.n_decoder_layers
    matrices = 2 * attention_matrices(decoder) - _keys_values(config)
    matrices += feedforward_matrices(decoder)
    scores = _score(config) * layers * (seen + 1 + source)
    return 2 * layers * matrices + scores + 2 * config.vocab_size * config.d_model


def seq2seq_training_memory(
    config: Seq2SeqConfig,
    *,
    batch: int,
    context: int,
    optimizer: Optimizer = "adamw",
    average: bool = False,
    dtype: Dtype = "float32",
    kernels: Kernels = "plain",
) -> TrainingMemory:
    """What training holds; see `memory.training_memory`.

    Args:
        config: the model.
        batch: pairs computed at once.
        context: tokens of each source and each target, padding among them.
        optimizer, average, dtype, kernels: as there.
    """
    return held(
        sum(seq2seq_parameters(config).values()),
        seq2seq_matrices(config),
        config.vocab_size * config.d_model,
        _activations(
            config, PairWalk(config.decoder, batch, context, precision(dtype), kernels=kernels)
        ),
        optimizer=optimizer,
        average=average,
        dtype=dtype,
    )


def seq2seq_serving_memory(
    config: Seq2SeqConfig, *, texts: int, context: int, dtype: Dtype = "bfloat16"
) -> ServingMemory:
    """What translating holds: each block of the decoder keeps keys and values of both texts.

    Args:
        config: the model.
        texts: how many at once.
        context: tokens of each source, and of each target.
        dtype: of weights and cache.
    """
    cache = 2 * cache_bytes(config.decoder, texts, context, dtype)
    return served(sum(seq2seq_parameters(config).values()), cache, config.decoder, dtype)


def seq2seq_bytes_read(config: Seq2SeqConfig, context: int, dtype: Dtype) -> float:
    """What one more token of the target must be computed from: the decoder's weights, the cache.

    Args:
        config: the model.
        context: tokens of the source; half as many are taken to be written.
        dtype: of weights and cache.
    """
    encoder = parameters_by_part(config.encoder)
    unread = encoder["attention"] + encoder["feedforward"] + encoder["norms"]
    unread += config.n_decoder_layers * _keys_values(config)
    weights = sum(seq2seq_parameters(config).values()) - unread
    cache = cache_bytes(config.decoder, 1, context + -(-context // 2), dtype)
    return BYTES[dtype] * weights + cache


class PairWalk(Walk):
    """The walk of `activations`, through both sides; `config` is the decoder's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.memory = self.stream()

    def padding(self) -> None:
        """Numbers that are added to the scores, to hide what is padding in the source."""
        self.keep_bytes(self.precision * self.tokens)

    def encoder_block(self, x: Value) -> Value:
        """See `Encoder`."""
        self.padding()
        return self.block(x)

    def decoder_block(self, x: Value) -> Value:
        """See `DecoderBlock.forward`."""
        x = self.sublayer(x, self.attention)
        x = self.sublayer(x, self.cross_attention)
        if self.config.feedforward != "none":
            x = self.sublayer(x, self.feedforward)
        return x

    def cross_attention(self, h: Value) -> Value:
        """See `CrossAttention.forward`."""
        config = self.config
        q = self.linear(h, config.n_heads * config.head_size)
        self.padding()
        both = self.linear(self.memory, 2 * config.key_value_heads * config.head_size)
        return self.linear(self.scores(q, both, both), config.d_model)


def _activations(config: Seq2SeqConfig, walk: PairWalk) -> Activations:
    blocks = []
    x = walk.embedding()
    outside = walk.total()
    for _ in range(config.n_encoder_layers):
        x, kept = _through(walk, walk.encoder_block, x)
        blocks.append(kept)
    start = walk.total()
    if has_final_norm(config.encoder):
        x = walk.norm(x)
    walk.memory = x
    x = walk.embedding()
    outside += walk.total() - start
    for _ in range(config.n_decoder_layers):
        x, kept = _through(walk, walk.decoder_block, x)
        blocks.append(kept)
    start = walk.total()
    walk.output(x)
    outside += walk.total() - start
    block_input = 4 * walk.tokens * config.d_model
    # Computed again or not, the memory is there as long as the decoder needs it.
    return Activations(outside, sum(blocks), max(blocks), block_input, len(blocks) + 1)


def _through(walk: Walk, block: Callable[[Value], Value], x: Value) -> tuple[Value, int]:
    """What a block gives, and the bytes that it keeps."""
    start = walk.total()
    x = block(x)
    return x, walk.total() - start


def _score(config: Seq2SeqConfig) -> int:
    """Operations of one token looking at one other, in one layer."""
    return 4 * config.n_heads * config.decoder.head_size


def _keys_values(config: Seq2SeqConfig) -> int:
    """Numbers in the matrix with which cross-attention makes keys and values of the memory."""
    decoder = config.decoder
    return 2 * config.d_model * decoder.key_value_heads * decoder.head_size
