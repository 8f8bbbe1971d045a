"""The conversation with a tab: its own mistakes are answered, and ours are seen."""

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.websockets import WebSocketState

from partwise.messages import use_language
from partwise.studio import hub, jobs, kernel, playground, socket
from partwise.studio.hub import Tab as ServerTab
from studio.live import PATIENCE, Message, alone, running


def error(message: Message) -> bool:
    return message["type"] == "error"


def test_a_torn_message_is_answered_and_the_talk_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as live, live.tab() as tab:
        for torn in ("", "{", '{"type": "wat', "[]", "7", '"watch"', "null", "[" * 100_000):
            tab.raw(torn)
            assert "request is not" in tab.until(error)["message"]
        for torn in (b"", b"\xff\xfe\x00", b'{"type": "watch", "chan'):
            tab.raw(torn)
            assert "request is not JSON" in tab.until(error)["message"]
        for sent in ({}, {"type": 7}, {"type": "watch"}, {"type": "watch", "channel": 7}):
            tab.raw(json.dumps(sent))
            assert tab.until(error)["message"]
        tab.send("watch", channel="jobs")
        assert tab.until(lambda m: m["type"] == "event")["jobs"] == []
    assert not caplog.records


@pytest.mark.parametrize("kind", [KeyError, RuntimeError, ZeroDivisionError])
def test_a_fault_of_an_area_is_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: type[Exception],
) -> None:
    async def broken(self: object, tab: object, sent: object) -> None:
        raise kind("broken part")

    monkeypatch.setattr(playground.Playground, "start", broken)
    with running(tmp_path) as live, live.tab() as tab:
        tab.send("sample.start", ask="1", model="tiny", language="zh")
        told = tab.until(error)
        assert told["ask"] == "1" and "内部错误" in told["message"]
        assert kind.__name__ in told["message"] and "broken part" in told["message"]
        tab.send("nonsense", ask="2", language="en")
        assert tab.until(error)["ask"] == "2"
    assert "in broken" in caplog.text and "Traceback" in caplog.text


def test_a_fault_behind_an_answer_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: object) -> None:
        raise KeyError("broken part")

    async def broken_later(*given: object) -> None:
        broken()

    monkeypatch.setattr(playground.Playground, "_sample", broken)
    monkeypatch.setattr(kernel.Kernel, "complete", broken_later)
    with running(tmp_path) as live, live.tab() as tab:
        tab.send("sample.start", ask="1", model="tiny")
        assert "broken part" in tab.until(error)["message"]
        tab.send("kernel.complete", lesson="05", ask="2", code="np.", cursor=3)
        told = tab.until(error)
        assert (told["ask"], told["lesson"]) == ("2", "05")
    assert caplog.text.count("Traceback") == 2


def test_a_fault_while_a_cell_runs_ends_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*given: object) -> None:
        raise KeyError("broken part")

    with running(tmp_path) as live, live.tab() as tab:
        with monkeypatch.context() as patched:
            patched.setattr(kernel.Kernel, "_choose", broken)
            done, _ = tab.run("a", "1")
            assert done["status"] == "error"
            assert any("broken part" in m["message"] for m in tab.heard if error(m))
        # Python is as it was, and the next cell runs.
        assert tab.run("b", "2")[0]["status"] == "ok"
    assert "Traceback" in caplog.text


def test_a_fault_while_python_starts_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: object) -> None:
        raise KeyError("broken part")

    with running(tmp_path) as live, live.tab() as tab:
        with monkeypatch.context() as patched:
            patched.setattr("partwise.studio.kernel_life.Process._launch", broken)
            assert tab.run("a", "1")[0]["status"] == "error"
            dead = [m for m in tab.heard if m.get("state") == "dead"]
            assert "broken part" in dead[-1]["reason"]
        assert tab.run("b", "2")[0]["status"] == "ok"
    assert "Traceback" in caplog.text


def test_the_watch_over_jobs_survives_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def broken(self: object) -> None:
        seen.append("")
        raise ZeroDivisionError

    monkeypatch.setattr(jobs, "AFTER_A_FAULT", 0.0)
    monkeypatch.setattr(jobs.Jobs, "_look_around", broken)
    with running(tmp_path):
        end = time.monotonic() + PATIENCE
        while len(seen) < 2 and time.monotonic() < end:
            time.sleep(0.05)
    assert len(seen) >= 2 and "ZeroDivisionError" in caplog.text


def test_a_tab_watches_only_so_many_channels(tmp_path: Path) -> None:
    with running(tmp_path) as live, live.tab() as tab:
        for number in range(socket.CHANNELS + 1):
            tab.send("watch", channel=f"other:{number}")
        assert "64 channels" in tab.until(error)["message"]
        tab.send("unwatch", channel="other:0")
        tab.send("watch", channel="jobs")
        assert tab.until(lambda m: m["type"] == "event")["channel"] == "jobs"


class Deaf:
    """A socket whose other side never reads."""

    application_state = WebSocketState.CONNECTED

    def __init__(self) -> None:
        self.closed: int | None = None
        self.read = asyncio.Event()

    async def send_text(self, line: str) -> None:
        await self.read.wait()

    async def close(self, code: int) -> None:
        self.closed = code


@pytest.mark.parametrize(("count", "size"), [(hub.WAITING + 10, 1), (70, 1 << 20)])
def test_a_tab_that_does_not_read_is_cut_off(count: int, size: int) -> None:
    async def flood() -> tuple[int | None, int]:
        deaf: Any = Deaf()
        tab = ServerTab(deaf, "en")
        writing = asyncio.create_task(tab.write())
        for _ in range(count):
            tab.send({"text": "x" * size})
            await asyncio.sleep(0)
        waiting = tab._queue.qsize()
        deaf.read.set()
        await asyncio.wait_for(writing, 10)
        return deaf.closed, waiting

    closed, waiting = alone(flood())
    assert closed == 1013 and waiting <= 1


def test_one_large_message_is_no_flood() -> None:
    async def one() -> None:
        deaf: Any = Deaf()
        deaf.read.set()
        tab = ServerTab(deaf, "en")
        writing = asyncio.create_task(tab.write())
        for _ in range(3):
            tab.send({"text": "x" * (hub.WAITING_SIZE + 10)})
            await asyncio.sleep(0.01)
        assert deaf.closed is None
        writing.cancel()

    alone(one())


def test_a_fault_is_logged_in_any_language(caplog: pytest.LogCaptureFixture) -> None:
    from partwise.studio.answers import logged

    with use_language("zh"), caplog.at_level(logging.ERROR):
        words = logged(ValueError("字"))
    assert "ValueError" in words and caplog.records[0].exc_info is not None


def test_a_connection_that_is_torn_leaves_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a frame, a frame of no kind, and bytes that are none; then silence."""
    with running(tmp_path) as live:
        for torn in (
            b"\x81",
            b"\x81\xfe\xff\xff\x00\x00\x00\x00ab",
            b"\x8f\x80\x00\x00\x00\x00",
            b"x",
        ):
            tab = live.tab()
            opened = tab.__enter__()
            opened.send("watch", channel="jobs")
            opened.until(lambda m: m["type"] == "event")
            opened.tear(torn)
        end = time.monotonic() + PATIENCE
        while live.state.hub.tabs and time.monotonic() < end:
            time.sleep(0.05)
        assert not live.state.hub.tabs
        with live.tab() as another:
            another.send("watch", channel="jobs")
            assert another.until(lambda m: m["type"] == "event")["jobs"] == []
    assert "Traceback" not in caplog.text
