"""What the cells of a lesson find: `from partwise.course.prelude import *`, then `use_model`.

np, pw      NumPy, and Partwise itself
model       the chosen GPT; torch is loaded when it is first used
weights     its weights as NumPy arrays, by name
tokenizer, config, text     its tokenizer, its shape, and a text that it did not learn from
observe     every value of one forward pass, by name
val_loss    the model's loss on some of `text`
show, plot  pictures
expect      what checks are made of
"""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import partwise as pw
from partwise.course.checking import Expect
from partwise.course.learner import LazyModel, learned
from partwise.course.pictures import plot, show

__all__ = [
    "expect",
    "math",
    "np",
    "observe",
    "plot",
    "pw",
    "show",
    "use_model",
    "val_loss",
    "windows",
]

expect = Expect()

# Windows that `val_loss` reads, and tokens in each at most.
WINDOWS = 16
WINDOW = 128


def use_model(name: str | Path = "tiny") -> None:
    """Put `model`, `weights`, `tokenizer`, `config` and `text` where this is called.

    Args:
        name: "tiny", "run:NAME" or a run folder.

    Raises:
        PartwiseError: there is no such run, or it has no checkpoint.
    """
    sys._getframe(1).f_globals.update(learned(name))


def observe(model: Any, ids: npt.ArrayLike) -> dict[str, npt.NDArray[np.float64]]:
    """Every value of one forward pass by its name (see `pw.trace`), as NumPy arrays.

    Args:
        model: a GPT.
        ids: the ids of one text, (T,), or of several, (B, T).

    Returns:
        Name -> array; for one text without the axis of texts.
    """
    import torch

    from partwise.model.trace import trace

    whole = np.asarray(ids, np.int64)
    real = model._model() if isinstance(model, LazyModel) else model
    found = trace(real, torch.from_numpy(np.atleast_2d(whole)))
    return {
        name: (value[0] if whole.ndim == 1 else value).double().numpy()
        for name, value in found.items()
    }


def windows(ids: npt.ArrayLike, length: int, count: int = WINDOWS) -> npt.NDArray[np.int64]:
    """`count` rows of `length` + 1 tokens from a text, side by side without overlap, or fewer."""
    row = np.asarray(ids, np.int64).ravel()
    length = min(length, len(row) - 1)
    count = max(1, min(count, len(row) // (length + 1)))
    return row[: count * (length + 1)].reshape(count, length + 1)


def val_loss(model: Any, ids: npt.ArrayLike) -> float:
    """The mean loss of a model's predictions in a text (nats a token), over a few windows of it.

    Args:
        model: a GPT.
        ids: the text's ids, (T,).
    """
    import torch
    from torch.nn import functional as F

    from partwise.model.trace import evaluating

    real = model._model() if isinstance(model, LazyModel) else model
    rows = torch.from_numpy(windows(ids, min(real.config.context_length, WINDOW)))
    with evaluating(real), torch.no_grad():
        logits = real(rows[:, :-1])  # (B, T, vocab_size)
    return float(F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten()))
