"""Exact parameter counts from the configuration alone: no tensor is made, so 540B takes no time.

A block of width d holds about 12 d^2 numbers: 4 d^2 in attention (queries, keys, values and the
projection) and 8 d^2 in a feed-forward layer four times as wide. What that estimate leaves out is
counted here part by part.
"""

from partwise.model.config import ModelConfig


def parameters_by_part(config: ModelConfig) -> dict[str, int]:
    """How many numbers each part learns; shared ones count once, where the token embedding is.

    Returns:
        embedding, position, ngram, attention, feedforward, norms (those on queries and keys too),
        head, shortcut.
    """
    layers, width, vocabulary = config.n_layers, config.d_model, config.vocab_size
    biases = biases_by_part(config)
    return {
        "embedding": vocabulary * width,
        "position": config.context_length * width if config.position == "learned" else 0,
        "ngram": sum(config.ngram_table_rows(n) * width for n in range(2, config.ngram + 1)),
        "attention": layers * attention_matrices(config) + biases["attention"],
        "feedforward": layers * feedforward_matrices(config) + biases["feedforward"],
        "norms": _norms(config),
        "head": (0 if config.tie_embeddings else vocabulary * width) + biases["head"],
        "shortcut": 2 * layers if config.embedding_shortcut else 0,
    }


def count_parameters(config: ModelConfig) -> int:
    """How many numbers the whole model learns."""
    return sum(parameters_by_part(config).values())


def attention_matrices(config: ModelConfig) -> int:
    """Numbers in one block's query, key, value and projection matrices; 4 d^2 in the usual form."""
    if not config.attention:
        return 0
    queries = config.n_heads * config.head_size
    keys_and_values = 2 * config.key_value_heads * config.head_size
    projection = queries * config.d_model if config.output_projection else 0
    return config.d_model * (queries + keys_and_values) + projection


def feedforward_matrices(config: ModelConfig) -> int:
    """Numbers in one block's feed-forward matrices; 8 d^2 when it is four times as wide as d."""
    if config.feedforward == "none":
        return 0
    count = 1 + config.feedforward_output + (config.feedforward == "swiglu")
    return count * config.d_model * config.inner_width


def biases_by_part(config: ModelConfig) -> dict[str, int]:
    """Numbers in the biases of all matrices: attention, feedforward, head."""
    attention = feedforward = 0
    if config.attention:
        if config.qkv_bias:
            attention += (config.n_heads + 2 * config.key_value_heads) * config.head_size
        if config.projection_bias and config.output_projection:
            attention += config.d_model
    if config.feedforward != "none" and config.feedforward_bias:
        feedforward += config.inner_width * (1 + (config.feedforward == "swiglu"))
        feedforward += config.d_model if config.feedforward_output else 0
    return {
        "attention": config.n_layers * attention,
        "feedforward": config.n_layers * feedforward,
        "head": config.vocab_size if config.head_bias else 0,
    }


def block_norms(config: ModelConfig) -> int:
    """How many norms of the residual stream one block has."""
    if config.norm == "none" or config.norm_placement == "none":
        return 0
    if config.parallel:
        return 1
    return config.attention + (config.feedforward != "none")


def has_final_norm(config: ModelConfig) -> bool:
    """Whether one more norm with parameters stands before the output layer."""
    return config.final_norm and config.norm != "none"


def approximation(config: ModelConfig) -> int:
    """12 N d^2 for N blocks of width d.

    Source: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1.
    """
    return 12 * config.n_layers * config.d_model**2


def approximation_gap(config: ModelConfig) -> dict[str, int]:
    """What 12 N d^2 misses, by source; the exact count is 12 N d^2 plus the sum of these.

    Returns:
        The parts outside the blocks' matrices, and under `attention_matrices` and
        `feedforward_matrices` what those hold beyond 4 d^2 and 8 d^2 (negative for less).
    """
    parts = parameters_by_part(config)
    biases = biases_by_part(config)
    layers, square = config.n_layers, config.d_model**2
    return {
        "embedding": parts["embedding"],
        "position": parts["position"],
        "ngram": parts["ngram"],
        "head": parts["head"] - biases["head"],
        "norms": parts["norms"],
        "biases": sum(biases.values()),
        "shortcut": parts["shortcut"],
        "attention_matrices": layers * (attention_matrices(config) - 4 * square),
        "feedforward_matrices": layers * (feedforward_matrices(config) - 8 * square),
    }


def _norms(config: ModelConfig) -> int:
    has_bias = config.norm_bias and config.norm != "rmsnorm"
    streams = config.n_layers * block_norms(config) + has_final_norm(config)
    per_head = 2 * config.head_size if config.attention and config.qk_norm else 0
    return streams * config.d_model * (1 + has_bias) + config.n_layers * per_head
