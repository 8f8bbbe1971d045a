"""One writer at a time: a lock that the system takes back when its holder dies."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from partwise.errors import RunError
from partwise.storage.faults import writing


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path` inside the `with`; the file stays, and is empty when free.

    The system releases the lock of a process that is killed, so no lock is ever stale.

    Raises:
        RunError: another holder has it; the line names the folder and the process.
        StorageError: the file cannot be made.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with writing(path):
            held = _take(descriptor)
        if not held:
            with writing(path):
                holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            raise RunError(
                "{folder} is being written by process {pid}; wait until it ends, or stop it",
                folder=path.parent,
                pid=holder or "?",
            )
        # The number is for others to read; on a full disk the lock holds without it.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        try:
            yield
        finally:
            # Never deleted: another process may have opened it and be about to lock it.
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            _release(descriptor)
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    # Windows bars readers from a locked byte, so the byte is far behind the holder's number.
    _BYTE = 1 << 20

    def _take(descriptor: int) -> bool:
        os.lseek(descriptor, _BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

    def _release(descriptor: int) -> None:
        os.lseek(descriptor, _BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _take(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _release(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
