"""One writer at a time, also across processes, and no lock outlives its holder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from partwise.errors import RunError
from partwise.storage import lock

HOLD = """
import sys
from pathlib import Path
from partwise.storage import lock
with lock(Path(sys.argv[1])):
    sys.stdout.write("held\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


def holder(path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_with_the_first_ones_number(tmp_path: Path) -> None:
    path = tmp_path / "run" / "lock"
    process = holder(path)
    try:
        with pytest.raises(RunError) as caught, lock(path):
            pass
        assert f"process {process.pid};" in str(caught.value)
        assert str(path.parent) in str(caught.value)
    finally:
        process.communicate("")
    with lock(path):
        pass


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = holder(path)
    process.kill()
    process.communicate()
    assert path.read_text(encoding="ascii").strip() == str(process.pid)
    with lock(path):
        pass


def test_the_same_process_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock(path), pytest.raises(RunError), lock(path):
        pass
    with lock(path):
        pass


def test_an_error_inside_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ValueError, match="inside"), lock(path):
        raise ValueError("inside")
    assert path.read_bytes() == b""
    with lock(path):
        pass


def test_a_refused_holder_does_not_free_the_first(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock(path):
        for _ in range(2):
            with pytest.raises(RunError), lock(path):
                pass


def test_a_full_disk_does_not_open_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with lock(path), pytest.raises(RunError, match=r"process \?"), lock(path):
        pass
