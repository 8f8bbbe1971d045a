"""A folder appears whole or not at all; what killed writers left is swept."""

import sys
from pathlib import Path

import pytest

from partwise.errors import StorageError
from partwise.storage import (
    cache_folder,
    data_folder,
    require_free,
    sweep,
    write_atomic,
    write_folder,
)


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_nothing_is_visible_before_the_end(tmp_path: Path) -> None:
    final = tmp_path / "checkpoints" / "step-000001"
    with write_folder(final) as folder:
        write_atomic(folder / "a", b"1")
        write_atomic(folder / "inner" / "b", b"2")
        assert not final.exists()
    assert tree(tmp_path) == {
        "checkpoints/step-000001/a": b"1",
        "checkpoints/step-000001/inner/b": b"2",
    }


def test_a_standing_folder_is_replaced_whole(tmp_path: Path) -> None:
    final = tmp_path / "step"
    for content in (b"1", b"2"):
        with write_folder(final) as folder:
            write_atomic(folder / content.decode(), content)
    assert tree(tmp_path) == {"step/2": b"2"}


def test_a_standing_folder_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    final = tmp_path / "run"
    with write_folder(final, over=False) as folder:
        write_atomic(folder / "first", b"1")
    with pytest.raises(StorageError, match="exists"), write_folder(final, over=False) as folder:
        write_atomic(folder / "second", b"2")
    # The same when the first appears between the look and the rename.
    with (
        pytest.raises(StorageError, match="cannot be written"),
        write_folder(final, over=False) as folder,
    ):
        write_atomic(folder / "third", b"3")
        monkeypatch.setattr(Path, "exists", lambda self: False)
    assert tree(tmp_path) == {"run/first": b"1"}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_what_stood_there(tmp_path: Path, error: type[BaseException]) -> None:
    final = tmp_path / "step"
    with write_folder(final) as folder:
        write_atomic(folder / "old", b"1")
    with pytest.raises(error), write_folder(final) as folder:
        write_atomic(folder / "new", b"2")
        raise error
    assert tree(tmp_path) == {"step/old": b"1"}


def test_a_refused_rename_brings_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "step"
    with write_folder(final) as folder:
        write_atomic(folder / "old", b"1")
    replace = Path.replace
    seen: list[Path] = []

    def refuse_second(self: Path, target: Path) -> Path:
        seen.append(self)
        if len(seen) == 2:
            raise PermissionError(13, "denied")
        return replace(self, target)

    with pytest.raises(StorageError, match="does not permit"), write_folder(final) as folder:
        (folder / "new").write_bytes(b"2")
        monkeypatch.setattr(Path, "replace", refuse_second)
    assert len(seen) == 3
    assert tree(tmp_path) == {"step/old": b"1"}


def test_an_error_inside_names_the_final_place(tmp_path: Path) -> None:
    final = tmp_path / "step"
    with pytest.raises(StorageError) as caught, write_folder(final) as folder:
        (folder / "file").write_bytes(b"")
        write_atomic(folder / "file" / "inner", b"")
    assert str(final / "file" / "inner") in str(caught.value)
    assert ".partial" not in str(caught.value)


def test_sweep_takes_leftovers_only(tmp_path: Path) -> None:
    (tmp_path / ".partial-0123").write_bytes(b"half")
    (tmp_path / ".partial-4567").mkdir()
    (tmp_path / ".partial-4567" / "a").write_bytes(b"half")
    (tmp_path / "kept").write_bytes(b"whole")
    sweep(tmp_path)
    sweep(tmp_path / "missing")
    assert tree(tmp_path) == {"kept": b"whole"}


def test_free_space_is_named(tmp_path: Path) -> None:
    require_free(tmp_path / "not" / "yet", 1)
    with pytest.raises(StorageError) as caught:
        require_free(tmp_path / "not" / "yet", 10**18)
    assert "1,000,000,000,000.0 MB" in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_folders_are_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, variable, system in (
        (cache_folder, "PARTWISE_CACHE", "XDG_CACHE_HOME"),
        (data_folder, "PARTWISE_HOME", "XDG_DATA_HOME"),
    ):
        monkeypatch.setenv(variable, str(tmp_path))
        assert folder() == tmp_path
        monkeypatch.delenv(variable)
        assert "partwise" in folder().parts
        if sys.platform == "linux":
            monkeypatch.setenv(system, str(tmp_path))
            assert folder() == tmp_path / "partwise"


def test_a_user_without_a_home_is_told_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, variable in ((cache_folder, "PARTWISE_CACHE"), (data_folder, "PARTWISE_HOME")):
        monkeypatch.setenv(variable, "~no-such-user-here/kept")
        with pytest.raises(StorageError, match=f"set {variable}"):
            folder()
        monkeypatch.delenv(variable)
        for name in ("user_cache_path", "user_data_path"):
            monkeypatch.setattr(f"platformdirs.{name}", lambda *_, **__: Path("~/.cache/partwise"))
        with pytest.raises(StorageError, match=f"set {variable}"):
            folder()
