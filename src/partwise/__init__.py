"""Partwise: build a GPT part by part, see what each part buys, train it on your own text."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from partwise.model.config import ModelConfig as ModelConfig
    from partwise.model.gpt import GPT as GPT

# Where each public name lives. They load when first used, so that `partwise --help` needs no torch.
_HOMES = {
    "GPT": "partwise.model.gpt",
    "ModelConfig": "partwise.model.config",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'partwise' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
