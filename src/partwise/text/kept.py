"""The texts that were prepared before: what the cache holds, and how to be rid of it."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from partwise.errors import StorageError, TextError
from partwise.storage.faults import writing
from partwise.text.tokenfile import TokenFile
from partwise.text.turns import in_turn


@dataclass(frozen=True)
class Kept:
    """One prepared text in the cache.

    Args:
        mark: the start of its folder's name, enough to tell it from the others.
        text: name of the text.
        tokenizer: name of the tokenizer.
        tokens: number of tokens.
        bytes: what it takes on the disk.
        folder: where it is.
    """

    mark: str
    text: str
    tokenizer: str
    tokens: int
    bytes: int
    folder: Path


def kept(cache: Path) -> list[Kept]:
    """What is prepared in `cache`, by name; folders that are not whole are left out."""
    found = []
    for place in _places(cache):
        folder = place / "tokens"
        try:
            header = TokenFile(folder).header
            size = sum(file.stat().st_size for file in folder.iterdir())
        # Not whole, or removed by another process just now.
        except (StorageError, TextError, TypeError, KeyError, ValueError, OSError):
            continue
        found.append(
            Kept(
                mark=place.name[:8],
                text=header.text,
                tokenizer=header.tokenizer,
                tokens=header.tokens,
                bytes=size,
                folder=folder,
            )
        )
    return sorted(found, key=lambda each: (each.text, each.tokenizer, each.mark))


def remove(cache: Path, word: str) -> list[Kept]:
    """Delete what `word` names: a prepared text's mark, or the name of a text.

    Returns:
        What was deleted. The text itself is never touched; it is prepared anew when it is used.

    Raises:
        TextError: nothing has that mark or name.
        StorageError: the folder may not be deleted.
    """
    chosen = [each for each in kept(cache) if word in (each.mark, each.text)]
    if not chosen:
        raise TextError(
            "nothing prepared is called {word!r}; `partwise data list` shows what there is",
            word=word,
        )
    for each in chosen:
        # The lock beside it stays: another process may have opened it and be about to hold it.
        with in_turn(each.folder.parent / "lock"), writing(each.folder):
            shutil.rmtree(each.folder)
    return chosen


def _places(cache: Path) -> list[Path]:
    root = cache / "tokens"
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
