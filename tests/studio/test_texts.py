"""Texts that a learner brings: kept as they are, refused plainly when they are none."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from partwise.errors import PartwiseError, TextError, UsageError
from partwise.studio import texts
from partwise.studio.texts import keep, spec_of
from studio.live import running


def test_a_text_is_kept_as_it_is(tmp_path: Path) -> None:
    with running(tmp_path) as live:
        novel = "第一章\r\n从前有座山。\r\n"
        status, kept = live.post("/api/texts", {"name": "小说.txt", "text": novel})
        assert status == 200
        assert kept == {
            "id": "upload:小说",
            "name": "小说",
            "bytes": len(novel.encode()),
            "characters": len(novel),
            "distinct": len(set(novel)),
        }
        assert [one["id"] for one in live.get("/api/texts")["texts"]] == ["upload:小说"]
    path = Path(spec_of(tmp_path / "home" / "texts", "upload:小说"))
    assert path.read_bytes() == novel.encode()


def test_the_same_name_twice_is_two_texts(tmp_path: Path) -> None:
    ids = [keep(tmp_path, "a.txt", text)["id"] for text in ("one", "two", "one")]
    assert ids == ["upload:a", "upload:a-2", "upload:a"]


@pytest.mark.parametrize(
    "text", ["", " \n ", "a\0b", "\ufffd" * 10 + "a" * 100, "\x01\x02\x03" * 50, "half \ud800"]
)
def test_what_is_no_text_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TextError):
        keep(tmp_path, "x.txt", text)
    assert not list(tmp_path.iterdir())


def test_a_picture_is_refused_plainly(tmp_path: Path) -> None:
    """A browser reads any file as text; what it cannot decode becomes U+FFFD."""
    picture = bytes(range(256)) * 20
    with pytest.raises(TextError, match="UTF-8"):
        keep(tmp_path, "cat.png", picture.decode("utf-8", "replace"))


def test_a_text_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "MOST", 1 << 20)
    with running(tmp_path) as live:
        status, answer = live.post("/api/texts", {"name": "x", "text": "a" * ((1 << 20) + 1)})
    assert status == 422 and "partwise train" in answer["error"]["message"]


def test_a_text_of_the_limit_comes_through(tmp_path: Path) -> None:
    """With every character escaped, as JSON may write it."""
    with running(tmp_path) as live:
        status, kept = live.post("/api/texts", {"name": "x", "text": "字" * (2 << 20)})
    assert status == 200 and kept["bytes"] == 6 << 20


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/passwd", "a\\b", "con", ".hidden", "-x", "", "x" * 300, "\ud800"]
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "texts"
    try:
        keep(folder, name, "text")
    except PartwiseError:
        return
    (path,) = folder.glob("*")
    assert path.resolve().parent == folder.resolve() and len(path.name) < 80
    assert [one.name for one in tmp_path.iterdir()] == ["texts"]


@pytest.mark.parametrize("id", ["upload:../x", "x", "upload:", "/etc/passwd", ""])
def test_an_id_that_is_none_is_refused(tmp_path: Path, id: str) -> None:
    with pytest.raises(UsageError):
        spec_of(tmp_path, id)


def test_there_is_an_end_to_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "TEXTS", 1)
    keep(tmp_path, "a", "one")
    with pytest.raises(TextError, match="1 texts"):
        keep(tmp_path, "b", "two")


def test_a_full_disk_is_said_and_another_fault_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(number: int) -> Callable[..., None]:
        def fails(*given: object, **named: object) -> None:
            raise OSError(number, os.strerror(number), str(tmp_path / "texts"))

        return fails

    with running(tmp_path) as live:
        for number, status, word in (
            (errno.ENOSPC, 422, "磁盘已满"),
            (errno.EACCES, 422, "权限"),
            (errno.EISDIR, 500, "内部错误"),
        ):
            with monkeypatch.context() as patched:
                patched.setattr(Path, "mkdir", failing(number))
                found, answer = live.post("/api/texts", {"name": "a", "text": "to be"}, "zh")
            assert (found, word in answer["error"]["message"]) == (status, True), answer
    assert caplog.text.count("Traceback") == 1
