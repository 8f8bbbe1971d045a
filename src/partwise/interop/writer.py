"""A folder that `transformers` opens, written whole or not at all."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from partwise.errors import InteropError
from partwise.interop.form import Form
from partwise.interop.forms import form_for
from partwise.interop.origin import is_legal, special_ids
from partwise.interop.rules import give_all, shapes_of
from partwise.interop.tokenizer import (
    CONFIG,
    FILE,
    end_of_text,
    tokenizer_config,
    tokenizer_json,
)
from partwise.interop.weights import SINGLE
from partwise.model.config import ModelConfig
from partwise.model.position import Sinusoidal
from partwise.storage import require_free, write_atomic, write_folder, write_tensors
from partwise.text.tokenizers import Tokenizer

# Files of an imported model that are written as they came.
CARRIED = (
    "generation_config.json",
    CONFIG,
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)
CARD = "README.md"
CARD_OF_ORIGIN = "README.original.md"

_SMALL_FILES = 20_000_000  # bytes, far more than all files beside the weights


@dataclass(frozen=True)
class Outgoing:
    """What is to be written.

    Args:
        name: what a message calls the model.
        model: its config.
        weights: its tensors by our names.
        tokenizer: its tokenizer.
        files: the small files of the imported model that it comes from, by name; else empty.
    """

    name: str
    model: ModelConfig
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    files: Mapping[str, bytes]

    @property
    def form(self) -> Form:
        """The form that it is written in.

        Raises:
            InteropError: it fits none.
        """
        return form_for(self.model, self.name)


def write_model(folder: Path, out: Outgoing, card: str) -> None:
    """Write the folder.

    Args:
        folder: where it appears; nothing may be there.
        out: what is written.
        card: the content of its README.md.

    Raises:
        InteropError: the model fits no form, or `folder` is there already.
        StorageError: the disk is full, or may not be written to; nothing is left then.
    """
    form = out.form
    if folder.exists():
        raise InteropError("{folder} exists already; give another folder", folder=folder)
    require_free(folder, sum(tensor.nbytes for tensor in out.weights.values()) + _SMALL_FILES)
    written = form.written(out.model)
    given = give_all(form.rules(written), filled(out.weights, out.model, written))
    with write_folder(folder, over=False) as inside:
        named = {
            name if name.startswith("lm_head.") else form.prefix + name: tensor
            for name, tensor in given.items()
        }
        write_tensors(inside / SINGLE, named, {"format": "pt"})
        _write_json(inside / "config.json", _config(out, form, written))
        write_atomic(inside / FILE, tokenizer_json(out.tokenizer).encode("utf-8"))
        if CONFIG not in out.files:
            _write_json(inside / CONFIG, tokenizer_config(out.tokenizer, out.model.context_length))
        for name, data in out.files.items():
            if name in CARRIED or is_legal(name):
                write_atomic(inside / name, data)
            elif name.lower() == CARD.lower():
                write_atomic(inside / CARD_OF_ORIGIN, data)
        write_atomic(inside / CARD, card.encode("utf-8"))


def filled(
    weights: Mapping[str, Tensor], model: ModelConfig, written: ModelConfig
) -> dict[str, Tensor]:
    """The tensors of the model that is written: what ours does without becomes zeros.

    Args:
        weights: ours.
        model: ours.
        written: the same, as the form holds it.
    """
    complete = dict(weights)
    like = weights["token_embedding.weight"]
    for name, shape in shapes_of(written).items():
        if name in complete:
            continue
        if name == "position_embedding.weight" and model.position == "sinusoidal":
            table = Sinusoidal(model.context_length, model.d_model).table
            complete[name] = table.to(like.dtype)
        else:
            complete[name] = torch.zeros(shape, dtype=like.dtype)
    return complete


def _config(out: Outgoing, form: Form, written: ModelConfig) -> dict[str, Any]:
    # Null is said in so many words: without it transformers takes GPT-2's own ids.
    ids = {"bos_token_id": None, "eos_token_id": end_of_text(out.tokenizer), "pad_token_id": None}
    # Tensors may differ in their formats, and transformers reads them all in the one that it finds
    # here: the narrowest that holds each of them.
    widest = functools.reduce(torch.promote_types, (each.dtype for each in out.weights.values()))
    dtype = str(widest).removeprefix("torch.")
    return {
        **form.fields(written),
        **ids,
        **special_ids(out.files),
        # The first for transformers 5, the second for those before.
        "dtype": dtype,
        "torch_dtype": dtype,
        "use_cache": True,
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    write_atomic(path, (text + "\n").encode("utf-8"))
