"""Peak arithmetic of a device: measured on a CPU, the maker's figure on a GPU, else unknown."""

import re
from typing import TYPE_CHECKING

from partwise.machine.measure import measured

if TYPE_CHECKING:
    import torch

# Dense peaks in FLOP/s: 16-bit on tensor cores, then float32 without them. From NVIDIA's data
# sheets: V100 (2020), T4 (2019), A10 (2021), A100 (2021), L4 (2023), L40S (2023), H100 (2023),
# H200 (2024), and the Ampere GA102 and Ada GPU architecture whitepapers (GeForce; float32
# accumulation).
_PEAKS = (
    (r"H200", 989e12, 67e12),
    (r"H100 PCIe", 756e12, 51e12),
    (r"H100 80GB HBM3", 989e12, 67e12),
    (r"A100", 312e12, 19.5e12),
    (r"L40S", 362e12, 91.6e12),
    (r"L4", 121e12, 30.3e12),
    (r"A10", 125e12, 31.2e12),
    (r"V100-SXM2", 125e12, 15.7e12),
    (r"T4", 65e12, 8.1e12),
    (r"RTX 4090", 165.2e12, 82.6e12),
    (r"RTX 3090", 71e12, 35.6e12),
)


def peak_flops(device: "torch.device", dtype: "torch.dtype") -> float | None:
    """The most floating-point operations a second that `device` can do in `dtype`.

    A CPU is measured; a GPU has its maker's figure. None means unknown, and then no share of the
    peak may be shown.
    """
    import torch

    if device.type == "cpu":
        if dtype == torch.float32:
            return measured().float32_flops
        return measured().bfloat16_flops if dtype == torch.bfloat16 else None
    if device.type == "cuda":
        return gpu_peak(torch.cuda.get_device_name(device), half=dtype != torch.float32)
    return None


def gpu_peak(name: str, *, half: bool) -> float | None:
    """The maker's dense peak of the GPU called `name` (FLOP/s), in 16 bits or float32.

    None for a model that is not in the table, and for a slice of a GPU.
    """
    if "MIG" in name:
        return None
    for pattern, sixteen, thirty_two in _PEAKS:
        if re.search(rf"\b{pattern}\b", name):
            return sixteen if half else thirty_two
    return None
