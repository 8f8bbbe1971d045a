"""Memory that is freed stays with the process while a model trains, rather than come and go.

A step frees and takes the same hundreds of megabytes again and again. glibc gives large blocks back
to the system at once, which then clears each page anew: 4 to 8 % of a step on a CPU.
"""

import ctypes
import sys

# Numbers of `mallopt` in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

_KEPT = 2**30  # bytes; a block that is larger still comes from the system
_USUAL = 2**25  # where glibc's own threshold ends once a program has freed large blocks


def keep_freed(keep: bool) -> bool:
    """From now on keep freed memory for the next block, or give it back as is usual.

    Args:
        keep: false also gives back what is free now.

    Returns:
        Whether this system's allocator can be told so: glibc's, of most Linux systems.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        return False
    largest = _KEPT if keep else _USUAL
    if not library.mallopt(_MMAP_THRESHOLD, largest):
        # An older glibc takes no threshold so large; the other one alone would only switch off the
        # thresholds' own growth.
        return False
    done = bool(library.mallopt(_TRIM_THRESHOLD, 2 * largest - 1))
    if not keep:
        library.malloc_trim(0)
    return done
