"""How wide a token id is on disk."""

from typing import Any

import numpy as np


def dtype_for(vocab_size: int) -> np.dtype[Any]:
    """The narrowest of 1, 2 and 4 bytes that numbers `vocab_size` tokens, little-endian."""
    for kind in ("u1", "<u2"):
        if vocab_size <= 1 << (8 * np.dtype(kind).itemsize):
            return np.dtype(kind)
    return np.dtype("<u4")
