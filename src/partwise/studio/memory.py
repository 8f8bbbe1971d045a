"""A kernel's memory: how much it may have, and who sees to it."""

import importlib
import sys
from typing import Any

# Most of a machine is left to the learner's other programs.
SHARE = 0.5
MOST = 8 << 30
LEAST = 1 << 30


def suitable(total: int) -> int:
    """Bytes that a kernel may have on a machine of `total` bytes."""
    return max(LEAST, min(MOST, int(total * SHARE)))


def limit_memory(size: int) -> None:
    """Hold this process to `size` bytes of data where the system can: on Linux.

    Python then raises MemoryError in the cell that asks for more, and the kernel lives on.
    Elsewhere, and for what the system does not count, the server watches and ends the kernel.
    """
    if sys.platform == "linux":
        import resource

        # Data, not address space: torch reserves far more addresses than it ever uses.
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def used(process: int) -> int:
    """Bytes that a process has in memory, its children's included; 0 when it is gone."""
    psutil: Any = importlib.import_module("psutil")
    try:
        parent = psutil.Process(process)
        everyone = [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return 0
    total = 0
    for one in everyone:
        try:
            total += one.memory_info().rss
        except psutil.Error:
            continue
    return total


def machine_memory() -> int:
    """Bytes of memory in this machine."""
    psutil: Any = importlib.import_module("psutil")
    return int(psutil.virtual_memory().total)
