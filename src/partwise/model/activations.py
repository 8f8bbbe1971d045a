"""What the forward pass must keep for the backward pass, counted by walking through the model.

Each operation keeps what its derivative needs: a matrix product its input, GELU its input, ReLU its
output, attention its queries, keys, values and result. A value that several operations need is kept
once. The walk below repeats the order of `gpt.py` and `block.py`, with sizes in place of tensors.

Source: the count for one standard block is that of Korthikanti et al. 2022, "Reducing Activation
Recomputation in Large Transformer Models", section 4.1; what is kept here is torch's own choice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from partwise.model.config import ModelConfig
from partwise.model.parameters import has_final_norm

Kernels = Literal["plain", "fused"]
Bytes = Literal[2, 4]

INDEX = 8  # bytes of an int64


@dataclass(frozen=True)
class Activations:
    """Bytes kept between the forward and the backward pass of one batch.

    Args:
        outside: embeddings, final norm, output layer and loss.
        blocks: all blocks together, with the rotary tables that they share.
        largest_block: the block that keeps most.
        block_input: the residual stream where a block begins.
        n_layers: number of blocks.
    """

    outside: int
    blocks: int
    largest_block: int
    block_input: int
    n_layers: int

    @property
    def kept(self) -> int:
        """Bytes when everything is kept."""
        return self.outside + self.blocks

    @property
    def checkpointed(self) -> int:
        """Bytes when each block keeps its input alone, and is computed again when it is needed.

        Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 4.
        """
        return min(self.kept, self.outside + self.n_layers * self.block_input + self.largest_block)


def activations(
    config: ModelConfig,
    batch: int,
    context: int,
    *,
    precision: Bytes = 4,
    kernels: Kernels = "plain",
) -> Activations:
    """What a training step keeps, for `batch` texts of `context` tokens computed at once.

    Args:
        config: the model; its dropout counts, since masks are kept.
        batch: texts B (of one part, where a batch is accumulated from several).
        context: tokens T a text.
        precision: bytes of a number in matrix products; the residual stream has 4.
        kernels: "plain" for torch on a CPU, which holds the weights of attention where they are
            dropped out, and a 4-byte number for each dropped feature; "fused" for a GPU, which
            holds neither.
    """
    walk = Walk(config, batch, context, precision, kernels)
    x = embedded = walk.embedding()
    before = walk.total()
    blocks, block_input = [], 4 * batch * context * config.d_model
    for _ in range(config.n_layers):
        start = walk.total()
        if config.embedding_shortcut:
            walk.keep(x, embedded)
            x = walk.stream()
        x = walk.block(x)
        blocks.append(walk.total() - start)
    after = walk.total()
    walk.output(x)
    outside = before + walk.total() - after
    return Activations(outside, sum(blocks), max(blocks), block_input, config.n_layers)


@dataclass(eq=False)
class Value:
    """A tensor by its size in bytes; two of the same size are still two."""

    size: int
    wide: bool = True  # 4 bytes a number, whatever matrix products are computed in


@dataclass
class Walk:
    """One pass through the model that notes what is kept.

    Args:
        config, batch, context, precision, kernels: see `activations`.
    """

    config: ModelConfig
    batch: int
    context: int
    precision: Bytes
    kernels: Kernels
    kept: dict[int, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = self.config
        # Made once and used by every block: cosines and sines, and the biases of ALiBi.
        self.rotation = Value(2 * 4 * self.context * config.head_size)
        self.biases = Value(4 * config.n_heads * self.context**2)

    def keep(self, *values: Value) -> None:
        """Note values that a derivative needs."""
        self.kept.update((id(value), value) for value in values)

    def keep_bytes(self, size: int) -> None:
        """Note a value that nothing else uses."""
        self.keep(Value(size))

    def total(self) -> int:
        """Bytes noted so far."""
        return sum(value.size for value in self.kept.values())

    @property
    def tokens(self) -> int:
        """Tokens in the batch."""
        return self.batch * self.context

    @property
    def placement(self) -> str:
        """Where the norms stand."""
        return "none" if self.config.norm == "none" else self.config.norm_placement

    def stream(self) -> Value:
        """A new (B, T, d_model) in the residual stream."""
        return Value(4 * self.tokens * self.config.d_model)

    def product(self, features: int) -> Value:
        """A new (B, T, features) out of a matrix product."""
        return Value(self.precision * self.tokens * features, wide=self.precision == 4)

    # --- The parts, in the order in which a token meets them ---------------------------------

    def embedding(self) -> Value:
        """Rows of tables: their numbers are kept."""
        config = self.config
        self.keep_bytes(INDEX * self.tokens)
        if config.position == "learned":
            self.keep_bytes(INDEX * self.context)
        for _ in range(2, config.ngram + 1):
            self.keep_bytes(INDEX * self.tokens)
            self.keep_bytes(self.tokens)  # which n-grams are whole, one byte each
        if config.embedding_dropout:
            self.draws()
        return self.stream()

    def block(self, x: Value) -> Value:
        """See `Block.forward`."""
        config = self.config
        if config.parallel:
            h = self.norm(x) if self.placement == "pre" else x
            self.drop(self.attention(h))
            self.drop(self.feedforward(h))
            return self.stream()
        if config.attention:
            x = self.sublayer(x, self.attention)
        if config.feedforward != "none":
            x = self.sublayer(x, self.feedforward)
        return x

    def sublayer(self, x: Value, part: Callable[[Value], Value]) -> Value:
        """One part with its norm and its way back into the residual stream."""
        y = self.drop(part(self.norm(x) if self.placement == "pre" else x))
        x = self.stream() if self.config.residual else y
        return self.norm(x) if self.placement == "post" else x

    def norm(self, x: Value) -> Value:
        """LayerNorm keeps x, its mean and its deviation; RMSNorm also x / rms on a CPU."""
        self.keep(x)
        if self.config.norm == "batchnorm":
            self.keep_bytes(2 * 4 * self.config.d_model)
            return self.stream()
        if self.config.norm == "layernorm":
            self.keep_bytes(2 * 4 * self.tokens)
            return self.stream()
        self.rms_scale(1, self.config.d_model)
        return self.stream()

    def rms_scale(self, groups: int, features: int) -> None:
        """What RMSNorm keeps beside its input, over `groups` groups a token."""
        self.keep_bytes(4 * self.tokens * groups)
        if self.kernels == "plain":
            self.keep_bytes(4 * self.tokens * features)

    def linear(self, x: Value, features: int) -> Value:
        """x W^T: x is kept, as a copy where it must be made shorter."""
        if x.wide and self.precision < 4:
            self.keep_bytes(x.size * self.precision // 4)
        else:
            self.keep(x)
        return self.product(features)

    def attention(self, h: Value) -> Value:
        """See `Attention.forward`."""
        config = self.config
        queries = config.n_heads * config.head_size
        keys = config.key_value_heads * config.head_size
        qkv = self.linear(h, queries + 2 * keys)
        q = k = qkv  # the three are views of one tensor
        if config.qk_norm:
            if self.precision < 4 and self.kernels == "plain":
                self.keep_bytes(4 * self.tokens * (queries + keys))  # made longer for the norm
            else:
                self.keep(qkv)
            self.rms_scale(config.n_heads + config.key_value_heads, queries + keys)
            q, k = self.product(queries), self.product(keys)
        if config.position == "rotary":
            self.keep(self.rotation)
            q, k = self.product(queries), self.product(keys)
        y = self.scores(q, k, qkv)
        return self.linear(y, config.d_model) if config.output_projection else y

    def scores(self, q: Value, k: Value, v: Value) -> Value:
        """softmax(q k^T) v: fused, or with the weights written out where they are dropped out."""
        config = self.config
        queries = config.n_heads * config.head_size
        y = self.product(queries)
        if config.attention_dropout_rate and self.kernels == "plain":
            # Written out, attention is computed in 4 bytes. It keeps q, k and v in an order of
            # their own, which with a single text or head is the one they had.
            grouped = config.key_value_heads != config.n_heads
            as_it_was = self.batch == 1 or config.n_heads == 1
            for value, repeated in ((q, False), (k, grouped), (v, grouped)):
                if as_it_was and not repeated and self.precision == 4:
                    self.keep(value)
                else:
                    self.keep_bytes(4 * self.tokens * queries)
            # The weights before dropout and after it, the draws, and what is hidden.
            weights = self.batch * config.n_heads * self.context**2
            self.keep_bytes((4 + 4 + 1) * weights)
            if config.position != "alibi":
                self.keep_bytes(self.context**2)
            return y
        self.keep(q, k, v, y)
        self.keep_bytes(4 * self.tokens * config.n_heads)  # log of each row's sum
        if config.position == "alibi":
            self.keep(self.biases)
        elif config.window is not None and self.context > config.window:
            self.keep_bytes(self.precision * self.context**2)
        return y

    def feedforward(self, h: Value) -> Value:
        """See `FeedForward.forward`."""
        config = self.config
        width = config.inner_width
        y = self.linear(h, width)
        if config.feedforward == "swiglu":
            gate = self.linear(h, width)
            self.keep(y, gate, self.product(width))  # up(x), gate(x), silu(gate(x))
            y = self.product(width)
        elif config.feedforward == "relu":
            y = self.product(width)
            self.keep(y)
        elif config.feedforward == "relu2":
            self.keep(self.product(width))
            y = self.product(width)
        else:
            self.keep(y)
            y = self.product(width)
        return self.linear(y, config.d_model) if config.feedforward_output else y

    def drop(self, y: Value) -> Value:
        """Dropout keeps which numbers it kept."""
        if not self.config.dropout:
            return y
        self.draws()
        return Value(y.size, y.wide)

    def draws(self) -> None:
        """One byte for each number of a (B, T, d_model)."""
        self.keep_bytes(self.tokens * self.config.d_model)

    def output(self, x: Value) -> None:
        """Final norm, output layer and cross-entropy, which is computed in 4 bytes."""
        config = self.config
        if has_final_norm(config):
            x = self.norm(x)
        logits = self.linear(x, config.vocab_size)
        if config.logit_soft_cap is not None:
            self.keep(logits)
        self.keep_bytes(4 * self.tokens * config.vocab_size)  # the logarithms of the softmax
        self.keep_bytes(INDEX * self.tokens)  # the targets
