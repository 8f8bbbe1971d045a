"""The system's refusals, each turned into one line that names the file and the fix."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partwise.errors import StorageError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's errors while `path` is written into one line.

    Raises:
        StorageError: in place of any OSError.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                "{path} cannot be written: the disk is full; free some space and start again",
                path=path,
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StorageError(
                "{path} cannot be written: {folder} does not permit it; change its permissions or "
                "choose another folder",
                path=path,
                folder=path.parent,
            ) from error
        raise StorageError(
            "{path} cannot be written: {reason}", path=path, reason=error.strerror or error
        ) from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the system's errors while `path` is read into one line.

    Raises:
        StorageError: in place of any OSError.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError("there is no file {path}", path=path) from error
    except OSError as error:
        raise StorageError(
            "{path} cannot be read: {reason}", path=path, reason=error.strerror or error
        ) from error
