"""The whole GPT in NumPy, to be read from top to bottom: ids -> embedding -> blocks -> logits.

Nothing here is fast and nothing is hidden: every part of `ModelConfig` stands below once, in the
order in which a token meets it, as the formula that defines it. The torch model must give the same
numbers; the tests hold it to that, so this file is both the lesson and the oracle.

What it leaves out belongs to training (dropout) or to speed (the cache). Letters in the shapes:
B texts of T tokens, H heads, G heads of keys and values, S features a head, D = d_model.
"""

import math
from collections.abc import Mapping

import numpy as np

from partwise.model.config import ModelConfig

Array = np.ndarray
Weights = Mapping[str, Array]


def forward(config: ModelConfig, weights: Weights, ids: Array) -> Array:
    """logits = head(norm(block_N(… block_1(embed(ids))))): one score for every possible next token.

    Args:
        config: which parts the model has, and how wide they are.
        weights: the torch model's state, name -> array; the arithmetic is done in their dtype.
        ids: token numbers, (B, T); T is at most the context length where positions are learned.

    Returns:
        Logits, (B, T, vocab_size): row t scores the token that follows ids[:, t].
    """
    x = embedded = embed(config, weights, ids)  # (B, T, D)
    for layer in range(config.n_layers):
        if config.embedding_shortcut:
            keep, again = weights["shortcut"][layer]
            x = keep * x + again * embedded
        x = block(config, part(weights, f"blocks.{layer}"), x)
    if config.final_norm:
        x = norm(config, part(weights, "final_norm"), x)
    head = part(weights, "head")
    if config.tie_embeddings:
        # A token scores high where the stream points along that token's own embedding.
        head["weight"] = weights["token_embedding.weight"]
    logits = linear(head, x)  # (B, T, vocab_size)
    if config.logit_soft_cap is not None:
        # Gemma 2's cap (Gemma Team, 2024, section 2): nearly straight near 0, flat far from it.
        logits = config.logit_soft_cap * np.tanh(logits / config.logit_soft_cap)
    return logits


def part(weights: Weights, name: str) -> dict[str, Array]:
    """The weights of one part, without the part's name before theirs."""
    return {
        key.removeprefix(f"{name}."): value
        for key, value in weights.items()
        if key.startswith(f"{name}.")
    }


def linear(w: Weights, x: Array) -> Array:
    """y = x W^T + b; a row of W belongs to one output feature."""
    y: Array = x @ w["weight"].T
    return y + w["bias"] if "bias" in w else y


# --- From ids to the residual stream ----------------------------------------------------------


def embed(config: ModelConfig, weights: Weights, ids: Array) -> Array:
    """x = token + position + n-grams: where the residual stream begins, (B, T, D)."""
    x: Array = weights["token_embedding.weight"][ids]  # (B, T, D)
    if config.scale_embeddings:
        x = x * math.sqrt(config.d_model)
    steps = ids.shape[1]
    if config.position == "learned":
        x = x + weights["position_embedding.weight"][:steps]
    elif config.position == "sinusoidal":
        x = x + sinusoids(steps, config.d_model).astype(x.dtype)
    for n in range(2, config.ngram + 1):
        rows = ngram_rows(ids, n, config.vocab_size, config.ngram_table_rows(n))  # (B, T - n + 1)
        # The first n - 1 tokens end no n-gram, and get nothing.
        x[:, n - 1 :] += weights[f"ngram_tables.{n - 2}.weight"][rows]
    return x


def sinusoids(steps: int, width: int) -> Array:
    """PE[t, 2i] = sin(t / 10000^(2i/D)), PE[t, 2i + 1] = cos(the same), (T, D).

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """
    angles = np.arange(steps)[:, None] * 10000.0 ** -(np.arange(0, width, 2) / width)  # (T, D / 2)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(steps, width)


def ngram_rows(ids: Array, n: int, vocab_size: int, rows: int) -> Array:
    """Which row of the table of n-grams stands for the n tokens that end at each place.

    While the table has a row for every n-gram, the tokens are the digits of its number; a smaller
    table is shared by hashing, and two n-grams may then meet in one row.
    """
    count = max(ids.shape[1] - n + 1, 0)
    index = np.zeros((len(ids), count), dtype=np.int64)
    for place in range(n):  # oldest token first
        token = ids[:, place : place + count]
        exact = vocab_size**n <= rows
        index = index * vocab_size + token if exact else (index * 1000003 + token + 1) % rows
    return index


# --- One block ----------------------------------------------------------------------------------


def block(config: ModelConfig, w: Weights, x: Array) -> Array:
    """Attention lets tokens talk; the feed-forward layer lets each think; x + … keeps both.

    pre-norm:  x = x + sublayer(norm(x))      (GPT-2 and nearly all that came after)
    post-norm: x = norm(x + sublayer(x))      (the original Transformer)
    parallel:  x = x + attention(norm(x)) + feedforward(norm(x))      (PaLM)

    Source: Vaswani et al. 2017, section 3.1; Xiong et al. 2020, "On Layer Normalization in the
    Transformer Architecture", section 3; Chowdhery et al. 2022, "PaLM", section 2.
    """
    pre, post = (config.norm_placement == placement for placement in ("pre", "post"))
    if config.parallel:
        y = norm(config, part(w, "norm1"), x) if pre else x
        heard = attention(config, part(w, "attention"), y)
        return rejoin(config, x, heard + feedforward(config, part(w, "feedforward"), y))
    for number, name, sublayer in ((1, "attention", attention), (2, "feedforward", feedforward)):
        if not (config.attention if number == 1 else config.feedforward != "none"):
            continue
        y = norm(config, part(w, f"norm{number}"), x) if pre else x
        y = sublayer(config, part(w, name), y)
        x = rejoin(config, x, y)
        x = norm(config, part(w, f"norm{number}"), x) if post else x
    return x


def rejoin(config: ModelConfig, x: Array, y: Array) -> Array:
    """x + y: a sublayer adds to the stream what it found, and the gradient has a way past it.

    Source: He et al. 2016, "Deep Residual Learning for Image Recognition".
    """
    both: Array = x + y
    return both if config.residual else y


def norm(config: ModelConfig, w: Weights, x: Array) -> Array:
    """Bring features to a common scale, then let the model choose its own: gamma * x_hat + beta.

    layernorm: x_hat = (x - mean) / sqrt(variance + eps), over the features of *one token*
    rmsnorm:   x_hat = x / sqrt(mean(x^2) + eps), the same without centring
    batchnorm: as layernorm, but over *all tokens of the batch*; outside training it uses the mean
               and variance that it remembers from training

    Source: Ba et al. 2016, "Layer Normalization"; Zhang and Sennrich 2019, "Root Mean Square Layer
    Normalization"; Ioffe and Szegedy 2015, "Batch Normalization".
    """
    if config.norm == "none":
        return x
    if config.norm == "rmsnorm":
        return rms_norm(w["weight"], x, config.norm_eps)
    if config.norm == "layernorm":
        mean = x.mean(axis=-1, keepdims=True)  # (B, T, 1)
        variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)  # (B, T, 1)
    else:
        mean, variance = w["running_mean"], w["running_var"]  # (D,)
    x_hat = (x - mean) / np.sqrt(variance + config.norm_eps)
    y: Array = w["weight"] * x_hat
    return y + w["bias"] if "bias" in w else y


def rms_norm(weight: Array, x: Array, eps: float) -> Array:
    """y = gamma * x / sqrt(mean(x^2) + eps), over the last axis."""
    y: Array = weight * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    return y


# --- Attention ------------------------------------------------------------------------------------


def attention(config: ModelConfig, w: Weights, x: Array) -> Array:
    """softmax(Q K^T / sqrt(S)) V for each head, then the heads side by side through one matrix.

    Fewer heads of keys and values than of queries (G < H) means that H / G neighbours share one:
    grouped-query attention, and multi-query where G = 1.

    Source: Vaswani et al. 2017, section 3.2; Shazeer 2019, "Fast Transformer Decoding"; Ainslie et
    al. 2023, "GQA"; Henry et al. 2020, "Query-Key Normalization" (here with RMSNorm).
    """
    batch, steps, _ = x.shape
    n_heads, n_kv_heads, size = config.n_heads, config.key_value_heads, config.head_size
    ends = [n_heads * size, (n_heads + n_kv_heads) * size]
    q, k, v = (
        rows.reshape(batch, steps, -1, size).swapaxes(1, 2)  # (B, H or G, T, S)
        for rows in np.split(linear(part(w, "qkv"), x), ends, axis=-1)
    )
    if config.qk_norm:
        q = rms_norm(w["query_norm.weight"], q, config.norm_eps)
        k = rms_norm(w["key_norm.weight"], k, config.norm_eps)
    if config.position == "rotary":
        q, k = rotate(config, q), rotate(config, k)
    k, v = (np.repeat(shared, n_heads // n_kv_heads, axis=1) for shared in (k, v))  # (B, H, T, S)

    scores = q @ k.swapaxes(-1, -2) / math.sqrt(size)  # (B, H, T, T): row asks, column answers
    back = np.arange(steps)[:, None] - np.arange(steps)  # (T, T): how many tokens ago
    if config.position == "alibi":
        slopes = alibi_slopes(n_heads).astype(x.dtype)
        scores = scores - slopes[:, None, None] * np.abs(back).astype(x.dtype)
    if config.causal:
        hidden = back < 0
        if config.window is not None:
            hidden |= back >= config.window
        scores = np.where(hidden, -np.inf, scores)
    y = softmax(scores) @ v  # (B, H, T, S)

    y = y.swapaxes(1, 2).reshape(batch, steps, n_heads * size)  # heads side by side
    return linear(part(w, "projection"), y) if config.output_projection else y  # (B, T, D)


def softmax(scores: Array) -> Array:
    """exp(s) / sum(exp(s)) over the last axis; taking the largest off first changes only safety."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return shares


def rotate(config: ModelConfig, x: Array) -> Array:
    """Turn feature pair (i, i + S/2) of the token at t by the angle t * frequency_i.

    A query and a key turned so meet at the difference of their angles, so a score depends on how
    far apart two tokens are and not on where they stand.

    Source: Su et al. 2021, "RoFormer", section 3.4; pairs by halves as in GPT-NeoX and LLaMA.
    """
    half = config.head_size // 2
    angles = np.arange(x.shape[2])[:, None] * rope_frequencies(config)  # (T, S / 2)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    x1, x2 = x[..., :half], x[..., half:]  # (B, H, T, S / 2)
    return np.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], axis=-1)


def rope_frequencies(config: ModelConfig) -> Array:
    """frequency_i = base^(-2i/S), and slower for longer texts where scaling asks for it, (S / 2,).

    linear: every frequency divided by the factor (Chen et al. 2023, "Position Interpolation").
    llama3: only slow ones are; those that turn often within the original context stay, and between
    the two limits one form fades into the other (Llama Team 2024, "The Llama 3 Herd of Models").
    """
    frequencies = config.rope_base ** -(np.arange(0, config.head_size, 2) / config.head_size)
    if config.rope_scaling == "none":
        return frequencies
    stretched = frequencies / config.rope_factor
    if config.rope_scaling == "linear":
        return stretched
    turns = config.rope_original_context * frequencies / (2 * math.pi)
    low, high = config.rope_low_frequency_factor, config.rope_high_frequency_factor
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return kept * frequencies + (1 - kept) * stretched


def alibi_slopes(n_heads: int) -> Array:
    """Head h of H loses 2^(-8h/H) a token of distance; h = 1 … H when H is a power of two, (H,).

    Other counts take the slopes of the power of two below, then every other one of the next power.

    Source: Press et al. 2022, "Train Short, Test Long", section 3, and their published code.
    """
    power = 2 ** int(math.log2(n_heads))
    slopes = 2.0 ** (-8 / power * np.arange(1, power + 1))
    between = 2.0 ** (-4 / power * np.arange(1, 2 * power + 1, 2))
    return np.concatenate([slopes, between[: n_heads - power]])


# --- Feed-forward ---------------------------------------------------------------------------------


def feedforward(config: ModelConfig, w: Weights, x: Array) -> Array:
    """y = down(activation(up(x))), each token by itself; SwiGLU: down(silu(gate(x)) * up(x)).

    Source: Vaswani et al. 2017, section 3.3; Hendrycks and Gimpel 2016, "Gaussian Error Linear
    Units"; So et al. 2021, "Primer" (relu^2); Shazeer 2020, "GLU Variants Improve Transformer".
    """
    y = linear(part(w, "up"), x)  # (B, T, d_ff)
    if config.feedforward == "relu":
        y = np.maximum(y, 0)
    elif config.feedforward == "relu2":
        y = np.maximum(y, 0) ** 2
    elif config.feedforward == "gelu":
        # y * P(N(0, 1) <= y); NumPy has no erf, so Python's is applied number by number.
        erf = np.vectorize(math.erf, otypes=[y.dtype])
        y = y * (1 + erf(y / math.sqrt(2))) / 2
    elif config.feedforward == "gelu_tanh":
        y = y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3))) / 2
    else:
        gate = linear(part(w, "gate"), x)  # (B, T, d_ff)
        with np.errstate(over="ignore"):  # e^-gate may be infinite, and 1 / infinity is right
            y = gate / (1 + np.exp(-gate)) * y
    return linear(part(w, "down"), y) if config.feedforward_output else y  # (B, T, D)
