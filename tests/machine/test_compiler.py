"""Whether torch.compile works is found out by compiling, and a no comes with its reason."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partwise import machine
from partwise.machine import compiler


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path))
    machine.compile_check.cache_clear()
    yield tmp_path
    machine.compile_check.cache_clear()


def answer(returncode: int, stderr: str = "") -> Any:
    return lambda *_, **__: subprocess.CompletedProcess([], returncode, "", stderr)


def test_a_yes_is_remembered(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", answer(0))
    assert machine.can_compile()
    assert len(list((own_cache / "machine").iterdir())) == 1
    machine.compile_check.cache_clear()
    monkeypatch.setattr(subprocess, "run", answer(1, "BrokenError: x"))
    assert machine.can_compile()
    assert not machine.can_compile("mps")


def test_a_no_has_its_reason_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = (
        "Traceback (most recent call last):\n"
        "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found\n\n"
        "Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace\n"
    )
    monkeypatch.setattr(subprocess, "run", answer(1, errors))
    check = machine.compile_check()
    assert not check.works
    assert "No working C++ compiler found" in str(check.reason)
    machine.compile_check.cache_clear()
    monkeypatch.setattr(subprocess, "run", answer(0))
    assert machine.can_compile()


@pytest.mark.parametrize(
    ("failure", "word"),
    [(subprocess.TimeoutExpired("c++", 180), "180 s"), (OSError(8, "no program"), "no program")],
)
def test_a_compiler_that_hangs_or_is_missing(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, word: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise failure

    monkeypatch.setattr(subprocess, "run", fail)
    check = machine.compile_check()
    assert not check.works
    assert word in str(check.reason)


def test_the_reason_is_one_short_line() -> None:
    assert compiler._reason("") == "torch.compile failed"
    assert compiler._reason("a\nkilled\n") == "killed"
    assert len(compiler._reason("ValueError: " + "x" * 1000)) == 200


@pytest.mark.long
def test_really_compiling_here_and_without_a_compiler(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(own_cache / "inductor"))
    assert machine.can_compile() == bool(shutil.which("g++") or shutil.which("clang++"))
    shutil.rmtree(own_cache)
    machine.compile_check.cache_clear()
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    check = machine.compile_check()
    assert not check.works
    assert "not compiled" in str(check.reason)
