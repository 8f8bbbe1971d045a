"""The GPT-2 form: LayerNorm, learned positions, one matrix up and one down, biases everywhere."""

import re
from dataclasses import replace
from typing import Any

from partwise.interop.fields import Fields
from partwise.interop.form import EVERYWHERE, differing
from partwise.interop.rules import Rule, linear
from partwise.model.config import FeedForwardKind, ModelConfig

# Their activations that are ours; of two names for one, the first is written.
ACTIVATIONS: dict[str, FeedForwardKind] = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "relu2": "relu2",
}

# Switches that change the formula of attention, and the value that ours has.
SWITCHES = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}


class GPT2Form:
    """GPT-2 (Radford et al., 2019), as `GPT2LMHeadModel` of transformers names its parts."""

    model_type = "gpt2"
    architecture = "GPT2LMHeadModel"
    prefix = "transformer."
    # The causal mask, which the first folders kept among the weights.
    computed = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")

    def config(self, fields: Fields) -> ModelConfig:
        """See `Form`."""
        for name, ours in SWITCHES.items():
            if fields.get(bool, name, default=ours) != ours:
                raise fields.refuse(name, str(ours).lower())
        activation = fields.get(str, "activation_function", default="gelu_new")
        if activation not in ACTIVATIONS:
            raise fields.refuse("activation_function", ", ".join(ACTIVATIONS))
        width = fields.get(int, "n_embd", "hidden_size")
        inner = fields.optional(int, "n_inner")
        return ModelConfig(
            vocab_size=fields.get(int, "vocab_size"),
            context_length=fields.get(int, "n_positions", "max_position_embeddings", "n_ctx"),
            n_layers=fields.get(int, "n_layer", "num_hidden_layers"),
            d_model=width,
            n_heads=fields.get(int, "n_head", "num_attention_heads"),
            feedforward=ACTIVATIONS[activation],
            d_ff=None if inner == 4 * width else inner,
            norm_eps=fields.get(float, "layer_norm_epsilon", default=1e-5),
            dropout=fields.get(float, "resid_pdrop", default=0.1),
            attention_dropout=fields.get(float, "attn_pdrop", default=0.1),
            embedding_dropout=fields.get(float, "embd_pdrop", default=0.1),
            tie_embeddings=fields.get(bool, "tie_word_embeddings", default=True),
            init_std=fields.get(float, "initializer_range", default=0.02),
        )

    def rules(self, config: ModelConfig) -> list[Rule]:
        """See `Form`."""
        rules = [
            Rule("token_embedding.weight", ("wte.weight",)),
            Rule("position_embedding.weight", ("wpe.weight",)),
        ]
        for layer in range(config.n_layers):
            ours, theirs = f"blocks.{layer}", f"h.{layer}"
            rules += linear(f"{ours}.norm1", f"{theirs}.ln_1", True)
            # Their fused matrix has our order of rows: all queries, all keys, all values.
            rules += linear(f"{ours}.attention.qkv", f"{theirs}.attn.c_attn", True, turned=True)
            rules += linear(
                f"{ours}.attention.projection", f"{theirs}.attn.c_proj", True, turned=True
            )
            rules += linear(f"{ours}.norm2", f"{theirs}.ln_2", True)
            rules += linear(f"{ours}.feedforward.up", f"{theirs}.mlp.c_fc", True, turned=True)
            rules += linear(f"{ours}.feedforward.down", f"{theirs}.mlp.c_proj", True, turned=True)
        rules += linear("final_norm", "ln_f", True)
        if not config.tie_embeddings:
            rules.append(Rule("head.weight", ("lm_head.weight",)))
        return rules

    def asks(self, config: ModelConfig) -> dict[str, Any]:
        """See `Form`."""
        wanted = {**EVERYWHERE, "norm": "layernorm", "qk_norm": False, "window": None}
        asked = differing(config, wanted)
        if config.key_value_heads != config.n_heads:
            asked["n_kv_heads"] = None
        if config.head_size * config.n_heads != config.d_model:
            asked["head_dim"] = None
        # These three are tables, or nothing, and a table can be learned or not.
        if config.position not in ("learned", "sinusoidal", "none"):
            asked["position"] = "learned"
        if config.feedforward not in ACTIVATIONS.values():
            asked["feedforward"] = tuple(dict.fromkeys(ACTIVATIONS.values()))
        return asked

    def written(self, config: ModelConfig) -> ModelConfig:
        """See `Form`."""
        return replace(
            config,
            position="learned",
            norm_bias=True,
            qkv_bias=True,
            projection_bias=True,
            feedforward_bias=True,
        )

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        """See `Form`."""
        name_of = {kind: name for name, kind in reversed(ACTIVATIONS.items())}
        inner = config.inner_width
        return {
            "architectures": [self.architecture],
            "model_type": self.model_type,
            "vocab_size": config.vocab_size,
            "n_positions": config.context_length,
            "n_ctx": config.context_length,
            "n_embd": config.d_model,
            "n_layer": config.n_layers,
            "n_head": config.n_heads,
            "n_inner": None if inner == 4 * config.d_model else inner,
            "activation_function": name_of[config.feedforward],
            "layer_norm_epsilon": config.norm_eps,
            "resid_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout_rate,
            "embd_pdrop": config.embedding_dropout,
            "initializer_range": config.init_std,
            "tie_word_embeddings": config.tie_embeddings,
            **SWITCHES,
        }
