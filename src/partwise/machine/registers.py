"""The vector registers that the C code for training is written for: AVX-512's, or AVX2's."""

import sys


def serve() -> bool:
    """Whether torch found such registers, and a C compiler can be told to use them."""
    # gcc for Windows may not be (`library.py`), and without them the code is of no use.
    return _capability() in ("AVX512", "AVX2") and sys.platform != "win32"


def are_longest() -> bool:
    """Whether they are AVX-512's."""
    return _capability() == "AVX512"


def flags() -> tuple[str, ...]:
    """What tells a C compiler which to use, where the processor has longer ones than torch uses.

    torch has shorter ones where `ATEN_CPU_CAPABILITY` says so.
    """
    return ("-mno-avx512f",) if _capability() == "AVX2" else ()


def _capability() -> str:
    import torch

    return torch.backends.cpu.get_cpu_capability()
