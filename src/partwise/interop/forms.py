"""All forms: the one that a folder is in, and the one that a model of ours fits."""

import functools

from partwise.errors import InteropError
from partwise.interop.fields import Fields
from partwise.interop.form import Form, changes
from partwise.interop.gpt2 import GPT2Form
from partwise.interop.llama import VARIANTS
from partwise.messages import Notice
from partwise.model.config import ModelConfig

FORMS: tuple[Form, ...] = (GPT2Form(), *VARIANTS)


def form_of(fields: Fields) -> Form:
    """The form that a `config.json` names.

    Raises:
        InteropError: it is none of those known, or its weights are kept in another number format.
    """
    model_type = fields.get(str, "model_type")
    form = next((form for form in FORMS if form.model_type == model_type), None)
    known = ", ".join(form.model_type for form in FORMS)
    if form is None:
        raise fields.refuse("model_type", known)
    if fields.values.get("quantization_config") is not None:
        raise InteropError(
            "{path} has a quantization_config: the weights are compressed; get the folder of the "
            "same model in float32, float16 or bfloat16",
            path=fields.path,
        )
    # What changes the formula of any form. To transformers null is no, too.
    if fields.values.get("is_causal", True) is not True:
        raise fields.refuse("is_causal", "true")
    layers = fields.table("per_layer_config")
    if layers is not None and layers.values:
        raise fields.refuse("per_layer_config", Notice("none"))
    return form


def form_for(config: ModelConfig, name: object) -> Form:
    """The form that holds a model of ours, with as few parts added as zeros as can be.

    Args:
        config: the model.
        name: what a message calls it.

    Raises:
        InteropError: there is none; the line says, for the nearest of each family, what would have
            to be otherwise.
    """
    fitting = [form for form in FORMS if not form.asks(config)]
    if fitting:
        return next((form for form in fitting if form.written(config) == config), fitting[0])
    nearest = min(VARIANTS, key=lambda form: len(form.asks(config)))
    raise InteropError(
        "{name} fits no form that other programs read: {one}; {other}; a model that is to be "
        "exported is trained with such settings",
        name=name,
        one=_wanting(FORMS[0], config),
        other=_wanting(nearest, config),
    )


def _wanting(form: Form, config: ModelConfig) -> Notice:
    """What the form has that the model has otherwise."""
    asked = functools.reduce(
        lambda one, other: Notice("{one}, {other}", one=one, other=other),
        changes(config, form.asks(config)),
    )
    return Notice("{form} has {asked}", form=form.model_type, asked=asked)
