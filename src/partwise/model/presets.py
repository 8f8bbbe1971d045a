"""Known models, each one value of `ModelConfig`: the ladder, GPT-2, GPT-3, LLaMA, PaLM.

A family is one base and the few numbers in which its members differ. Every family has its source;
where a source contradicts itself, or says something that no field here can say, this file says so.
Dropout is 0 unless the source names one: it belongs to a training more than to a model.
"""

from collections.abc import Mapping
from dataclasses import replace

from partwise.errors import ConfigError
from partwise.model.config import ModelConfig
from partwise.model.seq2seq_presets import SEQ2SEQ_PRESETS
from partwise.settings import build, offer


def preset(name: str) -> ModelConfig:
    """The model of that name, such as `gpt2-xl`, `llama-7b` or `ladder-3` (`ladder-feedforward`).

    Raises:
        ConfigError: there is no such preset; the message names the nearest. Or it is one of an
            encoder-decoder.
    """
    if name in SEQ2SEQ_PRESETS:
        raise ConfigError(
            "{name} reads one text and writes another; train it on pairs of texts with: partwise "
            "translate PAIRS --preset {name}",
            name=name,
        )
    canonical = ALIASES.get(name, name)
    if canonical not in PRESETS:
        raise ConfigError(
            "there is no preset {name!r}; {offer}",
            name=name,
            offer=offer(name.lower(), (*PRESETS, *ALIASES)),
        )
    return PRESETS[canonical]


def preset_names() -> tuple[str, ...]:
    """Every preset once, family by family; `ALIASES` holds their other names."""
    return tuple(PRESETS)


def _ladder() -> dict[str, ModelConfig]:
    """Six models, each with one part more than the one before; the losses stand in `ladder/`.

    Source: Karpathy 2023, "Let's build GPT: from scratch, in code, spelled out". Its rungs start
    from torch's default initialisation, and its characters are tiny Shakespeare's 65.

    Parts that are off keep the setting they will have once they are on, so that a rung differs from
    the one below in nothing but what it adds.
    """
    # 1: a head of size 32 feeds the output layer directly: no norm, no residual, no projection.
    head = ModelConfig(
        vocab_size=65,
        context_length=8,
        n_layers=1,
        d_model=32,
        n_heads=1,
        output_projection=False,
        qkv_bias=False,
        feedforward="none",
        feedforward_output=False,
        norm="none",
        residual=False,
        position="learned",
        tie_embeddings=False,
        head_bias=True,
        initialisation="torch",
    )
    # 2: the lecture adds the projection a little later, together with the residual connections.
    heads = replace(head, n_heads=4, output_projection=True)
    # 3: one matrix 32 x 32 and ReLU, as the lecture has it here. The second matrix, back from four
    # times the width, comes with rung 4: it is what puts a sum into the residual stream. Trained
    # like the ladder, seeds 1 to 4, one matrix ends at 2.248 and two of 32 x 32 at 2.261 on
    # average: within the noise of a seed, and the first is the published 2.24.
    feedforward = replace(heads, feedforward="relu")
    # 4: the inner width is 4 x 32 = 128, which d_ff=None gives.
    residual = replace(feedforward, n_layers=3, residual=True, feedforward_output=True)
    # 5: before each sublayer and before the output layer.
    layernorm = replace(residual, norm="layernorm")
    # 6: dropout on the attention weights and on what each sublayer adds, not on the embeddings.
    scaled = replace(layernorm, n_layers=6, n_heads=6, d_model=384, context_length=256, dropout=0.2)
    rungs = (head, heads, feedforward, residual, layernorm, scaled)
    return {f"ladder-{number}": rung for number, rung in enumerate(rungs, start=1)}


def _small() -> dict[str, ModelConfig]:
    """The model of `partwise train` when nothing is said about its size: minutes on two CPU cores.

    No paper's: today's parts (rotary positions, RMSNorm, no biases, ReLU^2) at the size of the
    laptop example in nanoGPT's readme (Karpathy 2022).
    """
    model = ModelConfig(
        vocab_size=65,
        context_length=128,
        n_layers=4,
        d_model=128,
        n_heads=4,
        qk_norm=True,
        qkv_bias=False,
        projection_bias=False,
        feedforward="relu2",
        feedforward_bias=False,
        norm="rmsnorm",
        norm_bias=False,
        position="rotary",
    )
    return {"small": model}


def _gpt2() -> dict[str, ModelConfig]:
    """The original Transformer's decoder with the norm moved before each sublayer.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3
    and table 2; heads, tanh-GELU, biases and the tied output layer from the released code and
    weights (github.com/openai/gpt-2). The table's parameter counts (117M, 345M, 762M, 1542M) were
    wrong, as the release's readme says; the weights hold 124M, 355M, 774M and 1558M.
    """
    base = ModelConfig(
        vocab_size=50257,
        context_length=1024,
        feedforward="gelu_tanh",
        norm="layernorm",
        position="learned",
        initialisation="gpt2",
    )
    sizes = {
        "gpt2": (12, 768, 12),
        "gpt2-medium": (24, 1024, 16),
        "gpt2-large": (36, 1280, 20),
        "gpt2-xl": (48, 1600, 25),
    }
    return _sized(base, sizes)


def _gpt3() -> dict[str, ModelConfig]:
    """GPT-2 with twice the context.

    Source: Brown et al. 2020, "Language Models are Few-Shot Learners", section 2.1 and table 2.1.
    Every other layer of the paper's models attends only to a nearby band of tokens, in a pattern
    that the paper does not give; here all layers are dense, with the same parameters.

    Two rows of the table contradict themselves:
    - XL: 24 layers, d_model 2048, 24 heads of 128; but 24 x 128 = 3072. 16 heads of 128 make 2048,
      and 1.3 billion parameters, as the table says; 24 such heads would make 1.5.
    - 13B: 40 layers, d_model 5140, 40 heads of 128; but 40 x 128 = 5120. Built with 5120.
    """
    base = replace(_gpt2()["gpt2"], context_length=2048)
    sizes = {
        "gpt3-125m": (12, 768, 12),
        "gpt3-350m": (24, 1024, 16),
        "gpt3-760m": (24, 1536, 16),
        "gpt3-1.3b": (24, 2048, 16),
        "gpt3-2.7b": (32, 2560, 32),
        "gpt3-6.7b": (32, 4096, 32),
        "gpt3-13b": (40, 5120, 40),
        "gpt3-175b": (96, 12288, 96),
    }
    return _sized(base, sizes)


def _llama() -> dict[str, ModelConfig]:
    """RMSNorm, rotary positions, SwiGLU, no biases, an output layer of its own.

    Source: Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", section 2.2
    and table 2 (widths, heads, layers); inner widths and norm_eps from the released weights'
    params.json (8/3 of the width, rounded up to a multiple of 256; 65B has 1e-5, the others 1e-6).
    The paper does not say how weights start; `normal` is the convention of its re-implementations.
    """
    base = ModelConfig(
        vocab_size=32000,
        context_length=2048,
        qkv_bias=False,
        projection_bias=False,
        feedforward="swiglu",
        feedforward_bias=False,
        norm="rmsnorm",
        norm_bias=False,
        norm_eps=1e-6,
        position="rotary",
        tie_embeddings=False,
        initialisation="normal",
    )
    sizes = {
        "llama-7b": (32, 4096, 32, 11008),
        "llama-13b": (40, 5120, 40, 13824),
        "llama-33b": (60, 6656, 52, 17920),
        "llama-65b": (80, 8192, 64, 22016),
    }
    models = _sized(base, sizes)
    models["llama-65b"] = replace(models["llama-65b"], norm_eps=1e-5)
    return models


def _llama2() -> dict[str, ModelConfig]:
    """LLaMA with twice the context; the 70B model shares keys and values among 8 heads.

    Source: Touvron et al. 2023, "Llama 2: Open Foundation and Fine-Tuned Chat Models", section 2.2
    and table 1; inner widths and norm_eps from the released weights' params.json (70B: 1.3 times
    wider than LLaMA's rule, which gives back what the shared keys and values saved).
    """
    base = replace(_llama()["llama-7b"], context_length=4096, norm_eps=1e-5)
    sizes = {
        "llama2-7b": (32, 4096, 32, 11008),
        "llama2-13b": (40, 5120, 40, 13824),
        "llama2-70b": (80, 8192, 64, 28672, 8),
    }
    return _sized(base, sizes)


def _llama3() -> dict[str, ModelConfig]:
    """Llama 2 with a vocabulary four times as large, slower rotary angles, 8 shared heads always.

    Source: Llama Team 2024, "The Llama 3 Herd of Models", section 3.2 and table 3; context 8192 as
    first released (3.1 stretches it to 131072: rope_scaling=llama3, rope_factor=8).
    """
    base = replace(
        _llama2()["llama2-7b"], vocab_size=128256, context_length=8192, rope_base=500000.0
    )
    sizes = {
        "llama3-8b": (32, 4096, 32, 14336, 8),
        "llama3-70b": (80, 8192, 64, 28672, 8),
    }
    return _sized(base, sizes)


def _palm() -> dict[str, ModelConfig]:
    """Attention and feed-forward side by side, one head of keys and values, heads of size 256.

    Source: Chowdhery et al. 2022, "PaLM: Scaling Language Modeling with Pathways", section 2 and
    table 1. The norm is LayerNorm (the formula of "Parallel Layers") without biases, not RMSNorm as
    is often told; the inner width is 4 d_model in each of SwiGLU's three matrices. 48 heads of 256
    are narrower than 540B's width of 18432, so the head size is a field of its own.

    Embeddings start at N(0, 1) and are shared with the output layer, whose logits are divided by
    sqrt(d_model) (section 5). Keeping E / sqrt(d_model) as the table and multiplying on the way in
    (`scale_embeddings`) is the same function. A final norm is assumed; the paper does not draw one.
    """
    base = ModelConfig(
        vocab_size=256000,
        context_length=2048,
        head_dim=256,
        n_kv_heads=1,
        qkv_bias=False,
        projection_bias=False,
        feedforward="swiglu",
        feedforward_bias=False,
        parallel=True,
        norm="layernorm",
        norm_bias=False,
        position="rotary",
        scale_embeddings=True,
        initialisation="fan_in",
    )
    sizes = {
        "palm-8b": (32, 4096, 16, 16384, 1),
        "palm-62b": (64, 8192, 32, 32768, 1),
        "palm-540b": (118, 18432, 48, 73728, 1),
    }
    return _sized(base, sizes)


def _sized(base: ModelConfig, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, ModelConfig]:
    """The family's members: (n_layers, d_model, n_heads[, d_ff[, n_kv_heads]]) each."""
    fields = ("n_layers", "d_model", "n_heads", "d_ff", "n_kv_heads")
    return {
        name: build(ModelConfig, dict(zip(fields, row, strict=False)), base)
        for name, row in sizes.items()
    }


PRESETS: dict[str, ModelConfig] = {
    **_small(),
    **_ladder(),
    **_gpt2(),
    **_gpt3(),
    **_llama(),
    **_llama2(),
    **_llama3(),
    **_palm(),
}

ALIASES: dict[str, str] = {
    "ladder-head": "ladder-1",
    "ladder-heads": "ladder-2",
    "ladder-feedforward": "ladder-3",
    "ladder-residual": "ladder-4",
    "ladder-layernorm": "ladder-5",
    "ladder-scaled": "ladder-6",
    "gpt2-small": "gpt2",
    "gpt3-small": "gpt3-125m",
    "gpt3-medium": "gpt3-350m",
    "gpt3-large": "gpt3-760m",
    "gpt3-xl": "gpt3-1.3b",
    "gpt3": "gpt3-175b",
}
