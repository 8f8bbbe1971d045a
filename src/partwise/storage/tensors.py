"""Weights and optimizer state as safetensors, and the refusal of everything pickled."""

import errno
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from partwise.errors import StorageError
from partwise.storage.atomic import partial, sync_file
from partwise.storage.faults import reading

if TYPE_CHECKING:
    import torch

_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")
_PROTOCOLS = tuple(bytes([0x80, protocol]) for protocol in (2, 3, 4, 5))


def write_tensors(
    path: Path, tensors: Mapping[str, "torch.Tensor"], metadata: Mapping[str, str] = {}
) -> str:
    """Write tensors as safetensors, whole or not at all.

    Args:
        path: the file.
        tensors: name -> tensor, on any device; no two may share memory.
        metadata: texts kept in the file's header.

    Returns:
        The file's SHA-256 (64 hex digits), for `read_tensors` to hold it to.

    Raises:
        StorageError: the disk is full, or the folder may not be written to; `path` is as it was.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with partial(path) as hidden:
        # The library makes files that only their owner may read; ours are like any other file.
        hidden.touch()
        mode = hidden.stat().st_mode
        try:
            save_file(plain, hidden, metadata=dict(metadata) or None)
        except SafetensorError as error:
            # The library reports a full disk in words alone; raise it as the system would have.
            number = re.search(r"os error (\d+)", str(error))
            code = int(number[1]) if number else errno.EIO
            raise OSError(code, str(error), None, code) from error
        hidden.chmod(mode)
        sync_file(hidden)
        return sha256_file(hidden)


def read_tensors(path: Path, sha256: str | None = None) -> dict[str, "torch.Tensor"]:
    """The tensors of a safetensors file, on the CPU.

    Args:
        path: the file.
        sha256: the checksum it must have; None reads it as it is.

    Raises:
        StorageError: the file is missing, torn, or not the one that the checksum was taken of.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    refuse_pickle(path)
    if sha256 is not None:
        found = sha256_file(path)
        if found != sha256:
            raise StorageError(
                "{path} does not match its checksum: it is {found} where {wanted} is recorded; "
                "bring it back from a copy",
                path=path,
                found=found[:12],
                wanted=sha256[:12],
            )
    with reading(path):
        try:
            return load_file(path)
        except SafetensorError as error:
            raise StorageError(
                "{path} is torn or not safetensors ({reason}); bring it back from a copy",
                path=path,
                reason=error,
            ) from error


def refuse_pickle(path: Path) -> None:
    """Refuse a file whose name or first bytes say that it is a pickle.

    Raises:
        StorageError: it is one; the line says why it is not opened and what to do.
    """
    pickled = path.suffix.lower() in _PICKLES
    if not pickled and path.is_file():
        with reading(path), path.open("rb") as file:
            head = file.read(9)
        # Protocols 2 to 5 begin so, and torch's archives are zip files; a safetensors header may
        # begin with the same two bytes, but has a brace after its 8 bytes of length.
        pickled = head[:4] == b"PK\x03\x04" or (head[:2] in _PROTOCOLS and head[8:] != b"{")
    if pickled:
        raise StorageError(
            "{path} is a pickle, and opening one runs whatever program is hidden in it; Partwise "
            "reads safetensors and JSON only: save it with safetensors.torch.save_file where it "
            "was made",
            path=path,
        )


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's bytes (64 hex digits), read piece by piece."""
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
