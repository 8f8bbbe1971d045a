"""Tests that compile C want a compiler, and are skipped without one."""

import platform
import shutil

import pytest

from partwise.machine.library import COMPILERS

COMPILER = next(filter(None, map(shutil.which, COMPILERS)), None)

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")

# What the compiler is told for the registers of this processor, and for those of AVX2.
REGISTERS = [
    pytest.param((), id="own"),
    pytest.param(
        ("-mno-avx512f",),
        id="avx2",
        marks=pytest.mark.skipif(
            platform.machine().lower() not in ("x86_64", "amd64"), reason="no processor of x86"
        ),
    ),
]
