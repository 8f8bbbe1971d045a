"""What well-known accelerators promise: dense bfloat16 products and memory, from their makers.

Makers like to print the figure for sparse matrices, twice the dense one; training is dense.
"""

from dataclasses import dataclass

from partwise.errors import ConfigError
from partwise.settings import offer

TERA = 10**12
GB = 10**9


@dataclass(frozen=True)
class Accelerator:
    """One chip or card.

    Args:
        name: as its maker writes it.
        flops: peak of dense bfloat16 products with float32 sums (floating-point operations/s).
        memory: bytes, decimal gigabytes as its maker counts them.
        bandwidth: bytes/s between memory and chip.
        source: the maker's publication.
    """

    name: str
    flops: float
    memory: int
    bandwidth: float
    source: str


_TABLE = (
    Accelerator("A100-40GB", 312 * TERA, 40 * GB, 1.555 * TERA, "NVIDIA A100 datasheet, SXM, 2020"),
    Accelerator("A100", 312 * TERA, 80 * GB, 2.039 * TERA, "NVIDIA A100 80GB datasheet, SXM, 2021"),
    Accelerator("H100", 989 * TERA, 80 * GB, 3.35 * TERA, "NVIDIA H100 datasheet, SXM, 2022"),
    Accelerator("H200", 989 * TERA, 141 * GB, 4.8 * TERA, "NVIDIA H200 datasheet, SXM, 2023"),
    Accelerator("B200", 2250 * TERA, 180 * GB, 8.0 * TERA, "NVIDIA DGX B200 datasheet, 2024"),
    Accelerator("L4", 121 * TERA, 24 * GB, 0.3 * TERA, "NVIDIA L4 datasheet, 2023"),
    Accelerator("L40S", 362 * TERA, 48 * GB, 0.864 * TERA, "NVIDIA L40S datasheet, 2023"),
    Accelerator(
        "RTX 3090", 71 * TERA, 24 * GB, 0.936 * TERA, "NVIDIA Ampere GA102 whitepaper, 2020"
    ),
    Accelerator("RTX 4090", 165.2 * TERA, 24 * GB, 1.008 * TERA, "NVIDIA Ada GPU whitepaper, 2022"),
    Accelerator(
        "RTX 5090", 209.5 * TERA, 32 * GB, 1.792 * TERA, "NVIDIA RTX Blackwell whitepaper, 2025"
    ),
    Accelerator("MI300X", 1307.4 * TERA, 192 * GB, 5.3 * TERA, "AMD MI300X data sheet, 2023"),
    Accelerator("TPU v4", 275 * TERA, 32 * GB, 1.2 * TERA, "Jouppi et al. 2023, TPU v4, table 4"),
)

ACCELERATORS = {chip.name: chip for chip in _TABLE}


def accelerator(name: str) -> Accelerator:
    """The accelerator of that name; case, spaces and dashes do not matter.

    Raises:
        ConfigError: no such name; the message gives the nearest, or all of them.
    """

    def plain(text: str) -> str:
        return text.lower().replace(" ", "").replace("-", "").replace("_", "")

    found = {plain(known): chip for known, chip in ACCELERATORS.items()}
    if plain(name) not in found:
        raise ConfigError(
            "there is no accelerator {name!r} in the table; {offer}",
            name=name,
            offer=offer(name, ACCELERATORS),
        )
    return found[plain(name)]
