"""The vector registers that the C code for training is written for: AVX-512's, or AVX2's."""

WRITTEN_FOR = ("AVX512", "AVX2")


def has_registers() -> bool:
    """Whether torch found such registers, and was not told to do without them."""
    return _capability() in WRITTEN_FOR


def has_halves(features: str) -> bool:
    """Whether the processor multiplies bfloat16 in them, by VDPBF16PS.

    Args:
        features: `cpu_features()`.
    """
    return "avx512_bf16" in features.split() and _capability() == "AVX512"


def flags() -> tuple[str, ...]:
    """What tells a C compiler which to use, where the processor has longer ones than torch uses.

    torch has shorter ones where `ATEN_CPU_CAPABILITY` says so.
    """
    return ("-mno-avx512f",) if _capability() == "AVX2" else ()


def _capability() -> str:
    import torch

    return torch.backends.cpu.get_cpu_capability()
