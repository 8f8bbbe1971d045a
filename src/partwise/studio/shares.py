"""Where a model's parameters are: exact counts by part, from its configuration alone."""

from typing import Any

from partwise.model.config import ModelConfig
from partwise.model.parameters import (
    attention_matrices,
    feedforward_matrices,
    parameters_by_part,
)


def share(config: ModelConfig, id: str, name: str) -> dict[str, Any]:
    """Exact counts of one model.

    Args:
        config: its shape.
        id: names it for the page.
        name: what it is called.

    Returns:
        `parameters`, `parts` (see `parameters_by_part`), and `block`: the numbers in the matrices
        of one block's attention and feed-forward layer.
    """
    parts = parameters_by_part(config)
    return {
        "id": id,
        "name": name,
        "layers": config.n_layers,
        "d_model": config.d_model,
        "parameters": sum(parts.values()),
        "parts": parts,
        "block": {
            "attention": attention_matrices(config),
            "feedforward": feedforward_matrices(config),
        },
    }
