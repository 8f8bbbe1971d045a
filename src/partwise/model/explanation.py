"""A model's size in words: where 12 N d^2 goes wrong, and what the figures take for granted."""

from collections.abc import Mapping

from partwise.messages import Notice
from partwise.model.accelerators import TERA, Accelerator
from partwise.model.config import ModelConfig
from partwise.model.flops import mean_reach


def of_approximation(
    config: ModelConfig, parameters: int, estimate: int, gap: Mapping[str, int]
) -> tuple[Notice, ...]:
    """How far 12 N d^2 is off, and each source of the difference, the largest first.

    Args:
        config: the model; of an encoder-decoder, its decoder.
        parameters: its exact count.
        estimate: 12 N d^2.
        gap: what `approximation_gap` gives, or `seq2seq_gap`.
    """
    if estimate == parameters:
        first = Notice("12 N d² gives {estimate:,}, which is exact", estimate=estimate)
    elif estimate < parameters:
        first = Notice(
            "12 N d² gives {estimate:,}, {error:.1%} below the exact {parameters:,}",
            estimate=estimate,
            error=1 - estimate / parameters,
            parameters=parameters,
        )
    else:
        first = Notice(
            "12 N d² gives {estimate:,}, {error:.1%} above the exact {parameters:,}",
            estimate=estimate,
            error=estimate / parameters - 1,
            parameters=parameters,
        )
    said = {
        "embedding": Notice(
            "it leaves out the token embedding, {rows:,} rows of {width:,}: {count:+,}",
            rows=gap["embedding"] // config.d_model,
            width=config.d_model,
            count=gap["embedding"],
        ),
        "position": Notice(
            "it leaves out the learned positions, {rows:,} rows of {width:,}: {count:+,}",
            rows=gap["position"] // config.d_model,
            width=config.d_model,
            count=gap["position"],
        ),
        "ngram": Notice("it leaves out the n-gram tables: {count:+,}", count=gap.get("ngram", 0)),
        "head": Notice(
            "it leaves out the output layer, which is not tied to the embedding: {count:+,}",
            count=gap["head"],
        ),
        "norms": Notice(
            "it leaves out scales and shifts of the norms: {count:+,}", count=gap["norms"]
        ),
        "biases": Notice("it leaves out the biases: {count:+,}", count=gap["biases"]),
        "shortcut": Notice(
            "it leaves out the weights of the embedding shortcut: {count:+,}",
            count=gap.get("shortcut", 0),
        ),
        "cross_attention_matrices": Notice(
            "it knows no cross-attention, 4 d² more in each block of the decoder: {count:+,}",
            count=gap.get("cross_attention_matrices", 0),
        ),
        "attention_matrices": _attention_gap(config, gap["attention_matrices"]),
        "feedforward_matrices": _feedforward_gap(config, gap["feedforward_matrices"]),
    }
    order = sorted(gap, key=lambda source: -abs(gap[source]))
    return (first, *(said[source] for source in order if gap[source]))


def of_operations(
    config: ModelConfig, context: int, *, two_texts: bool = False
) -> tuple[Notice, ...]:
    """What a FLOP count holds.

    Args:
        config: the model; of an encoder-decoder, its decoder.
        context: tokens a text.
        two_texts: it is an encoder-decoder.
    """
    counted = Notice(
        "operations: 2 for each weight that multiplies a token, 3 times the forward pass in "
        "training; norms, activations and embeddings are not counted"
    )
    if not config.attention:
        return (counted,)
    reach = float(mean_reach(config, context))
    if two_texts:
        pair = Notice(
            "a token is one of the target with one of the source, {context:,} of each; a token of "
            "the source looks at all of it, one of the target at {reach:,.1f} of its own text on "
            "average and at all of the source",
            context=context,
            reach=reach,
        )
        return counted, pair
    if not config.causal:
        scores = Notice(
            "attention's quadratic term: each token looks at all {context:,}", context=context
        )
    else:
        scores = Notice(
            "attention's quadratic term: each token looks at {reach:,.1f} on average, since the "
            "mask hides the rest of {context:,}; a kernel that computes what is hidden does more",
            reach=reach,
            context=context,
        )
    return counted, scores


def of_training(
    optimal: int,
    each: int,
    *,
    tokens: int,
    hardware: Accelerator | None,
    peak_flops: float | None,
    utilisation: float,
    two_texts: bool = False,
) -> tuple[Notice, ...]:
    """Where the number of tokens comes from, and what the time takes for granted.

    Args:
        optimal: tokens of compute-optimal training.
        each: tokens a parameter that this is.
        tokens: of the training whose time is given.
        hardware: the accelerator, or None for this machine.
        peak_flops: this machine's measured speed, or None where there is none.
        utilisation: share of the peak that is reached.
        two_texts: it is an encoder-decoder.
    """
    deserved = Notice(
        "compute-optimal training: {tokens:,} tokens, {each} for each parameter (Hoffmann et al. "
        "2022)",
        tokens=optimal,
        each=each,
    )
    if two_texts:
        deserved = Notice(
            "compute-optimal training: {tokens:,} tokens, {each} for each parameter, as Hoffmann "
            "et al. (2022) found for decoders; for an encoder-decoder it is a guess",
            tokens=optimal,
            each=each,
        )
    if hardware is not None:
        time = Notice(
            "time: {tokens:,} tokens on one {name} at {utilisation:.0%}, which is assumed, of its "
            "{tera:,.0f} TFLOP/s (dense bfloat16; {source})",
            tokens=tokens,
            name=hardware.name,
            utilisation=utilisation,
            tera=hardware.flops / TERA,
            source=hardware.source,
        )
    elif peak_flops is not None:
        time = Notice(
            "time: {tokens:,} tokens on this machine at {utilisation:.0%}, which is assumed, of "
            "its measured {tera:,.2f} TFLOP/s",
            tokens=tokens,
            utilisation=utilisation,
            tera=peak_flops / TERA,
        )
    else:
        return (deserved,)
    return deserved, time


def _attention_gap(config: ModelConfig, count: int) -> Notice:
    if not config.attention:
        return Notice(
            "it takes 4 d² a block for attention, and there is none: {count:+,}", count=count
        )
    return Notice(
        "it takes 4 d² a block for attention; {heads} heads of {size} with {shared} for keys and "
        "values differ by {count:+,}",
        heads=config.n_heads,
        size=config.head_size,
        shared=config.key_value_heads,
        count=count,
    )


def _feedforward_gap(config: ModelConfig, count: int) -> Notice:
    if config.feedforward == "none":
        return Notice(
            "it takes 8 d² a block for a feed-forward layer, and there is none: {count:+,}",
            count=count,
        )
    return Notice(
        "it takes 8 d² a block for the feed-forward layer; {kind} of inner width {inner:,} differs "
        "by {count:+,}",
        kind=config.feedforward,
        inner=config.inner_width,
        count=count,
    )
