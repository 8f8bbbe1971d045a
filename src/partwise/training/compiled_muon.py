"""A step of Muon as machine code: `muon.c`, for training on a CPU."""

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from partwise.machine import registers

SOURCE = registers.source(Path(__file__).with_name("muon.c"))

_INT, _REAL, _PLACE = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class _Moved(ctypes.Structure):
    _fields_ = [
        *((name, _PLACE) for name in ("weight", "momentum", "gradient")),
        *((name, _INT) for name in ("rows", "columns")),
    ]


class _Move(ctypes.Structure):
    _fields_ = [
        *((name, _INT) for name in ("matrices", "threads", "steps", "small")),
        ("polynomials", _PLACE),
        *((name, _REAL) for name in ("momentum", "rate", "decay", "safety")),
    ]


@functools.cache
def loaded(library: Path) -> ctypes.CDLL:
    """The functions of a compiled `muon.c`.

    Raises:
        OSError: it cannot be loaded; a file system may forbid it.
    """
    functions = ctypes.CDLL(str(library))
    functions.partwise_muon_room.argtypes = [_PLACE] * 2
    functions.partwise_muon_room.restype = _INT
    functions.partwise_muon.argtypes = [_PLACE] * 3
    functions.partwise_muon.restype = None
    return functions


def serves(matrices: Sequence[Tensor]) -> bool:
    """Whether `muon.c` moves such matrices, on a processor that it is written for."""
    return registers.serve() and all(
        matrix.device.type == "cpu"
        and matrix.dtype == torch.float32
        and matrix.is_contiguous()
        and all(side % registers.WHOLE == 0 for side in matrix.shape)
        for matrix in matrices
    )


def move(
    library: Path,
    matrices: Sequence[tuple[Tensor, Tensor, Tensor]],
    polynomials: Sequence[tuple[float, float, float]],
    *,
    momentum: float,
    rate: float,
    decay: float,
    safety: float,
    small: int,
) -> None:
    """Move weights by their momentum made orthogonal, as `Muon` does.

    Args:
        library: of `SOURCE`.
        matrices: weight, momentum and gradient of each.
        polynomials: of each iteration.
        momentum, rate, decay: see `Muon`.
        safety: share that is left between the largest singular value and 1.
        small: so many iterations at most stand on X Xᵀ alone.
    """
    functions = loaded(library)
    numbers = (_REAL * (3 * len(polynomials)))(*(n for part in polynomials for n in part))
    kept = [tuple(part.contiguous() for part in parts) for parts in matrices]
    moved = (_Moved * len(kept))(
        *(_Moved(*(part.data_ptr() for part in parts), *parts[0].shape) for parts in kept)
    )
    asked = _Move(
        len(kept),
        torch.get_num_threads(),
        len(polynomials),
        small,
        ctypes.addressof(numbers),
        *(momentum, rate, decay, safety),
    )
    numbers_needed = functions.partwise_muon_room(ctypes.byref(asked), moved)
    room = torch.empty(numbers_needed, dtype=torch.float32, device="cpu")
    functions.partwise_muon(ctypes.byref(asked), moved, room.data_ptr())
