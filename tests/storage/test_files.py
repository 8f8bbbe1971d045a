"""JSON with kind, version and checksum: what was written comes back, anything else is refused."""

import json
import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import StorageError
from partwise.storage import read_json, try_output, write_json, write_output

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_comes_back(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "value.json"
    write_json(path, value, kind="value", version=3)
    version, read = read_json(path, kind="value", newest=3)
    assert version == 3
    assert read == value
    assert repr(read) == repr(value)


def test_half_a_surrogate_pair_comes_back(tmp_path: Path) -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    write_json(tmp_path / "v.json", [name], kind="value", version=1)
    assert read_json(tmp_path / "v.json", kind="value", newest=1) == (1, [name])


def test_keys_of_every_type_are_signed_as_they_are_read(tmp_path: Path) -> None:
    write_json(tmp_path / "v.json", {10: "a", 2: ("b",), None: 1}, kind="value", version=1)
    assert read_json(tmp_path / "v.json", kind="value", newest=1)[1] == {
        "10": "a",
        "2": ["b"],
        "null": 1,
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_hold_is_not_written(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "v.json", value, kind="value", version=1)
    assert list(tmp_path.iterdir()) == []


def written(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "state.json"
    write_json(path, {"step": 7, "loss": 0.1}, kind="state", version=2)
    return path, json.loads(path.read_text(encoding="utf-8"))


def test_an_editor_may_indent_it_anew(tmp_path: Path) -> None:
    path, whole = written(tmp_path)
    path.write_text(json.dumps(whole, indent=7, sort_keys=True), encoding="utf-8")
    assert read_json(path, kind="state", newest=2)[1] == {"step": 7, "loss": 0.1}


def test_an_older_version_is_given_to_the_caller(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    assert read_json(path, kind="state", newest=9)[0] == 2


def test_every_torn_file_is_recognised(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    data = path.read_bytes()
    for length in range(len(data) - 2):
        path.write_bytes(data[:length])
        with pytest.raises(StorageError, match="torn"):
            read_json(path, kind="state", newest=2)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"value": {"step": 8, "loss": 0.1}}, "checksum"),
        ({"version": 1}, "checksum"),
        ({"checksum": "0" * 64}, "checksum"),
        ({"checksum": None}, "checksum"),
        ({"kind": "model"}, "'model' where 'state' is needed"),
        ({"version": 3}, "reads up to 2; upgrade"),
        ({"version": 0}, "not a number from 1"),
        ({"version": True}, "not a number from 1"),
        ({"version": "2"}, "not a number from 1"),
    ],
)
def test_a_changed_file_is_refused(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    path, whole = written(tmp_path)
    path.write_text(json.dumps({**whole, **change}), encoding="utf-8")
    with pytest.raises(StorageError, match=word) as caught:
        read_json(path, kind="state", newest=2)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "{}", "3", '{"kind": "state"}'])
def test_json_of_somebody_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StorageError, match="not written by Partwise"):
        read_json(path, kind="state", newest=2)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"[" * 200_000, b"1" * 10_000])
def test_hostile_bytes_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(data)
    with pytest.raises(StorageError):
        read_json(path, kind="state", newest=2)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no file"):
        read_json(tmp_path / "state.json", kind="state", newest=2)
    with pytest.raises(StorageError, match="cannot be read"):
        read_json(tmp_path, kind="state", newest=2)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_never_opened(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "ran"

    class Crafted:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (marker,))

    path = tmp_path / "vocabulary.json"
    path.write_bytes(pickle.dumps(Crafted(), protocol))
    with pytest.raises(StorageError, match="pickle"):
        read_json(path, kind="state", newest=2)
    assert not marker.exists()


def test_output_is_written_through_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_output(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    write_output(tmp_path / "deeper" / "plain.txt", b"new")
    assert (tmp_path / "deeper" / "plain.txt").read_bytes() == b"new"


def test_a_loop_of_links_is_refused_and_stays(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(StorageError, match="loop cannot be written"):
        write_output(loop, b"new")
    assert loop.is_symlink()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_output(pipe, b"x" * 200_000)
    reader.join(timeout=120)
    assert read == [b"x" * 200_000]
    assert pipe.is_fifo()


def test_a_place_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("mine")
    try_output(kept)
    try_output(tmp_path / "new.txt")
    try_output(tmp_path / "new" / "folder" / "new.txt")
    assert kept.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [kept]
    with pytest.raises(StorageError, match="cannot be written"):
        try_output(kept / "below.txt")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(StorageError, match="cannot be written"):
        try_output(loop)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_and_a_device_are_not_opened_to_be_tried(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    try_output(tmp_path / "pipe")  # would wait for a reader
    try_output(Path(os.devnull))
    assert Path(os.devnull).is_char_device()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_refused_at_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="does not permit it"):
            try_output(tmp_path / "new.txt")
    finally:
        tmp_path.chmod(0o700)
