"""Tests that compile C want a compiler, and are skipped without one."""

import shutil

import pytest

from partwise.machine.library import COMPILERS

COMPILER = next(filter(None, map(shutil.which, COMPILERS)), None)

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")
