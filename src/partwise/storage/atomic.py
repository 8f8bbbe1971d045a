"""How a file becomes visible: hidden beside its place, synced, renamed, and the folder synced."""

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partwise.storage.faults import writing

PARTIAL = ".partial-"

# Windows alone translates line ends unless told not to.
BINARY = getattr(os, "O_BINARY", 0)

_ATTEMPTS = 20 if sys.platform == "win32" else 1


def hidden_beside(path: Path) -> Path:
    """A new name beside `path`, which `sweep` knows."""
    return path.parent / (PARTIAL + secrets.token_hex(8))


@contextmanager
def partial(path: Path) -> Iterator[Path]:
    """A hidden name beside `path`, renamed to it at the end and deleted on failure."""
    hidden = hidden_beside(path)
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield hidden
            replace(hidden, path)
            sync_folder(path.parent)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise


def replace(source: Path, target: Path) -> None:
    """Rename in one step, over whatever file stands at `target`."""
    # On Windows a reader or a virus scanner that has the file open bars the rename for a moment.
    for attempt in range(_ATTEMPTS):
        try:
            source.replace(target)
            return
        except PermissionError:
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(0.05)


def sync_file(path: Path) -> None:
    """Wait until the file's bytes are on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the folder's names are on the disk."""
    # Windows cannot open a folder, and renames there are on disk without it.
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
