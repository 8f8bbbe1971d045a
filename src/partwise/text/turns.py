"""Waiting for one's turn where several processes want to make the same file."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from partwise.errors import RunError
from partwise.storage import lock

PAUSE = 0.1


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Hold the lock file `path` inside the `with`, after waiting for whoever holds it."""
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lock(path))
                break
            except RunError:
                time.sleep(PAUSE)
        yield
