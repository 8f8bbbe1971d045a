"""C files are compiled once a machine, and kept whole or not at all."""

import ctypes
from pathlib import Path

import pytest
from compilers import needs_compiler

from partwise.errors import CompilerError, StorageError
from partwise.machine import library as libraries
from partwise.machine.library import Source


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Source:
    monkeypatch.setenv("PARTWISE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "seven.c"
    file.write_text('#include "seven.h"\nint seven(void) { return SEVEN; }\n', encoding="utf-8")
    (tmp_path / "seven.h").write_text("#define SEVEN 7\n", encoding="utf-8")
    return Source(file)


@needs_compiler
def test_it_is_compiled_once(source: Source) -> None:
    assert source.kept() is None
    path = source.library()
    assert ctypes.CDLL(str(path)).seven() == 7
    before = path.stat().st_mtime_ns
    assert source.kept() == source.library() == path
    assert path.stat().st_mtime_ns == before


@needs_compiler
def test_another_source_header_or_flag_is_another_library(source: Source) -> None:
    path = source.library()
    source.file.with_suffix(".h").write_text("#define SEVEN 8\n", encoding="utf-8")
    assert source.kept() is None
    other = source.library()
    assert other != path
    assert ctypes.CDLL(str(other)).seven() == 8
    assert Source(source.file, ("-DEIGHT",)).kept() is None


@needs_compiler
@pytest.mark.parametrize("whole", [0.0, 0.5])
def test_a_damaged_library_is_compiled_again(source: Source, whole: float) -> None:
    path = source.library()
    data = path.read_bytes()
    path.write_bytes(data[: int(whole * len(data))])
    assert source.kept() is None
    assert source.library() == source.kept() == path
    assert path.read_bytes() == data


@needs_compiler
def test_a_compiler_that_takes_too_long_is_not_waited_for(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "_PATIENCE", 0.0)
    with pytest.raises(CompilerError, match=r"took longer than 0\.0 seconds"):
        source.library()
    assert source.kept() is None


@needs_compiler
def test_a_compiler_that_fails_is_named_with_its_reason(source: Source) -> None:
    source.file.write_text("int seven(void) { return nothing_of_the_kind; }\n", encoding="utf-8")
    with pytest.raises(CompilerError, match="nothing_of_the_kind"):
        source.library()
    assert source.kept() is None
    with pytest.raises(CompilerError, match="no-such-flag"):
        Source(source.file, ("--no-such-flag",)).library()


def test_without_a_compiler_it_is_said(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "COMPILERS", ("no-such-compiler",))
    with pytest.raises(CompilerError, match="there is no C compiler here"):
        source.library()


@needs_compiler
def test_a_cache_that_cannot_be_written_is_said(source: Source, tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")
    with pytest.raises(CompilerError, match="cannot be kept"):
        source.library()


@needs_compiler
@pytest.mark.parametrize("fact", ["cpu_model", "cpu_features", "c_library"])
def test_another_machine_with_the_same_cache_has_its_own(
    source: Source, monkeypatch: pytest.MonkeyPatch, fact: str
) -> None:
    path = source.library()
    monkeypatch.setattr(libraries, fact, lambda: "another")
    assert source.kept() is None
    other = source.library()
    assert other != path and path.exists()


def test_without_a_place_for_it_nothing_is_kept(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> Path:
        raise StorageError("there is no home folder")

    monkeypatch.setattr(libraries, "cache_folder", nowhere)
    assert source.kept() is None
    with pytest.raises(CompilerError):
        source.library()
