"""Freed memory is kept while it is asked for, where the system's allocator can be told so."""

import sys

import pytest
import torch

from partwise.machine import keep_freed

resource = pytest.importorskip("resource")

# Above what glibc ever keeps by itself.
NUMBERS = 2**24  # 64 MB


def faults() -> int:
    """Pages that the system clears for a block of 64 MB, which another has just left."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(NUMBERS)
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


def test_a_block_that_is_freed_is_used_again() -> None:
    if not keep_freed(True):
        pytest.skip("the allocator of this system cannot be told")
    try:
        # An aligned block needs a little more than it leaves, so that the first ones do not fit.
        assert min(faults() for _ in range(40)) < 100
    finally:
        keep_freed(False)
    assert faults() > 100


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed(True) is False
