"""Bytes, and JSON that carries its kind, format version and checksum."""

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from partwise.errors import StorageError
from partwise.storage.atomic import BINARY, hidden_beside, partial
from partwise.storage.faults import reading, writing
from partwise.storage.tensors import refuse_pickle

# Bytes from which a file of settings, an index or a vocabulary is taken for something else.
SMALL = 256 * 10**6


def write_atomic(path: Path, data: bytes) -> None:
    """Give the file `path` the content `data`, whole or not at all.

    Raises:
        StorageError: the disk is full, or the folder may not be written to; `path` is as it was.
    """
    with partial(path) as hidden:
        descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_output(path: Path, data: bytes) -> None:
    """Write `data` to whatever a user names: a file whole or not at all, a pipe or device as it is.

    What stands behind a link is written, and the link stays.

    Raises:
        StorageError: it cannot be written to.
    """
    with writing(path):
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            target.stat()  # a loop of links, in the system's own words
        if target.exists() and not target.is_file():
            # Renamed over, /dev/null would be a null device no longer.
            with target.open("wb", buffering=0) as stream:
                rest = memoryview(data)
                while rest:
                    rest = rest[stream.write(rest) :]
            return
    write_atomic(target, data)


def try_output(path: Path) -> None:
    """Check that `write_output` can write there, before what it is to write has taken its time.

    Nothing is left behind, and nothing that stands there is opened: a pipe would wait for its
    reader.

    Raises:
        StorageError: it cannot be written to.
    """
    with writing(path):
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            target.stat()
        if target.exists() and not target.is_file():
            if not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
            return
        folder = next(parent for parent in target.parents if os.path.lexists(parent))
        hidden = hidden_beside(folder / target.name)
        try:
            hidden.touch()
        finally:
            hidden.unlink(missing_ok=True)


def write_json(path: Path, value: object, *, kind: str, version: int) -> None:
    """Write `{"kind", "version", "checksum", "value"}` as JSON that is pleasant to read.

    The checksum covers kind, version and value, not the layout: a file that an editor has indented
    anew is still whole.

    Args:
        path: the file.
        value: what JSON can hold; NaN and infinities are not JSON and raise ValueError.
        kind: what the file is, e.g. "checkpoint".
        version: the format of `value`, from 1.
    """
    # Through JSON once, so that what is signed is what a reader gets: keys become text.
    plain = json.loads(_json(value))
    signed = {"kind": kind, "version": version, "checksum": _checksum(kind, version, plain)}
    write_atomic(path, (_json({**signed, "value": plain}, indent=2) + "\n").encode("utf-8"))


def read_small(path: Path) -> bytes:
    """All of a file that is settings, an index or a vocabulary, and so fits into memory.

    A pipe is read too; what never ends, as /dev/zero, is given up at 256 MB.

    Raises:
        StorageError: there is no such file, it cannot be read, or it is larger.
    """
    with reading(path), path.open("rb") as stream:
        data = stream.read(SMALL + 1)
    if len(data) > SMALL:
        raise StorageError(
            "{path} has more than {limit} MB where settings or a vocabulary belong; name the right "
            "file",
            path=path,
            limit=SMALL // 10**6,
        )
    return data


def read_json(path: Path, *, kind: str, newest: int) -> tuple[int, Any]:
    """The format version and the value of a file that `write_json` wrote.

    Args:
        path: the file.
        kind: what it must be.
        newest: the newest format version that the caller understands.

    Raises:
        StorageError: the file is missing, torn, changed, of another kind, or newer.
    """
    refuse_pickle(path)
    data = read_small(path)
    try:
        whole = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise StorageError(
            "{path} is torn or not JSON; delete it or bring it back from a copy", path=path
        ) from error
    if not isinstance(whole, dict) or not {"kind", "version", "checksum", "value"} <= set(whole):
        raise StorageError(
            "{path} was not written by Partwise: kind, version, checksum or value is missing",
            path=path,
        )
    if whole["kind"] != kind:
        raise StorageError(
            "{path} holds {found!r} where {kind!r} is needed",
            path=path,
            found=whole["kind"],
            kind=kind,
        )
    version = whole["version"]
    if type(version) is not int or version < 1:
        raise StorageError(
            "{path} names format version {version!r}, which is not a number from 1",
            path=path,
            version=version,
        )
    if version > newest:
        raise StorageError(
            "{path} has format version {version} and this Partwise reads up to {newest}; upgrade "
            "Partwise",
            path=path,
            version=version,
            newest=newest,
        )
    if whole["checksum"] != _checksum(kind, version, whole["value"]):
        raise StorageError(
            "{path} does not match its checksum: it was changed after it was written; bring it "
            "back from a copy",
            path=path,
        )
    return version, whole["value"]


def _json(value: object, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Half a surrogate pair, as in a file name that is not UTF-8, can only be escaped.
        return json.dumps(value, indent=indent, allow_nan=False)
    return text


def _checksum(kind: object, version: object, value: object) -> str:
    signed = {"kind": kind, "version": version, "value": value}
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
