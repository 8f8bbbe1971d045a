"""What a form is: one way in which other programs write a model down."""

import re
from collections.abc import Iterator
from typing import Any, Protocol

from partwise.interop.fields import Fields
from partwise.interop.rules import Rule
from partwise.messages import Notice
from partwise.model.config import ModelConfig


class Form(Protocol):
    """A model type of `transformers`, both ways.

    Attributes:
        model_type: as `config.json` names it.
        architecture: the class that `transformers` opens it with.
        prefix: may stand before the name of each tensor but the output layer's.
        computed: matches tensors that old folders hold though they follow from the rest.
    """

    @property
    def model_type(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def prefix(self) -> str: ...
    @property
    def computed(self) -> re.Pattern[str]: ...

    def config(self, fields: Fields) -> ModelConfig:
        """Our config, from theirs.

        Raises:
            InteropError: it asks for what our GPT has no part for.
        """

    def rules(self, config: ModelConfig) -> list[Rule]:
        """How the tensors correspond."""

    def asks(self, config: ModelConfig) -> dict[str, Any]:
        """Our fields as this form needs them, where `config` has another value."""

    def written(self, config: ModelConfig) -> ModelConfig:
        """`config` as it reads when it comes back: a part that is off becomes one that is zero."""

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        """Their `config.json`, less what belongs to the tokenizer."""


# What no form of another program can hold, and the value that can be held.
EVERYWHERE: dict[str, Any] = {
    "attention": True,
    "output_projection": True,
    "causal": True,
    "feedforward_output": True,
    "parallel": False,
    "norm_placement": "pre",
    "final_norm": True,
    "residual": True,
    "scale_embeddings": False,
    "head_bias": False,
    "logit_soft_cap": None,
    "ngram": 1,
    "embedding_shortcut": False,
}


def differing(config: ModelConfig, wanted: dict[str, Any]) -> dict[str, Any]:
    """Those of `wanted` that `config` has otherwise."""
    return {name: value for name, value in wanted.items() if getattr(config, name) != value}


def changes(config: ModelConfig, wanted: dict[str, Any]) -> Iterator[Notice]:
    """What would have to be changed, field by field, for a message."""
    for name, value in wanted.items():
        choices = " / ".join(map(_shown, value)) if isinstance(value, tuple) else _shown(value)
        yield Notice(
            "{field}={wanted} (here {value})",
            field=name,
            wanted=choices,
            value=_shown(getattr(config, name)),
        )


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
