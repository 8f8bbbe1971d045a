"""The chance in a sample: one uniform number a step, from the sample's own stream.

Sample i of a seed sees the same numbers whatever the number of samples, the device, the batch or
the cache, and torch's own generators are left alone.
"""

import numpy as np
import torch
from torch import Tensor

# Numbers drawn ahead, so that a step costs a view and not a draw.
BLOCK = 512


class Draws:
    """Streams of uniform numbers in (0, 1], one for each sample.

    Args:
        seed: any whole number from 0.
        count: number of samples B.
        device: where the numbers are used.
    """

    def __init__(self, seed: int, count: int, device: torch.device) -> None:
        self._streams = [
            np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(row,))))
            for row in range(count)
        ]
        self._device = device
        self._block = torch.empty(0, count, device=device)
        self._used = 0

    def next(self) -> Tensor:
        """The next step's numbers, (B,) float32."""
        return self.several(1)[0]

    def several(self, steps: int) -> Tensor:
        """The numbers of the next `steps` steps, (steps, B) float32."""
        while len(self._block) - self._used < steps:
            drawn = np.stack([stream.random(BLOCK) for stream in self._streams], axis=1)
            # 1 - u is never 0, also as a float32.
            more = torch.from_numpy((1 - drawn).astype(np.float32)).to(self._device)
            self._block = torch.cat((self._block[self._used :], more))  # (…, B)
            self._used = 0
        self._used += steps
        return self._block[self._used - steps : self._used]
