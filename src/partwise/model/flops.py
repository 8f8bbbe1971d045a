"""Floating-point operations a token costs: 2 for each weight that multiplies it, and attention.

A product of a row with a matrix multiplies and adds once for each weight, hence the 2. The backward
pass costs two such products for each forward one, hence training = 3 x forward. Norms, activations,
softmax and the lookup of embeddings are left out: they cost time, but next to no operations.

Source: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1; Chowdhery et al.
2022, "PaLM", appendix B.
"""

from fractions import Fraction

from partwise.model.config import ModelConfig
from partwise.model.parameters import attention_matrices, feedforward_matrices

# One forward pass, and two products of the same size in the backward pass.
TRAINING = 3


def forward_flops(config: ModelConfig, context: int) -> dict[str, int]:
    """Operations of one forward pass, a token on average over a text of `context` tokens.

    Args:
        config: the model.
        context: tokens T in the text.

    Returns:
        By part: `attention` (its matrices), `attention_scores` (the quadratic term: 4 x heads x
        head size x tokens looked at, which a causal mask halves), `feedforward`, `head`.
    """
    scores = Fraction(0)
    if config.attention:
        width = config.n_heads * config.head_size
        scores = 4 * width * config.n_layers * mean_reach(config, context)
    return {
        "attention": 2 * config.n_layers * attention_matrices(config),
        "attention_scores": round(scores),
        "feedforward": 2 * config.n_layers * feedforward_matrices(config),
        "head": 2 * config.vocab_size * config.d_model,
    }


def mean_reach(config: ModelConfig, context: int) -> Fraction:
    """Tokens that a token looks at, itself included, on average over a text of `context` tokens.

    (T + 1) / 2 when it is causal, T when it is not, and never more than the window.
    """
    if not config.causal:
        return Fraction(context)
    window = min(context, config.window or context)
    # 1, 2, ..., window, window, ...
    return Fraction(window * (window + 1) // 2 + (context - window) * window, context)


def unmasked_scores(config: ModelConfig, context: int) -> int:
    """The quadratic term where every token is computed against every other, as many counts do."""
    if not config.attention:
        return 0
    return 4 * config.n_heads * config.head_size * config.n_layers * context


def decode_flops(config: ModelConfig, seen: int) -> int:
    """Operations of one more token after `seen` others, with keys and values cached."""
    parts = forward_flops(config, 1)
    if config.attention:
        reach = min(seen + 1, config.window or seen + 1)
        parts["attention_scores"] = 4 * config.n_heads * config.head_size * config.n_layers * reach
    return sum(parts.values())
