"""Folders that appear whole, what killed writers left, free space, and the cache's place."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from partwise.errors import StorageError
from partwise.storage.atomic import PARTIAL, hidden_beside, replace, sync_file, sync_folder
from partwise.storage.faults import reading, writing


@contextmanager
def write_folder(final: Path, *, over: bool = True) -> Iterator[Path]:
    """Fill a folder that appears at `final` when the `with` ends, whole or not at all.

    Inside the `with`, write into the folder that is yielded.

    Args:
        final: where it appears.
        over: a folder that stands there already is moved aside when the new one is whole, and
            deleted last; with False it stays, and the new one is refused.

    Raises:
        StorageError: the disk is full, the place may not be written to, or (with over=False) is
            taken; `final` is as it was.
    """
    hidden = hidden_beside(final)
    with writing(final):
        try:
            hidden.mkdir(parents=True)
            yield hidden
            inner = sorted(hidden.rglob("*"))
            for file in inner:
                if not file.is_dir():
                    sync_file(file)
            for folder in [path for path in inner if path.is_dir()] + [hidden]:
                sync_folder(folder)
            _move_in(hidden, final, over)
        except StorageError as error:
            # The reader knows the folder by its final name.
            for name, value in error.values.items():
                if isinstance(value, Path) and value.is_relative_to(hidden):
                    error.values[name] = final / value.relative_to(hidden)
            raise
        finally:
            shutil.rmtree(hidden, ignore_errors=True)


def _move_in(hidden: Path, final: Path, over: bool) -> None:
    aside = hidden_beside(final)
    standing = final.exists()
    if not over:
        if standing:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        # Between the look and the rename another may have come first: a rename onto a folder with
        # something in it fails on every system.
        hidden.rename(final)
        sync_folder(final.parent)
        return
    if standing:
        replace(final, aside)
    try:
        replace(hidden, final)
    except OSError:
        if standing:
            replace(aside, final)
        raise
    sync_folder(final.parent)
    shutil.rmtree(aside, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Delete what killed writers left half-written in `folder`; call it while holding its lock."""
    for left in sorted(folder.glob(PARTIAL + "*")):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            with writing(left):
                left.unlink(missing_ok=True)


def require_free(path: Path, bytes_needed: int) -> None:
    """Check that the disk of `path`, which need not exist yet, has room.

    Raises:
        StorageError: it has not; the line names the need, what is free, and the folder.
    """
    folder = path.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with reading(folder):
        free = shutil.disk_usage(folder).free
    if free < bytes_needed:
        raise StorageError(
            "{path} needs {needed} MB and {folder} has {free} MB free; free some space or choose "
            "another folder",
            path=path,
            needed=f"{bytes_needed / 1e6:,.1f}",
            free=f"{free / 1e6:,.1f}",
            folder=folder,
        )


def cache_folder() -> Path:
    """Where prepared texts and measurements may be kept; anything in it can be made again.

    `PARTWISE_CACHE`, else `partwise` in the system's folder for a user's caches.

    Raises:
        StorageError: the user has no home folder, as in some containers, or `~name` has none.
    """
    with _homeless("PARTWISE_CACHE"):
        named = os.environ.get("PARTWISE_CACHE")
        if named:
            return Path(named).expanduser()
        return _whole(platformdirs.user_cache_path("partwise", appauthor=False, opinion=False))


def data_folder() -> Path:
    """Where what a person made is kept, such as progress in the course; nothing makes it again.

    `PARTWISE_HOME`, else `partwise` in the system's folder for a user's data.

    Raises:
        StorageError: the user has no home folder, as in some containers, or `~name` has none.
    """
    with _homeless("PARTWISE_HOME"):
        named = os.environ.get("PARTWISE_HOME")
        if named:
            return Path(named).expanduser()
        return _whole(platformdirs.user_data_path("partwise", appauthor=False, roaming=True))


def _whole(folder: Path) -> Path:
    if not folder.is_absolute():
        raise RuntimeError(folder)  # an older platformdirs leaves the ~ of a missing home standing
    return folder


@contextmanager
def _homeless(variable: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise StorageError(
            "there is no home folder to keep Partwise's files in; set {variable} to a whole path",
            variable=variable,
        ) from error
