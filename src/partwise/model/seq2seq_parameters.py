"""Exact parameter counts of an encoder-decoder from its configuration alone.

A block of the encoder holds about 12 d^2 numbers, as a GPT's does; one of the decoder 16 d^2, since
cross-attention has four matrices of its own.
"""

from partwise.model.parameters import (
    attention_matrices,
    biases_by_part,
    feedforward_matrices,
    parameters_by_part,
)
from partwise.model.seq2seq_config import Seq2SeqConfig


def seq2seq_parameters(config: Seq2SeqConfig) -> dict[str, int]:
    """How many numbers each part learns; shared ones count once, where the token embedding is.

    Returns:
        embedding, position, attention, cross_attention, feedforward, norms, head.
    """
    width, layers = config.d_model, config.n_decoder_layers
    sides = parameters_by_part(config.encoder), parameters_by_part(config.decoder)
    normed = config.norm != "none" and config.norm_placement != "none"
    shift = config.norm_bias and config.norm == "layernorm"
    return {
        "embedding": config.vocab_size * width * (1 if config.share_embeddings else 2),
        "position": sum(side["position"] for side in sides),
        "attention": sum(side["attention"] for side in sides),
        "cross_attention": layers * attention_matrices(config.decoder) + _cross_biases(config),
        "feedforward": sum(side["feedforward"] for side in sides),
        "norms": sum(side["norms"] for side in sides)
        + (layers * width * (1 + shift) if normed else 0),
        "head": sides[1]["head"],
    }


def seq2seq_matrices(config: Seq2SeqConfig) -> int:
    """Numbers in the matrices of all blocks."""
    block = attention_matrices(config.decoder) + feedforward_matrices(config.decoder)
    cross = attention_matrices(config.decoder)
    return _blocks(config) * block + config.n_decoder_layers * cross


def seq2seq_approximation(config: Seq2SeqConfig) -> int:
    """12 N d^2 for N blocks of width d, those of both sides, as if none had cross-attention."""
    return 12 * _blocks(config) * config.d_model**2


def seq2seq_gap(config: Seq2SeqConfig) -> dict[str, int]:
    """What 12 N d^2 misses, by source; the exact count is 12 N d^2 plus the sum of these.

    Returns:
        As `parameters.approximation_gap` does, and `cross_attention_matrices`.
    """
    parts = seq2seq_parameters(config)
    sides = biases_by_part(config.encoder), biases_by_part(config.decoder)
    in_blocks = sum(side["attention"] + side["feedforward"] for side in sides)
    square = config.d_model**2
    return {
        "embedding": parts["embedding"],
        "position": parts["position"],
        "head": parts["head"] - sides[1]["head"],
        "norms": parts["norms"],
        "biases": in_blocks + sides[1]["head"] + _cross_biases(config),
        "attention_matrices": _blocks(config) * (attention_matrices(config.decoder) - 4 * square),
        "feedforward_matrices": _blocks(config)
        * (feedforward_matrices(config.decoder) - 8 * square),
        "cross_attention_matrices": config.n_decoder_layers * attention_matrices(config.decoder),
    }


def _blocks(config: Seq2SeqConfig) -> int:
    return config.n_encoder_layers + config.n_decoder_layers


def _cross_biases(config: Seq2SeqConfig) -> int:
    """Queries, keys, values and projection of every cross-attention."""
    if not config.attention_bias:
        return 0
    decoder = config.decoder
    heads = config.n_heads + 2 * decoder.key_value_heads
    return config.n_decoder_layers * (heads * decoder.head_size + config.d_model)
