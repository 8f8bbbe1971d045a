"""The vector registers that the C code for training is written for: AVX-512's, or AVX2's."""

from pathlib import Path

from partwise.machine.library import NATIVE, Source

# Rows of numbers are padded to a multiple of this, as in vectors.h.
WHOLE = 16


def serve() -> bool:
    """Whether torch found such registers, and a C compiler can be told to use them."""
    return _capability() in ("AVX512", "AVX2") and bool(NATIVE)


def are_longest() -> bool:
    """Whether they are AVX-512's."""
    return _capability() == "AVX512"


def source(file: Path) -> Source:
    """A C file that is of use in such registers alone.

    torch has its threads from the same OpenMP, so that both share one set of them. Where it has
    shorter registers than the processor, as `ATEN_CPU_CAPABILITY` may say, so has the file.
    """
    shorter = ("-mno-avx512f",) if _capability() == "AVX2" else ()
    return Source(file, ("-fopenmp", *shorter), native=True)


def _capability() -> str:
    import torch

    return torch.backends.cpu.get_cpu_capability()
