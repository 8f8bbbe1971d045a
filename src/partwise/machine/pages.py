"""Memory in large pages, where the system gives them: what is read from end to end over and over.

Each page that a processor reads has to be looked up, and a lookup that is not at hand waits for
memory as the page itself does, in a virtual machine several times over. A page of 2 MB stands for
512 of the usual ones.
"""

import mmap

import torch
from torch import Tensor

_LARGE = 2 << 20


class LargePages:
    """Room for tensors, one behind the other; as usual memory where there are no large pages.

    Args:
        size: of all of them (bytes). Room that is not used takes no memory.
    """

    # Where each tensor begins, so that no vector lies across two lines of a cache (bytes).
    ALIGNED = 64

    def __init__(self, size: int) -> None:
        self._room: Tensor | None = None
        self._used = 0
        if size < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
            return
        try:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            memory = mmap.mmap(-1, size + _LARGE, flags=flags)
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            return
        room = torch.frombuffer(memory, dtype=torch.uint8)
        start = -room.data_ptr() % _LARGE
        self._room = room[start : start + size]

    def keep(self, tensor: Tensor) -> Tensor:
        """The same numbers in this memory, or the tensor itself where there is no room."""
        end = self._used + tensor.nbytes
        if self._room is None or end > len(self._room):
            return tensor
        kept = self._room[self._used : end].view(tensor.dtype).view(tensor.shape)
        self._used = end + -end % self.ALIGNED
        return kept.copy_(tensor)
