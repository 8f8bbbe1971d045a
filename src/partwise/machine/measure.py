"""How fast this CPU really multiplies and copies, measured once and remembered."""

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from partwise.errors import StorageError
from partwise.machine.facts import cpu_model, version_of
from partwise.storage import cache_folder, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_ROWS, _INNER, _COLUMNS = 2048, 512, 1024
_COPIED = 64 * 2**20
_SECONDS = 0.2


@dataclass(frozen=True)
class Measured:
    """What this CPU was measured to do; the best of several runs, as noise only slows.

    Args:
        float32_flops: floating-point operations a second in a float32 matrix product.
        bfloat16_flops: the same in bfloat16.
        memory_bandwidth: bytes read and written a second in a large copy.
        threads: CPU threads that it was measured with.
    """

    float32_flops: float
    bfloat16_flops: float
    memory_bandwidth: float
    threads: int

    @property
    def bfloat16_ratio(self) -> float:
        """How many times faster bfloat16 is than float32; below 1 it is slower."""
        return self.bfloat16_flops / self.float32_flops


def measured(*, fresh: bool = False) -> Measured:
    """This CPU's speed with as many threads as torch uses now.

    It takes about a second once; then the cache answers, until the processor, torch or the
    number of threads is another.

    Args:
        fresh: measure again even when the cache has an answer.
    """
    import torch

    threads = torch.get_num_threads()
    path = memory_of("speed", cpu_model(), str(version_of("torch")), str(threads))
    if not fresh:
        with suppress(StorageError, TypeError):
            return Measured(**read_json(path, kind="speed", newest=1)[1])
    of_float32, of_bfloat16 = _shortest(_product(torch.float32), _product(torch.bfloat16))
    (of_copy,) = _shortest(_copy())
    found = Measured(
        float32_flops=2 * _ROWS * _INNER * _COLUMNS / of_float32,
        bfloat16_flops=2 * _ROWS * _INNER * _COLUMNS / of_bfloat16,
        memory_bandwidth=2 * _COPIED / of_copy,  # each byte is read once and written once
        threads=threads,
    )
    # A cache that cannot be written costs a second next time, and nothing else.
    with suppress(StorageError):
        write_json(path, asdict(found), kind="speed", version=1)
    return found


def autocast_ratio(rows: int, width: int) -> float:
    """How many times faster a layer is in bfloat16, with all that is cast to it and back.

    In a narrow layer the casts take longer than the product saves. Forward and backward pass of a
    feed-forward matrix, measured once for each size and remembered like `measured`.

    Args:
        rows: tokens computed at once; more than the measurement of the CPU takes change nothing.
        width: features that go in; four times as many come out.
    """
    import torch

    rows, threads = min(rows, _ROWS), str(torch.get_num_threads())
    path = memory_of("layer", cpu_model(), str(version_of("torch")), threads, str(rows), str(width))
    with suppress(StorageError):
        known = read_json(path, kind="layer", newest=1)[1]
        if isinstance(known, float):
            return known
    of_float32, of_bfloat16 = _shortest(
        _layer(rows, width, torch.float32), _layer(rows, width, torch.bfloat16)
    )
    found = of_float32 / of_bfloat16
    with suppress(StorageError):
        write_json(path, found, kind="layer", version=1)
    return found


def memory_of(kind: str, *key: str) -> Path:
    """The cache's file for what depends on `key` alone."""
    digest = hashlib.sha256(json.dumps(key).encode("ascii")).hexdigest()[:16]
    return cache_folder() / "machine" / f"{kind}-{digest}.json"


def _product(dtype: "torch.dtype") -> "Callable[[], object]":
    """A linear layer of a small model."""
    import torch

    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(_ROWS, _INNER, generator=generator).to(dtype)
    weights = torch.randn(_COLUMNS, _INNER, generator=generator).to(dtype)
    return lambda: torch.nn.functional.linear(inputs, weights)


def _layer(rows: int, width: int, dtype: "torch.dtype") -> "Callable[[], object]":
    """A layer's forward and backward pass under autocast, from float32 to float32."""
    import torch

    inputs = torch.ones(rows, width, requires_grad=True)
    weights = torch.ones(4 * width, width, requires_grad=True)
    above = torch.ones(rows, 4 * width)

    def work() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            outputs = torch.nn.functional.linear(inputs, weights)
        torch.autograd.grad(outputs.float(), (inputs, weights), above)

    return work


def _copy() -> "Callable[[], object]":
    """A copy that no cache holds."""
    import torch

    source = torch.ones(_COPIED, dtype=torch.uint8)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _shortest(*works: "Callable[[], object]") -> list[float]:
    """The shortest of at least three runs of each, after one to warm up (seconds).

    They run in turn: a machine that others slow for a while slows all of them.
    """
    for work in works:
        work()
    shortest = [float("inf")] * len(works)
    rounds = 0
    end = time.perf_counter() + _SECONDS * len(works)
    while rounds < 3 or time.perf_counter() < end:
        for place, work in enumerate(works):
            start = time.perf_counter()
            work()
            shortest[place] = min(shortest[place], time.perf_counter() - start)
        rounds += 1
    return shortest
