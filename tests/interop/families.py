"""Tiny random models of transformers, one or more of each family, as the judge made them."""

import copy
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    ApertusConfig,
    ArceeConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

transformers.logging.set_verbosity_error()

GPT2 = {"vocab_size": 61, "n_positions": 24, "n_embd": 32, "n_layer": 2, "n_head": 4}
LLAMA = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 24,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 12,
}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 1000.0}

FAMILIES: dict[str, Any] = {
    "gpt2": GPT2Config(**GPT2),
    "gpt2-relu": GPT2Config(**GPT2, activation_function="relu", n_inner=20),
    "gpt2-own-head": GPT2Config(**GPT2, activation_function="gelu", tie_word_embeddings=False),
    "llama-1": LlamaConfig(**{**LLAMA, "num_key_value_heads": 4}),
    "llama-2-linear": LlamaConfig(
        **LLAMA, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    ),
    "llama-2-dynamic": LlamaConfig(
        **LLAMA, rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    ),
    "llama-3": LlamaConfig(**LLAMA, rope_parameters=LLAMA3, tie_word_embeddings=True),
    "llama-biases": LlamaConfig(**LLAMA, attention_bias=True, mlp_bias=True, head_dim=6),
    "mistral": MistralConfig(**LLAMA, sliding_window=5),
    "mistral-no-window": MistralConfig(**LLAMA, sliding_window=None, head_dim=12),
    "qwen2": Qwen2Config(**LLAMA, rope_parameters=PLAIN_ROPE),
    "qwen2-window": Qwen2Config(
        **LLAMA, use_sliding_window=True, sliding_window=4, max_window_layers=0
    ),
    "qwen3": Qwen3Config(**LLAMA, head_dim=16, tie_word_embeddings=True),
    "qwen3-biases": Qwen3Config(
        **LLAMA,
        head_dim=6,
        attention_bias=True,
        use_sliding_window=True,
        sliding_window=7,
        max_window_layers=0,
    ),
    "arcee": ArceeConfig(**LLAMA, mlp_bias=True),
    "apertus": ApertusConfig(**LLAMA, hidden_act="relu2", rope_parameters=LLAMA3),
}


def made(name: str, seed: int = 0, vocab_size: int = 61) -> PreTrainedModel:
    """A model of that family in which no weight hides behind a zero or a one."""
    torch.manual_seed(seed)
    config = copy.deepcopy(FAMILIES[name])
    config.vocab_size = vocab_size
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            if key.endswith("bias"):
                tensor.normal_(std=0.3)
            elif tensor.dim() == 1:
                tensor.uniform_(0.5, 1.5)
            else:
                tensor.normal_(std=tensor.shape[-1] ** -0.5)
    return model


def saved(name: str, folder: Path, *, vocab_size: int = 61, **options: Any) -> PreTrainedModel:
    """Such a model, written into `folder` by transformers."""
    model = made(name, vocab_size=vocab_size)
    model.save_pretrained(folder, **options)
    return model


def judged(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """The logits that transformers computes."""
    with torch.no_grad():
        return model(ids).logits
