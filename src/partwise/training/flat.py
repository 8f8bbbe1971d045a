"""Many tensors in one vector: a loop over the vector does for all of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

# Each tensor begins at a multiple of this many numbers: 64 bytes of float32, a line of the cache.
ALIGNED = 16


class Layout:
    """Where each of several tensors lies in a vector; the gaps between them hold zeros.

    Args:
        shapes: theirs.
    """

    def __init__(self, shapes: Sequence[torch.Size]) -> None:
        self.shapes = list(shapes)
        self.starts: list[int] = []
        self.length = 0
        for shape in self.shapes:
            self.starts.append(self.length)
            self.length += -(-shape.numel() // ALIGNED) * ALIGNED

    def views(self, vector: Tensor) -> list[Tensor]:
        """The tensors inside `vector` (length,); what is written to one is written to the other."""
        return [
            vector[start : start + shape.numel()].view(shape)
            for start, shape in zip(self.starts, self.shapes, strict=True)
        ]

    def joined(self, tensors: Sequence[Tensor]) -> Tensor:
        """A new vector (length,) that holds the tensors."""
        pieces = []
        for tensor, shape in zip(tensors, self.shapes, strict=True):
            pieces.append(tensor.reshape(-1))
            gap = -shape.numel() % ALIGNED
            if gap:
                pieces.append(tensor.new_zeros(gap))
        return torch.cat(pieces)

    def spread(self, values: Sequence[float]) -> Tensor:
        """A vector (length,) in which each tensor's numbers have its value, and gaps have 0."""
        each = [torch.full(shape, value) for shape, value in zip(self.shapes, values, strict=True)]
        return self.joined(each)
