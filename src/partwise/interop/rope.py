"""Rotary positions as `config.json` describes them, in the spelling of transformers 5 and of 4."""

from typing import Any, cast

from partwise.interop.fields import Fields
from partwise.model.config import ModelConfig, RopeScaling

# A dynamic scaling begins beyond max_position_embeddings, which is as far as a model reads here.
TYPES: dict[str, RopeScaling] = {
    "default": "none",
    "linear": "linear",
    "llama3": "llama3",
    "dynamic": "none",
}


def rope_table(fields: Fields) -> Fields | None:
    """What config.json says of rotary positions in a table; an empty one says nothing."""
    told = (fields.table(name) for name in ("rope_scaling", "rope_parameters"))
    return next((each for each in told if each is not None and each.values), None)


def rope_type(table: Fields) -> str:
    """The kind of scaling that such a table names."""
    return table.get(str, "rope_type", "type", default="default")


def is_dynamic(fields: Fields) -> bool:
    """Whether positions are stretched more and more beyond the context."""
    table = rope_table(fields)
    return table is not None and rope_type(table) == "dynamic"


def rope_settings(fields: Fields, *, base: float = 10000.0) -> dict[str, Any]:
    """Our fields for what `config.json` says of rotary positions.

    Transformers 5 writes one table `rope_parameters`; before it there were `rope_theta` and a table
    `rope_scaling`, which still comes first where both are there.

    Args:
        fields: the whole config.json.
        base: the base where nothing is said.

    Raises:
        InteropError: a kind of scaling that we do not have.
    """
    for name in ("rope_scaling", "rope_parameters"):
        # One table for each kind of layer would mean layers that differ.
        table = fields.table(name)
        if table is not None and any(isinstance(each, dict) for each in table.values.values()):
            raise fields.refuse(name, "rope_theta, rope_type, factor")
    table = rope_table(fields) or Fields({}, fields.path)
    partial = fields.get(float, "partial_rotary_factor", default=1.0)
    if partial != 1.0:
        raise fields.refuse("partial_rotary_factor", 1.0)
    if table.get(float, "partial_rotary_factor", default=1.0) != 1.0:
        raise table.refuse("partial_rotary_factor", 1.0)
    kind = rope_type(table)
    if kind not in TYPES:
        name = "rope_type" if table.values.get("rope_type") is not None else "type"
        raise table.refuse(name, ", ".join(TYPES))
    theta = table.optional(float, "rope_theta")
    settings: dict[str, Any] = {
        "rope_base": fields.get(float, "rope_theta", default=base) if theta is None else theta,
        "rope_scaling": TYPES[kind],
    }
    if kind in ("linear", "llama3"):
        settings["rope_factor"] = table.get(float, "factor")
    if kind == "llama3":
        settings["rope_low_frequency_factor"] = table.get(float, "low_freq_factor")
        settings["rope_high_frequency_factor"] = table.get(float, "high_freq_factor")
        original = fields.optional(int, "original_max_position_embeddings")
        if original is None:
            original = table.optional(int, "original_max_position_embeddings")
        if original is None:
            original = fields.get(int, "max_position_embeddings")
        settings["rope_original_context"] = original
    return settings


def rope_fields(config: ModelConfig) -> dict[str, Any]:
    """What `config.json` says of our rotary positions, in both spellings."""
    kind = next(name for name, ours in TYPES.items() if ours == config.rope_scaling)
    table: dict[str, Any] = {"rope_type": kind}
    if kind != "default":
        table["factor"] = config.rope_factor
    if kind == "llama3":
        table["low_freq_factor"] = config.rope_low_frequency_factor
        table["high_freq_factor"] = config.rope_high_frequency_factor
        table["original_max_position_embeddings"] = config.rope_original_context
    named: dict[str, Any] = {}
    if kind == "llama3":
        # llama.cpp's converter looks for it here.
        named["original_max_position_embeddings"] = config.rope_original_context
    return {
        **named,
        "rope_theta": config.rope_base,
        "rope_scaling": None if kind == "default" else table,
        "rope_parameters": cast(dict[str, Any], {"rope_theta": config.rope_base, **table}),
    }
