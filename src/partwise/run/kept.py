"""What a run folder keeps beside its record, whatever it trains: tokenizer and weights."""

from pathlib import Path
from typing import Protocol

from torch import Tensor

from partwise.errors import RunError
from partwise.text.tokenizers import Tokenizer, load_tokenizer
from partwise.training.checkpoint import Which, has_best, weights_to_use

TOKENIZER = "tokenizer.json"


class Known(Protocol):
    """What a record says of the tokenizer."""

    @property
    def tokenizer(self) -> str:
        """Its name."""

    @property
    def tokenizer_fingerprint(self) -> str:
        """Its fingerprint."""


def kept_tokenizer(folder: Path, known: Known) -> Tokenizer:
    """The tokenizer that the model was trained with.

    Args:
        folder: the run's.
        known: what its record says of it.

    Raises:
        RunError: it is another one than the run was created with.
        StorageError, TextError: it is missing or damaged.
    """
    path = folder / TOKENIZER
    tokenizer = load_tokenizer(path)
    if tokenizer.fingerprint != known.tokenizer_fingerprint:
        raise RunError(
            "{path} is the tokenizer {found} ({found_mark}) and the run was trained with "
            "{wanted} ({wanted_mark}); bring it back from a copy",
            path=path,
            found=tokenizer.name,
            found_mark=tokenizer.fingerprint[:8],
            wanted=known.tokenizer,
            wanted_mark=known.tokenizer_fingerprint[:8],
        )
    return tokenizer


def kept_weights(folder: Path, which: Which) -> dict[str, Tensor]:
    """The weights that speak for a run: their running mean where one is kept.

    Args:
        folder: the run's.
        which: "best" by validation loss, or "last"; the last when nothing was evaluated yet.

    Raises:
        RunError: there is no checkpoint yet.
        StorageError: it is damaged.
    """
    return weights_to_use(folder, which if has_best(folder) else "last")
