"""The LLaMA form and its relatives: RMSNorm, rotary positions, queries, keys and values apart.

They differ in few things, which stand in one table, `VARIANTS`.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from partwise.interop.fields import Fields
from partwise.interop.form import EVERYWHERE, differing
from partwise.interop.gpt2 import ACTIVATIONS
from partwise.interop.rope import is_dynamic, rope_fields, rope_settings, rope_table
from partwise.interop.rules import Rule, linear
from partwise.messages import Notice
from partwise.model.config import FeedForwardKind, ModelConfig


@dataclass(frozen=True)
class LlamaForm:
    """One model type.

    Args:
        model_type: its name in `config.json`.
        architecture: its class in transformers.
        gated: SwiGLU; otherwise one matrix up, an activation, one matrix down.
        qk_norm: queries and keys are normed, head by head.
        attention_bias: "field" decides, "qkv" has them there and not in the projection, or "none".
        mlp_bias: there is such a field; otherwise no biases in the feed-forward layer.
        window: no attention window, a plain one ("mistral"), or one with a switch ("qwen").
        own_head_size: heads may be of any width.
        divisible: transformers insists that the heads divide the width all the same.
        norms: names of the norms before attention and feed-forward.
        activation, norm_eps, kv_heads, head_size: transformers' values for what is not said.
        rope_table: there must be one, as transformers' own value for it is no plain one.
    """

    model_type: str
    architecture: str
    gated: bool = True
    qk_norm: bool = False
    attention_bias: Literal["field", "qkv", "none"] = "field"
    mlp_bias: bool = False
    window: Literal["none", "mistral", "qwen"] = "none"
    own_head_size: bool = True
    divisible: bool = False
    norms: tuple[str, str] = ("input_layernorm", "post_attention_layernorm")
    activation: str = "silu"
    norm_eps: float = 1e-6
    kv_heads: int | None = None
    head_size: int | None = None
    rope_table: bool = False

    prefix = "model."
    computed = re.compile(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")

    def config(self, fields: Fields) -> ModelConfig:
        """See `Form`."""
        width = fields.get(int, "hidden_size")
        n_heads = fields.get(int, "num_attention_heads")
        n_layers = fields.get(int, "num_hidden_layers")
        n_kv_heads = fields.optional(int, "num_key_value_heads")
        if "num_key_value_heads" not in fields.values:
            n_kv_heads = self.kv_heads
        head_size = fields.optional(int, "head_dim")
        if "head_dim" not in fields.values:
            head_size = self.head_size
        biased = self.attention_bias == "field" and fields.get(
            bool, "attention_bias", default=False
        )
        if self.rope_table and rope_table(fields) is None:
            raise fields.refuse("rope_parameters", "rope_theta, rope_type, factor")
        window = self._window(fields, n_layers)
        if window is not None and is_dynamic(fields):
            # With a window a model reads on past its context, where the scaling begins.
            raise fields.refuse("sliding_window", Notice("none"), window)
        return ModelConfig(
            vocab_size=fields.get(int, "vocab_size"),
            context_length=fields.get(int, "max_position_embeddings"),
            n_layers=n_layers,
            d_model=width,
            n_heads=n_heads,
            n_kv_heads=None if n_kv_heads == n_heads else n_kv_heads,
            head_dim=None if head_size is None or head_size * n_heads == width else head_size,
            window=window,
            qk_norm=self.qk_norm,
            qkv_bias=biased or self.attention_bias == "qkv",
            projection_bias=biased,
            feedforward=self._feedforward(fields),
            d_ff=fields.get(int, "intermediate_size"),
            feedforward_bias=self.mlp_bias and fields.get(bool, "mlp_bias", default=False),
            norm="rmsnorm",
            norm_bias=False,
            norm_eps=fields.get(float, "rms_norm_eps", default=self.norm_eps),
            position="rotary",
            **rope_settings(fields),
            attention_dropout=fields.get(float, "attention_dropout", default=0.0),
            tie_embeddings=fields.get(bool, "tie_word_embeddings", default=False),
            initialisation="normal",
            init_std=fields.get(float, "initializer_range", default=0.02),
        )

    def rules(self, config: ModelConfig) -> list[Rule]:
        """See `Form`."""
        keys = config.key_value_heads * config.head_size
        rows = (config.n_heads * config.head_size, keys, keys)
        rules = [Rule("token_embedding.weight", ("embed_tokens.weight",))]
        for layer in range(config.n_layers):
            ours, theirs = f"blocks.{layer}", f"layers.{layer}"
            attention, mlp = f"{theirs}.self_attn", f"{theirs}.mlp"
            before_attention, before_mlp = self.norms
            rules += linear(f"{ours}.norm1", f"{theirs}.{before_attention}", False)
            for kind in ("weight", "bias")[: 1 + config.qkv_bias]:
                three = tuple(f"{attention}.{part}_proj.{kind}" for part in "qkv")
                rules.append(Rule(f"{ours}.attention.qkv.{kind}", three, rows))
            if config.qk_norm:
                rules += linear(f"{ours}.attention.query_norm", f"{attention}.q_norm", False)
                rules += linear(f"{ours}.attention.key_norm", f"{attention}.k_norm", False)
            rules += linear(
                f"{ours}.attention.projection", f"{attention}.o_proj", config.projection_bias
            )
            rules += linear(f"{ours}.norm2", f"{theirs}.{before_mlp}", False)
            for part in ("up", "gate", "down") if self.gated else ("up", "down"):
                rules += linear(
                    f"{ours}.feedforward.{part}", f"{mlp}.{part}_proj", config.feedforward_bias
                )
        rules += linear("final_norm", "norm", False)
        if not config.tie_embeddings:
            rules.append(Rule("head.weight", ("lm_head.weight",)))
        return rules

    def asks(self, config: ModelConfig) -> dict[str, Any]:
        """See `Form`."""
        wanted = {**EVERYWHERE, "norm": "rmsnorm", "position": "rotary", "qk_norm": self.qk_norm}
        if self.window == "none":
            wanted["window"] = None
        if self.attention_bias != "field":
            wanted["projection_bias"] = False
        if self.attention_bias == "none":
            wanted["qkv_bias"] = False
        if not self.mlp_bias:
            wanted["feedforward_bias"] = False
        asked = differing(config, wanted)
        known = ("swiglu",) if self.gated else tuple(dict.fromkeys(ACTIVATIONS.values()))
        if config.feedforward not in known:
            asked["feedforward"] = known
        own = config.head_size * config.n_heads != config.d_model
        if (own and not self.own_head_size) or (self.divisible and config.d_model % config.n_heads):
            asked["head_dim"] = None
        return asked

    def written(self, config: ModelConfig) -> ModelConfig:
        """See `Form`."""
        if self.attention_bias == "qkv":
            return replace(config, qkv_bias=True)
        if config.qkv_bias or config.projection_bias:
            return replace(config, qkv_bias=True, projection_bias=True)
        return config

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        """See `Form`."""
        values: dict[str, Any] = {
            "architectures": [self.architecture],
            "model_type": self.model_type,
            "vocab_size": config.vocab_size,
            "hidden_size": config.d_model,
            "intermediate_size": config.inner_width,
            "num_hidden_layers": config.n_layers,
            "num_attention_heads": config.n_heads,
            "num_key_value_heads": config.key_value_heads,
            "hidden_act": "silu" if self.gated else _name_of(config.feedforward),
            "max_position_embeddings": config.context_length,
            "rms_norm_eps": config.norm_eps,
            **rope_fields(config),
            "attention_dropout": config.attention_dropout_rate,
            "initializer_range": config.init_std,
            "tie_word_embeddings": config.tie_embeddings,
        }
        if self.own_head_size:
            values["head_dim"] = config.head_size
        if self.attention_bias == "field":
            values["attention_bias"] = config.qkv_bias
        if self.mlp_bias:
            values["mlp_bias"] = config.feedforward_bias
        if self.window != "none":
            values["sliding_window"] = config.window
        if self.window == "qwen":
            kind = "full_attention" if config.window is None else "sliding_attention"
            values["use_sliding_window"] = config.window is not None
            values["max_window_layers"] = config.n_layers if config.window is None else 0
            values["layer_types"] = [kind] * config.n_layers
        return values

    def _feedforward(self, fields: Fields) -> FeedForwardKind:
        activation = fields.get(str, "hidden_act", default=self.activation)
        if self.gated:
            if activation not in ("silu", "swish"):
                raise fields.refuse("hidden_act", "silu")
            return "swiglu"
        if activation not in ACTIVATIONS:
            raise fields.refuse("hidden_act", ", ".join(ACTIVATIONS), activation)
        return ACTIVATIONS[activation]

    def _window(self, fields: Fields, n_layers: int) -> int | None:
        """How far back attention reaches, the same in every layer."""
        if self.window == "none":
            return None
        size = fields.optional(int, "sliding_window")
        if "sliding_window" not in fields.values:
            size = 4096
        kinds = fields.words("layer_types")
        if self.window == "qwen":
            if not fields.get(bool, "use_sliding_window", default=False):
                size = None
            first = fields.get(int, "max_window_layers", default=28)
            if kinds is None and size is not None:
                if first >= n_layers:
                    return None
                if first > 0:
                    raise fields.refuse("max_window_layers", f"0, {n_layers}")
        if kinds is not None and size is not None and set(kinds) == {"full_attention"}:
            return None if self.window == "qwen" else size
        if kinds is not None and set(kinds) - {
            "full_attention" if size is None else "sliding_attention"
        }:
            raise fields.refuse("layer_types", "full_attention / sliding_attention")
        return size


def _name_of(kind: FeedForwardKind) -> str:
    return next(name for name, ours in ACTIVATIONS.items() if ours == kind)


VARIANTS = (
    # LLaMA 1 to 3, TinyLlama and all that are trained in this form.
    LlamaForm("llama", "LlamaForCausalLM", mlp_bias=True, divisible=True),
    LlamaForm("mistral", "MistralForCausalLM", attention_bias="none", window="mistral", kv_heads=8),
    LlamaForm(
        "qwen2",
        "Qwen2ForCausalLM",
        attention_bias="qkv",
        window="qwen",
        own_head_size=False,
        kv_heads=32,
    ),
    LlamaForm("qwen3", "Qwen3ForCausalLM", qk_norm=True, window="qwen", kv_heads=32, head_size=128),
    # Two relatives without a gate, so that ReLU^2 and GELU have a form too.
    LlamaForm(
        "arcee",
        "ArceeForCausalLM",
        gated=False,
        mlp_bias=True,
        divisible=True,
        activation="relu2",
        norm_eps=1e-5,
    ),
    LlamaForm(
        "apertus",
        "ApertusForCausalLM",
        gated=False,
        qk_norm=True,
        norms=("attention_layernorm", "feedforward_layernorm"),
        activation="xielu",
        norm_eps=1e-5,
        rope_table=True,
    ),
)
