"""Writes that fail leave the old content, no leftovers, and one line that says what to do."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from partwise import storage
from partwise.errors import StorageError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_bytes_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "data.bin"
    storage.write_atomic(path, b"\r\n\x00\xff")
    assert path.read_bytes() == b"\r\n\x00\xff"
    storage.write_atomic(path, b"")
    assert path.read_bytes() == b""
    assert names(path.parent) == ["data.bin"]


def test_unicode_names(tmp_path: Path) -> None:
    path = tmp_path / "小说 é 🙂" / "词.json"
    storage.write_json(path, {"词": "元"}, kind="word", version=1)
    assert storage.read_json(path, kind="word", newest=1) == (1, {"词": "元"})
    assert "词" in path.read_text(encoding="utf-8")


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:3])))
    storage.write_atomic(tmp_path / "data", b"0123456789")
    assert (tmp_path / "data").read_bytes() == b"0123456789"


@pytest.mark.parametrize("call", ["open", "write", "fsync"])
@pytest.mark.parametrize(
    ("number", "word"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "disk is full"),
        (errno.EACCES, "does not permit"),
        (errno.EROFS, "does not permit"),
        (errno.EIO, "cannot be written"),
    ],
)
def test_a_refusal_of_the_system_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, word: str
) -> None:
    path = tmp_path / "state.json"
    storage.write_atomic(path, b"old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        with pytest.raises(StorageError) as caught:
            storage.write_atomic(path, b"new")
    assert str(path) in str(caught.value)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["state.json"]


def test_a_refused_rename_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    storage.write_atomic(path, b"old")

    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(errno.EACCES, "denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        with pytest.raises(StorageError, match="does not permit"):
            storage.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["state.json"]


def test_an_interrupt_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    storage.write_atomic(path, b"old")

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            storage.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["state.json"]


def test_a_folder_where_a_file_stands(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot be written"):
        storage.write_atomic(tmp_path / "file" / "inner", b"x")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a small file system")
    mounting = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not permit mounting")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_disk_that_is_really_full(tiny_disk: Path) -> None:
    path = tiny_disk / "state.json"
    storage.write_json(path, {"step": 1}, kind="state", version=1)
    weights = tiny_disk / "model.safetensors"
    sha = storage.write_tensors(weights, {"w": torch.ones(8)})
    large = torch.zeros(1_000_000)
    for attempt in (
        lambda: storage.write_json(path, "x" * 500_000, kind="state", version=1),
        lambda: storage.write_tensors(weights, {"w": large}),
    ):
        with pytest.raises(StorageError, match="disk is full"):
            attempt()
    final = tiny_disk / "step-000002"
    with (
        pytest.raises(StorageError, match="disk is full") as caught,
        storage.write_folder(final) as folder,
    ):
        storage.write_tensors(folder / "model.safetensors", {"w": large})
    assert str(final / "model.safetensors") in str(caught.value)
    with pytest.raises(StorageError, match=r"needs 4\.0 MB"):
        storage.require_free(final, 4_000_000)
    assert storage.read_json(path, kind="state", newest=1) == (1, {"step": 1})
    assert torch.equal(storage.read_tensors(weights, sha)["w"], torch.ones(8))
    assert names(tiny_disk) == ["model.safetensors", "state.json"]
