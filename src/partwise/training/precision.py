"""The numbers that matrix products are computed in; weights and optimizer stay float32.

bfloat16 has float32's range and needs no care. float16 has not: its loss is multiplied before the
backward pass so that small gradients do not vanish, and a step whose gradients overflow is left out
(Micikevicius et al., "Mixed Precision Training", 2018, section 3.2).
"""

from contextlib import AbstractContextManager, nullcontext

import torch


class Precision:
    """One precision on one device.

    Args:
        device: where the model is.
        dtype: float32, bfloat16 or float16.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype
        self.scaler = torch.amp.GradScaler(device.type) if dtype == torch.float16 else None

    @property
    def name(self) -> str:
        """The precision as the settings name it."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def exhausted(self) -> bool:
        """Whether gradients overflow float16 even when the loss is all but nothing."""
        return self.scaler is not None and self.scaler.get_scale() < 1e-6

    def autocast(self) -> AbstractContextManager[object]:
        """Compute matrix products in this precision inside the `with`."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)
