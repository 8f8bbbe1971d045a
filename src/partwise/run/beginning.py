"""What a training begins with when it does not begin from random weights."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from partwise.errors import RunError, TextError
from partwise.interop.reader import Imported
from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.run.record import Ancestor
from partwise.text.prepare import Prepared
from partwise.text.tokenizers import Tokenizer
from partwise.training.checkpoint import load_weights
from partwise.training.config import TrainConfig

POSITIONS = "position_embedding.weight"

# Tokens that are looked through at once, and those that are shown to either side of one.
BLOCK = 1 << 22
NEAR = 6


@dataclass(frozen=True)
class Beginning:
    """A trained model that another training begins with.

    Args:
        name: as a message calls it.
        model: its config.
        weights: its tensors, in the number format that they are stored in.
        tokenizer: its tokenizer.
        train: how it was trained; None where it was made elsewhere.
        ancestor: what is written down of it.
        files: the small files of the imported model that it comes from, by name; else empty.
    """

    name: str
    model: ModelConfig
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    train: TrainConfig | None
    ancestor: Ancestor
    files: Mapping[str, bytes]

    def weights_for(self, model: ModelConfig) -> dict[str, Tensor]:
        """The weights for a model of the same shape, whose context may be shorter.

        Learned positions that a shorter context does not reach are left out.

        Raises:
            RunError: another shape.
        """
        weights = dict(self.weights)
        positions = weights.get(POSITIONS)
        if positions is not None and model.context_length < positions.shape[0]:
            weights[POSITIONS] = positions[: model.context_length].clone()
        if positions is not None and model.context_length > positions.shape[0]:
            raise RunError(
                "context_length={asked} is more than the {known} positions that {name} has "
                "learned; give {known} or fewer",
                asked=model.context_length,
                known=positions.shape[0],
                name=self.name,
            )
        with torch.device("meta"):
            load_weights(GPT(model), weights)
        return weights


def beginning_of(imported: Imported) -> Beginning:
    """The beginning that a Hugging Face folder is."""
    folder = imported.folder.absolute()
    return Beginning(
        name=str(imported.folder),
        model=imported.model,
        weights=imported.weights,
        tokenizer=imported.tokenizer,
        train=None,
        ancestor=Ancestor(
            kind="folder",
            path=str(folder),
            step=0,
            text="",
            weights=fingerprint(imported.weights),
            origin=name_of_origin(folder),
        ),
        files=imported.files,
    )


def require_known(prepared: Prepared) -> None:
    """Check that every place of a text has a token of its own in the model's tokenizer.

    Raises:
        TextError: the tokenizer reads some of it as its token for the unknown.
    """
    tokenizer = prepared.tokenizer
    unknown: int | None = getattr(tokenizer, "unknown", None)
    if unknown is None:
        return
    for view in (prepared.train, prepared.validation):
        for start in range(0, len(view), BLOCK):
            (places,) = np.nonzero(view[start : start + BLOCK] == unknown)
            if not len(places):
                continue
            place = start + int(places[0])
            near = tokenizer.decode(view[max(0, place - NEAR) : place + NEAR].tolist())
            raise TextError(
                "the tokenizer {name} does not know all of this text and would read {unknown!r}, "
                "first in {near!r}; train on a text that it knows, or --unknown skip to leave that "
                "to it",
                name=tokenizer.name,
                unknown=tokenizer.decode([unknown]),
                near=near,
            )


def name_of_origin(folder: Path) -> str:
    """What an imported model is called: the hub's name where the folder is in its cache."""
    for part in folder.parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    return folder.name


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of the tensors: their names, formats, shapes and bits (64 hex digits)."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
