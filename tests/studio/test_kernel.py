"""The Python behind the cells: it runs, is stopped, breaks, floods and starves, and is said to."""

import asyncio
import base64
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partwise.course import catalogue
from partwise.errors import RunError
from partwise.messages import Notice
from partwise.studio import kernels
from partwise.studio.kernel_output import output_of
from partwise.studio.kernel_process import PRINTED, SHOWN, told
from partwise.studio.memory import suitable
from studio.live import PATIENCE, Live, Message, Tab, running

MEMORY = 1536 << 20


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with running(tmp_path_factory.mktemp("studio"), kernel_memory=MEMORY) as live:
        yield live


@pytest.fixture
def tab(studio: Live) -> Iterator[Tab]:
    with studio.tab() as tab:
        tab.send("kernel.open", lesson="05", language="en")
        yield tab


def text_of(outputs: list[Message]) -> str:
    return "".join(one["text"] for one in outputs if one["kind"] in ("stream", "text"))


def test_a_cell_runs_and_tells_what_comes(tab: Tab) -> None:
    done, outputs = tab.run("a", "print('first')\nx = 20 + 22\nx")
    assert done["status"] == "ok" and done["seconds"] >= 0
    assert outputs[0] == {"kind": "stream", "name": "stdout", "text": "first\n"}
    assert outputs[-1] == {"kind": "text", "text": "42"}
    states = [m["state"] for m in tab.heard if m["type"] == "kernel.state"]
    assert "busy" in states
    # Names stay for the next cell, and what a lesson needs is there.
    assert text_of(tab.run("b", "x + np.ones(1)[0], type(expect).__name__")[1]) == (
        "(np.float64(43.0), 'Expect')"
    )


def test_output_comes_as_it_is_printed(tab: Tab, tmp_path: Path) -> None:
    """The cell prints its second line only after the first has been read here."""
    read = tmp_path / "read"
    tab.run("slow", f"import time, pathlib\nread = pathlib.Path({str(read)!r})")
    code = "print(1)\nwhile not read.exists(): time.sleep(0.01)\nprint(2)"
    tab.send("kernel.run", lesson="05", cell="slow", code=code)
    tab.until(lambda m: m["type"] == "kernel.output" and m["output"]["text"] == "1\n")
    read.touch()
    tab.until(lambda m: m["type"] == "kernel.output" and m["output"]["text"] == "2\n")
    tab.until(lambda m: m["type"] == "kernel.done")


def test_an_error_knows_its_line(tab: Tab) -> None:
    code = "def f(y):\n    return 1 / y\n\nf(1)\nf(0)\n"
    done, outputs = tab.run("error", code)
    (error,) = outputs
    assert done["status"] == "error" and error["kind"] == "error"
    assert (error["name"], error["value"], error["line"]) == (
        "ZeroDivisionError",
        "division by zero",
        2,
    )
    assert "    f(0)" in error["traceback"]
    assert not [line for line in error["traceback"] if "\x1b" in line or "ipykernel" in line]
    # The same function called from another cell: the line of the cell that runs.
    (error,) = tab.run("other", "\n\nf(0)")[1]
    assert error["line"] == 3
    (error,) = tab.run("syntax", "x = 1\ny = (2,\n")[1]
    assert (error["name"], error["line"]) == ("SyntaxError", 2)
    (error,) = tab.run("deep", "def g(): return g()\ng()")[1]
    assert error["name"] == "RecursionError" and len(error["traceback"]) < 100


def test_pictures_and_tables_are_shown(tab: Tab) -> None:
    (picture,) = tab.run("plot", "import matplotlib.pyplot as plt\nplt.plot([1, 3]);")[1]
    assert (picture["kind"], picture["mime"]) == ("image", "image/png")
    assert base64.b64decode(picture["data"], validate=True).startswith(b"\x89PNG")
    code = "from IPython.display import HTML\nHTML('<b>x</b>')"
    assert tab.run("html", code)[1] == [{"kind": "html", "html": "<b>x</b>"}]


def test_stop_ends_what_would_never_end(tab: Tab) -> None:
    for cell, code in (("loop", "while True: pass"), ("sleep", "import time\ntime.sleep(600)")):
        tab.send("kernel.run", lesson="05", cell=cell, code=code)
        tab.send("kernel.run", lesson="05", cell="waits", code="print('never')")
        tab.until(lambda m: m["type"] == "kernel.state" and m["state"] == "busy")
        time.sleep(0.5)
        tab.send("kernel.interrupt", lesson="05")
        ends: dict[str, str] = {}
        while len(ends) < 2:
            done = tab.until(lambda m: m["type"] == "kernel.done")
            ends[done["cell"]] = done["status"]
        assert ends == {cell: "interrupted", "waits": "interrupted"}
    # Its values are still there.
    tab.run("before", "kept = 7")
    assert text_of(tab.run("after", "kept")[1]) == "7"


def test_completion_answers_also_while_a_cell_runs(tab: Tab) -> None:
    tab.run("names", "import numpy as np\nwords = {'one': 1}")

    def complete(code: str) -> Message:
        tab.send(
            "kernel.complete",
            lesson="05",
            ask="q",
            code=code,
            cursor=len(code.encode("utf-16-le")) // 2,
        )
        return tab.until(lambda m: m["type"] == "kernel.completion")

    found = complete("np.lins")
    assert [one["text"] for one in found["matches"]] == [".linspace"]
    assert (found["start"], found["end"]) == (2, 7)
    assert len(complete("np.")["matches"]) > 100
    # Positions count as a browser's do: 😀 is two.
    found = complete("x = '😀字'; np.lins")
    assert (found["start"], found["end"]) == (13, 18)
    tab.send("kernel.run", lesson="05", cell="loop", code="while True: pass")
    tab.until(lambda m: m["type"] == "kernel.state" and m["state"] == "busy")
    for _ in range(5):
        assert complete("np.lins")["matches"]
    tab.send("kernel.interrupt", lesson="05")
    tab.until(lambda m: m["type"] == "kernel.done")


def test_many_questions_at_once_lose_no_answer(tab: Tab) -> None:
    code = "import time\nfor n in range(60):\n    print(n)\n    time.sleep(0.02)"
    for _ in range(3):
        tab.send("kernel.run", lesson="05", cell="count", code=code)
        for _ in range(100):
            tab.send("kernel.complete", lesson="05", ask="q", code="np.lins", cursor=7)
        assert tab.until(lambda m: m["type"] == "kernel.done")["status"] == "ok"


def test_a_flood_of_output_is_cut_and_stalls_nothing(studio: Live, tab: Tab) -> None:
    done, outputs = tab.run("flood", "for i in range(100_000): print('x' * 100)\nprint('end')")
    text = text_of(outputs)
    assert done["status"] == "ok"
    assert PRINTED <= len(text) < PRINTED + 200 and "output is cut here" in text
    tab.send("kernel.run", lesson="05", cell="endless", code="while True: print('y' * 1000)")
    tab.until(lambda m: m["type"] == "kernel.output" and "cut here" in m["output"]["text"])
    assert studio.get("/api/state")["version"]
    tab.send("kernel.interrupt", lesson="05")
    assert tab.until(lambda m: m["type"] == "kernel.done")["status"] == "interrupted"
    many = "from IPython.display import display\nfor i in range(500): display(i)"
    outputs = tab.run("many", many)[1]
    assert len(outputs) == SHOWN + 1 and "no more is shown" in outputs[-1]["text"]
    # The next cell begins anew.
    assert text_of(tab.run("next", "print('well')")[1]) == "well\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the whole process is ended")
def test_memory_has_a_limit_that_python_survives(tab: Tab) -> None:
    tab.run("before", "kept = 8")
    (error,) = tab.run("much", "import numpy as np\nhuge = np.ones(10**9)")[1]
    assert "MemoryError" in error["name"] and error["line"] == 2
    assert text_of(tab.run("after", "kept")[1]) == "8"


def test_a_crash_is_noticed_and_said(tab: Tab) -> None:
    tab.run("before", "kept = 9")
    done, _ = tab.run("crash", "import os\nos._exit(5)")
    assert done["status"] == "error"
    states = [m for m in tab.heard if m["type"] == "kernel.state"]
    assert states[-1]["state"] == "dead" and "status 5" in states[-1]["reason"]
    # The next cell starts Python anew.
    (error,) = tab.run("after", "kept")[1]
    assert error["name"] == "NameError"
    if sys.platform != "win32":
        tab.run("signal", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
        states = [m for m in tab.heard if m["type"] == "kernel.state"]
        assert "SIGSEGV" in states[-1]["reason"]
    tab.run("exit", "exit()")
    states = [m for m in tab.heard if m["type"] == "kernel.state"]
    assert states[-1]["reason"] == "the cell ended Python"


def test_restart_forgets_and_runs_again(tab: Tab) -> None:
    tab.run("before", "kept = 10")
    tab.send("kernel.run", lesson="05", cell="loop", code="while True: pass")
    tab.until(lambda m: m["type"] == "kernel.state" and m["state"] == "busy")
    tab.send("kernel.restart", lesson="05")
    tab.until(lambda m: m["type"] == "kernel.state" and m["state"] == "idle")
    (error,) = tab.run("after", "kept")[1]
    assert error["name"] == "NameError"


def test_two_tabs_share_one_python(studio: Live, tab: Tab) -> None:
    tab.run("shared", "print('once'); number = 11")
    with studio.tab() as other:
        other.send("kernel.open", lesson="05")
        shown = other.until(lambda m: m["type"] == "kernel.cell" and m["cell"] == "shared")
        assert text_of(shown["outputs"]) == "once\n" and shown["done"]["status"] == "ok"
        assert text_of(other.run("second", "number")[1]) == "11"
    told = tab.until(lambda m: m["type"] == "kernel.done" and m["cell"] == "second")
    assert told["status"] == "ok"


def test_a_check_says_what_is_wrong(tab: Tab) -> None:
    cells = catalogue.lesson("05").code_cells
    exercise = next(cell for cell in cells if cell.solution is not None)
    # Without the model that takes seconds to train; the cell needs none.
    for cell in cells[: cells.index(exercise)]:
        tab.run(cell.id, cell.code)

    def check(code: str, language: str) -> Message:
        tab.send("kernel.check", lesson="05", cell=exercise.id, code=code, language=language)
        return tab.until(lambda m: m["type"] == "kernel.done")

    assert exercise.solution is not None
    wrong = {language: check(exercise.code, language) for language in ("en", "zh")}
    right = check(exercise.solution, "en")
    assert not wrong["en"]["check"]["passed"] and wrong["en"]["check"]["messages"]
    assert wrong["en"]["check"]["messages"] != wrong["zh"]["check"]["messages"]
    assert right["check"] == {"passed": True, "messages": []}, right


def test_what_makes_no_sense_is_refused(tab: Tab) -> None:
    for message in (
        {"type": "kernel.run", "lesson": "99", "cell": "a", "code": "1"},
        {"type": "kernel.run", "lesson": "../05", "cell": "a", "code": "1"},
        {"type": "kernel.run", "lesson": "05", "cell": "a"},
        {"type": "kernel.run", "lesson": "05", "cell": "a", "code": "1", "model": "run:../x"},
        {"type": "kernel.run", "lesson": "05", "cell": "a", "code": "x" * 300_000},
        {"type": "kernel.run", "lesson": "05", "cell": "a", "code": "'\ud800'"},
        {"type": "kernel.complete", "lesson": "05", "ask": "a", "code": "\ud800", "cursor": 1},
        {"type": "kernel.check", "lesson": "05", "cell": "none", "code": "1"},
    ):
        tab.send(**message)
        assert tab.until(lambda m: m["type"] == "error")["message"]


def test_cells_write_into_a_folder_of_their_lesson(studio: Live, tab: Tab) -> None:
    tab.run("write", "open('note.txt', 'w', encoding='utf-8').write('字');")
    path = studio.state.data / "lessons" / "05" / "note.txt"
    assert path.read_text(encoding="utf-8") == "字"


def test_the_server_takes_every_python_with_it(tmp_path: Path) -> None:
    with running(tmp_path) as live, live.tab() as tab:
        pid = int(text_of(tab.run("pid", "import os\nos.getpid()")[1]))
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except OSError:
            return
        time.sleep(0.1)
    pytest.fail("the process of a lesson outlived the studio")


def test_the_oldest_makes_room_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST", 1)
    with running(tmp_path) as live, live.tab() as tab:
        tab.run("a", "1", lesson="05")
        tab.run("a", "1", lesson=catalogue.lessons()[1].number)
        ended = [m for m in tab.heard if m.get("lesson") == "05" and m.get("state") == "dead"]
        assert "others are open" in ended[0]["reason"]


def test_elsewhere_the_server_watches_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partwise.studio.kernel_life.used", lambda pid: 1 << 40)
    with running(tmp_path) as live, live.tab() as tab:
        tab.send("kernel.open", lesson="05")
        dead = tab.until(lambda m: m.get("state") == "dead" and "reason" in m)
        assert "GB of memory" in dead["reason"]


def test_a_page_that_opens_a_lesson_hears_of_no_dead_python(tmp_path: Path) -> None:
    """It would give up the cells that wait already."""
    with running(tmp_path) as live, live.tab() as tab:
        tab.send("kernel.open", lesson="05")
        tab.until(lambda m: m.get("state") == "idle")
        states = [m["state"] for m in tab.heard if m["type"] == "kernel.state"]
        assert states[0] == "starting" and "dead" not in states


def test_a_python_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "lessons").write_text("in the way", encoding="utf-8")
    with running(tmp_path) as live, live.tab() as tab:
        done, outputs = tab.run("a", "1")
        assert (done["status"], outputs) == ("error", [])
        dead = [m for m in tab.heard if m.get("state") == "dead"]
        assert "cannot be started" in dead[-1]["reason"]


def test_a_model_that_cannot_be_had_is_an_error_of_the_cell(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "broken"
    run.mkdir(parents=True)
    (run / "run.toml").write_text("kind = 'nothing'", encoding="utf-8")
    with running(tmp_path) as live, live.tab() as tab:
        done, outputs = tab.run("a", "1", model="run:broken")
        assert done["status"] == "error"
        assert outputs[0]["kind"] == "error" and "run.toml" in outputs[0]["value"]


def test_a_model_that_has_gone_ends_the_cell_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(self: object, id: str) -> str:
        raise RunError("there is no model {name}", name=id)

    monkeypatch.setattr(kernels.Kernels, "_model_path", gone)
    with running(tmp_path) as live, live.tab() as tab:
        done, _ = tab.run("a", "1", model="tiny")
        assert done["status"] == "error"
        assert any("no model tiny" in m["message"] for m in tab.heard if m["type"] == "error")
        assert tab.run("a", "1")[0]["status"] == "ok"


def test_an_output_that_cannot_be_read_ends_nothing(tab: Tab) -> None:
    code = "from IPython.display import display\ndisplay({'image/png': 5}, raw=True)"
    assert tab.run("bad", code)[0]["status"] == "ok"
    assert text_of(tab.run("good", "6 * 7")[1]) == "42"


def test_an_error_of_a_cell_names_no_flag(tab: Tab) -> None:
    code = "from partwise.text.char import CharTokenizer\nCharTokenizer('ab').encode('c')"
    (error,) = tab.run("flag", code)[1]
    assert error["value"].endswith("use other characters")


def test_what_ipython_sends_beside_output_is_not_shown() -> None:
    assert output_of("execute_input", {"code": "1"}) is None
    assert output_of("clear_output", {"wait": True}) is None
    svg = {"data": {"image/svg+xml": "<svg/>", "text/plain": "x"}}
    shown = output_of("display_data", svg)
    assert shown is not None and base64.b64decode(shown["data"]) == b"<svg/>"


def test_tracebacks_name_causes() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error
    except ValueError as error:
        lines, place = told(error, "no such file")
    assert place is None
    assert lines[-1] == "ValueError: second" and "KeyError: 'first'" in lines


def test_memory_suits_the_machine() -> None:
    assert suitable(4 << 30) == 2 << 30
    assert suitable(1 << 30) == 1 << 30
    assert suitable(1 << 40) == 8 << 30


def test_two_tabs_that_open_a_lesson_at_once_get_one_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while room is made for it, which takes a moment."""
    made: list[str] = []

    class Counted(kernels.Kernel):
        def __init__(self, lesson: str, *given: Any, **named: Any) -> None:
            made.append(lesson)
            super().__init__(lesson, *given, **named)

        async def close(self, reason: Notice | None = None) -> None:
            await asyncio.sleep(0.5)
            await super().close(reason)

    monkeypatch.setattr(kernels, "MOST", 1)
    monkeypatch.setattr(kernels, "Kernel", Counted)
    with running(tmp_path) as live, live.tab() as one, live.tab() as two:
        one.run("a", "1", lesson="05")
        for tab in (one, two):
            tab.send("kernel.open", lesson="06.1")
        for tab in (one, two):
            tab.until(lambda m: m.get("lesson") == "06.1" and m.get("state") == "idle")
        assert made == ["05", "06.1"]


def test_a_python_that_is_killed_from_outside_is_told(studio: Live, tab: Tab) -> None:
    for code in ("import os\nos.getpid()", "import os, time\nprint(os.getpid())\ntime.sleep(100)"):
        tab.heard.clear()
        tab.send("kernel.run", lesson="05", cell="pid", code=code)
        said = tab.until(lambda m: m["type"] == "kernel.output" and m["cell"] == "pid")
        os.kill(int(said["output"]["text"]), signal.SIGTERM)
        dead = tab.until(lambda m: m.get("state") == "dead")
        assert dead["reason"]
    assert tab.run("after", "1")[0]["status"] == "ok"
