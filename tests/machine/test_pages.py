"""Large pages hold the same numbers, each in its place; without them nothing changes."""

import mmap
from itertools import pairwise
from typing import Any

import pytest
import torch

from partwise.machine.pages import LargePages

needs_large_pages = pytest.mark.skipif(
    not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no large pages to ask for"
)


def tensors() -> list[torch.Tensor]:
    return [
        torch.arange(1_000_003).bfloat16(),
        torch.arange(-5, 70, dtype=torch.int8).view(3, 25),
        torch.arange(7.0)[:, None] / 3,
        torch.arange(400_000).view(2, -1).T,
    ]


@needs_large_pages
def test_every_tensor_keeps_its_numbers_and_begins_a_line_of_the_cache() -> None:
    pages = LargePages(8 << 20)
    kept = [pages.keep(tensor) for tensor in tensors()]
    places = [(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in kept]
    assert all(start % LargePages.ALIGNED == 0 for start, _ in places)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    del pages
    for found, wanted in zip(kept, tensors(), strict=True):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


@needs_large_pages
def test_what_finds_no_room_stays_where_it_is() -> None:
    pages = LargePages(2 << 20)
    first, second = torch.rand(300_000), torch.rand(700_000)
    assert pages.keep(first) is not first
    assert pages.keep(second) is second


@pytest.mark.parametrize("fault", ["too small", "unknown here", "refused"])
def test_without_large_pages_the_tensors_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    if fault == "unknown here":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    if fault == "refused":
        monkeypatch.setattr(mmap, "mmap", refused)
    pages = LargePages(1000 if fault == "too small" else 8 << 20)
    for tensor in tensors():
        assert pages.keep(tensor) is tensor
