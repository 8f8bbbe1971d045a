"""A model as a drawing: the stages of its block and of its whole, each with formula and shape.

The classic pre-norm block has eight stages: input, norm, attention, + residual, norm, feed-forward,
+ residual, output. Post-norm has its norms elsewhere, a parallel block has its sublayers side by
side, and a part that a model lacks has no stage. A token is a row, so W stands on the right.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from partwise.model.config import ModelConfig

Kind = Literal["input", "norm", "attention", "feedforward", "residual", "sum", "output"]

_ACTIVATIONS = {
    "relu": r"\mathrm{ReLU}",
    "gelu": r"\mathrm{GELU}",
    "gelu_tanh": r"\mathrm{GELU}",
    "relu2": r"\mathrm{ReLU}^2",
}


@dataclass(frozen=True)
class Inner:
    """A tensor inside a stage.

    Args:
        id: its name behind `block.{i}.`; `tensors.find` knows it.
        symbol: as the formula writes it, in LaTeX.
        shape: names of its dimensions; see `sizes`.
        by_head: whether each head has its own.
    """

    id: str
    symbol: str
    shape: tuple[str, ...]
    by_head: bool = False


@dataclass(frozen=True)
class Stage:
    """One box of a block.

    Args:
        id: `input`, `norm1`, `attention`, `residual1`, `norm2`, `feedforward`, `residual2` or
            `output`; `sum` where a parallel block adds up.
        kind: what it is.
        variant: which of its kind, such as "rmsnorm" or "swiglu"; else empty.
        symbol: of what comes out, in LaTeX.
        reads: ids of the stages that it reads; one that does not stand right before it is drawn as
            a way around.
        formula: lines of LaTeX.
        shape: names of the dimensions of what comes out.
        inner: what can be looked at inside.
    """

    id: str
    kind: Kind
    symbol: str
    reads: tuple[str, ...]
    formula: tuple[str, ...]
    variant: str = ""
    shape: tuple[str, ...] = ("T", "d")
    inner: tuple[Inner, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the tensor's name behind `block.{i}.`."""
        return {**asdict(self), "tensor": "output" if self.id == "sum" else self.id}


def sizes(config: ModelConfig, tokens: int) -> dict[str, int]:
    """What the names of dimensions stand for.

    T tokens, d features, N blocks, V tokens of the vocabulary, C context; H heads, G heads of keys
    and values, k features a head, H*k joined; f features inside the feed-forward layer.
    """
    known = {
        "T": tokens,
        "d": config.d_model,
        "N": config.n_layers,
        "V": config.vocab_size,
        "C": config.context_length,
    }
    if config.attention:
        known |= {"H": config.n_heads, "G": config.key_value_heads, "k": config.head_size}
        known["H*k"] = config.n_heads * config.head_size
    if config.feedforward != "none":
        known["f"] = config.inner_width
    return known


def block_stages(config: ModelConfig) -> tuple[Stage, ...]:
    """The stages of one block, in the order of computation."""
    return _Block(config).stages()


class _Block:
    """Builds the stages one after the other; `at` and `symbol` are where the stream has come to."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.placement = "none" if config.norm == "none" else config.norm_placement
        self.made = [Stage("input", "input", "x", (), (_input_formula(config),))]
        self.at, self.symbol = "input", "x"

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        if config.parallel:
            self._parallel()
        else:
            if config.attention:
                self._sublayer("attention", "a", ("h", "r", "u"), "norm1", "residual1")
            if config.feedforward != "none":
                self._sublayer("feedforward", "f", ("g", "s", "y"), "norm2", "residual2")
        last = self.symbol
        line = rf"x_{{\text{{next}}}} = {last}"
        self.made.append(Stage("output", "output", last, (self.at,), (line,)))
        return tuple(self.made)

    def _sublayer(
        self, part: str, result: str, symbols: tuple[str, str, str], norm: str, residual: str
    ) -> None:
        """`symbols`: what a norm before gives, the sum that a norm after reads, the new stream."""
        skipped, stream = self.at, self.symbol
        before, raw, after = symbols
        if self.placement == "pre":
            self._norm(norm, before)
        self._part(part, result)
        norm_follows = self.placement == "post"
        if self.config.residual:
            summed = raw if norm_follows else after
            line = f"{summed} = {stream} + {result}"
            self._add(Stage(residual, "residual", summed, (skipped, part), (line,)))
        if norm_follows:
            self._norm(norm, after)

    def _parallel(self) -> None:
        skipped = self.at
        if self.placement == "pre":
            self._norm("norm1", "h")
        read, symbol = self.at, self.symbol
        self._part("attention", "a")
        self.at, self.symbol = read, symbol
        self._part("feedforward", "f")
        both = ("attention", "feedforward")
        if self.config.residual:
            reads, line = (skipped, *both), ("y = x + a + f",)
            self._add(Stage("sum", "residual", "y", reads, line, variant="parallel"))
        else:
            self._add(Stage("sum", "sum", "y", both, ("y = a + f",), variant="parallel"))

    def _norm(self, id: str, result: str) -> None:
        config = self.config
        formula = norm_formula(config, result, self.symbol)
        self._add(Stage(id, "norm", result, (self.at,), formula, variant=config.norm))

    def _part(self, part: str, result: str) -> None:
        config = self.config
        if part == "attention":
            self._add(
                Stage(
                    "attention",
                    "attention",
                    result,
                    (self.at,),
                    attention_formula(config, result, self.symbol),
                    variant=_attention_variant(config),
                    inner=(
                        Inner("attention.query", "Q_i", ("T", "k"), by_head=True),
                        Inner("attention.key", "K_i", ("T", "k"), by_head=True),
                        Inner("attention.weights", "A_i", ("T", "T"), by_head=True),
                        Inner("attention.value", "V_i", ("T", "k"), by_head=True),
                        Inner("attention.joined", r"[A_1 V_1 \cdots A_H V_H]", ("T", "H*k")),
                    ),
                )
            )
            return
        hidden = (Inner("feedforward.hidden", "z", ("T", "f")),)
        self._add(
            Stage(
                "feedforward",
                "feedforward",
                result,
                (self.at,),
                feedforward_formula(config, result, self.symbol),
                variant=config.feedforward,
                inner=hidden if config.feedforward_output else (),
            )
        )

    def _add(self, stage: Stage) -> None:
        self.made.append(stage)
        self.at, self.symbol = stage.id, stage.symbol


def norm_formula(config: ModelConfig, result: str, x: str) -> tuple[str, ...]:
    """The norm's formula, and what its letters mean."""
    shift = r" + \beta" if config.norm_bias and config.norm != "rmsnorm" else ""
    if config.norm == "rmsnorm":
        mean_square = rf"\tfrac{{1}}{{d}} \sum_j {x}_j^2"
        return (rf"{result} = \gamma \odot \frac{{{x}}}{{\sqrt{{{mean_square} + \epsilon}}}}",)
    main = rf"{result} = \gamma \odot \frac{{{x} - \mu}}{{\sqrt{{\sigma^2 + \epsilon}}}}{shift}"
    if config.norm == "batchnorm":
        return (main, r"\mu_j,\ \sigma_j^2:\ \text{running mean and variance of feature } j")
    mean = rf"\mu = \tfrac{{1}}{{d}} \sum_j {x}_j"
    variance = rf"\sigma^2 = \tfrac{{1}}{{d}} \sum_j ({x}_j - \mu)^2"
    return (main, mean, variance)


def attention_formula(config: ModelConfig, result: str, x: str) -> tuple[str, ...]:
    """Queries, keys, values; the weights; what is mixed and joined."""

    def bias(name: str, there: bool) -> str:
        return f" + b_{name}" if there else ""

    shared = config.key_value_heads != config.n_heads
    kv = "g(i)" if shared else "i"
    projections = r" \\ ".join(
        f"{letter} &= {x} W_{letter}{bias(letter, config.qkv_bias)}" for letter in "QKV"
    )
    query, key = "Q_i", f"K_{{{kv}}}"
    turned = []
    for one in (query, key):
        line = rf"\mathrm{{norm}}({one})" if config.qk_norm else one
        turned.append(f"R_t({line})" if config.position == "rotary" else line)
    changed = turned != [query, key]
    if changed:
        query, key = rf"\tilde {query}", rf"\tilde {key}"
    inside = rf"\frac{{{query}\, {key}^\top}}{{\sqrt{{d_k}}}}"
    if config.position == "alibi":
        inside += r" - m_i\,|t - s|"
    lines = [rf"\begin{{aligned}} {projections} \end{{aligned}}"]
    if config.causal:
        inside += " + M"
    if changed:
        pairs = zip((query, key), turned, strict=True)
        lines.append(r" \quad ".join(f"{name} = {line}" for name, line in pairs))
    lines.append(rf"A_i = \mathrm{{softmax}}\!\left({inside}\right)")
    joined = rf"[\,A_1 V_{{{kv.replace('i', '1')}}}\ \cdots\ A_H V_{{{kv.replace('i', 'H')}}}\,]"
    projection = " W_O" + bias("O", config.projection_bias) if config.output_projection else ""
    lines.append(f"{result} = {joined}{projection}")
    if config.causal:
        seen = r"s \le t" if config.window is None else rf"t - {config.window} < s \le t"
        lines.append(rf"M_{{ts}} = 0\ \text{{if}}\ {seen},\ \text{{else}}\ -\infty")
    return tuple(lines)


def feedforward_formula(config: ModelConfig, result: str, x: str) -> tuple[str, ...]:
    """Up, the activation, and down again."""
    biased = config.feedforward_bias
    up = f"{x} W_1" + (" + b_1" if biased else "")
    if config.feedforward == "swiglu":
        gate = f"{x} W_g" + (" + b_g" if biased else "")
        inner = rf"\mathrm{{SiLU}}({gate}) \odot ({up})"
    else:
        inner = rf"{_ACTIVATIONS[config.feedforward]}({up})"
    if not config.feedforward_output:
        return (f"{result} = {inner}",)
    return (f"z = {inner}", f"{result} = z W_2" + (" + b_2" if biased else ""))


def embedding_formula(config: ModelConfig) -> str:
    """How the stream of the first block comes about."""
    line = r"x = E_{\text{id}}"
    if config.scale_embeddings:
        line += r" \sqrt{d}"
    if config.position in ("learned", "sinusoidal"):
        line += " + P_t"
    if config.ngram > 1:
        line += r" + \sum_n G^{(n)}_{\text{id}_{t-n+1} \cdots \text{id}_t}"
    return line


def pipeline(config: ModelConfig) -> list[dict[str, Any]]:
    """The way through the whole model: name of the tensor, kind and shape of each station.

    The blocks stand for one station, `blocks`; what leaves each is `block.{i}.output`.
    """

    def station(id: str, tensor: str, *shape: str) -> dict[str, Any]:
        return {"id": id, "tensor": tensor, "shape": list(shape)}

    stations = [station("ids", "", "T"), station("token", "embedding.token", "T", "d")]
    if config.position in ("learned", "sinusoidal"):
        stations.append(station("position", "embedding.position", "T", "d"))
    if config.ngram > 1:
        stations.append(station("ngram", "embedding.ngram", "T", "d"))
    stations.append(station("embedding", "embedding", "T", "d"))
    stations.append(station("blocks", f"block.{config.n_layers - 1}.output", "T", "d"))
    if config.final_norm and config.norm != "none":
        stations.append(station("final_norm", "final_norm", "T", "d"))
    stations.append(station("logits", "logits", "T", "V"))
    stations.append(station("probabilities", "", "T", "V"))
    return stations


def _input_formula(config: ModelConfig) -> str:
    if config.embedding_shortcut:
        return r"x = s_0\, x_{\text{below}} + s_1\, x_{\text{embedding}}"
    return r"x = x_{\text{below}}"


def _attention_variant(config: ModelConfig) -> str:
    if config.n_heads == 1:
        return "single"
    if config.key_value_heads == 1:
        return "multi_query"
    return "multi_head" if config.key_value_heads == config.n_heads else "grouped"
