"""What a learner has done: kept whole, found again, and never written over when it is damaged."""

import errno
import json
import threading
from pathlib import Path

import pytest

from partwise.course import catalogue
from partwise.errors import StorageError, UsageError
from partwise.storage import write_json
from partwise.studio.lessons import hashes
from partwise.studio.progress import CONTENT, FILE, KIND, STATE, VERSION, Progress
from studio.live import running

ENTRY = {"lesson": "05", "cell": "softmax", "kind": "code", "content": "x = 1", "hash": "old"}


def test_a_restarted_server_finds_progress_again(tmp_path: Path) -> None:
    with running(tmp_path) as live:
        assert live.get("/api/progress") == {"lessons": {}}
        assert live.post("/api/progress", ENTRY) == (200, {"kept": True})
        answer = {"lesson": "05", "cell": "q1", "kind": "quiz", "state": {"right": True, "字": 1}}
        assert live.post("/api/progress", answer)[0] == 200
    with running(tmp_path) as live:
        cells = live.get("/api/progress")["lessons"]["05"]
    assert cells["softmax"]["code"]["content"] == "x = 1"
    assert cells["q1"]["quiz"]["state"] == {"right": True, "字": 1}
    assert cells["q1"]["quiz"]["saved"] > 1e9


def test_a_lesson_that_has_changed_is_noticed(tmp_path: Path) -> None:
    (lesson, cell), now = next(iter(hashes().items()))
    progress = Progress(tmp_path)
    entry = {**ENTRY, "lesson": lesson, "cell": cell}
    for mark, changed in ((now, False), ("another", True)):
        progress.keep({**entry, "hash": mark})
        shown = progress.told(hashes())["lessons"][lesson][cell]["code"]
        assert shown["changed"] is changed and "hash" not in shown
    # A cell that is no longer there cannot have changed.
    progress.keep({**ENTRY, "cell": "gone"})
    assert not progress.told(hashes())["lessons"]["05"]["gone"]["code"]["changed"]


def test_reset_forgets_one_entry(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.keep(ENTRY)
    progress.keep({**ENTRY, "kind": "check", "state": 1})
    progress.keep({**ENTRY, "content": None})
    assert set(progress.read()["05"]["softmax"]) == {"check"}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"kind": "progress"}', b"\xff" * 100])
def test_a_damaged_file_is_set_aside_and_said(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE).write_bytes(data)
    progress = Progress(tmp_path)
    told = progress.told({})
    assert told["lessons"] == {}
    (aside,) = tmp_path.glob("progress-damaged-*.json")
    assert aside.read_bytes() == data and str(aside) in told["notice"]
    progress.keep(ENTRY)
    assert "05" in Progress(tmp_path).read()


def test_a_changed_file_is_damaged_too(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.keep(ENTRY)
    path = tmp_path / FILE
    path.write_text(path.read_text(encoding="utf-8").replace("x = 1", "x = 2"), encoding="utf-8")
    assert Progress(tmp_path).read() == {}
    assert list(tmp_path.glob("progress-damaged-*.json"))


def test_a_whole_file_that_is_none_of_ours_is_set_aside(tmp_path: Path) -> None:
    write_json(tmp_path / FILE, {"05": [1]}, kind=KIND, version=VERSION)
    assert Progress(tmp_path).read() == {}


def test_a_newer_file_is_left_alone(tmp_path: Path) -> None:
    write_json(tmp_path / FILE, {}, kind=KIND, version=VERSION + 1)
    with pytest.raises(StorageError, match="upgrade"):
        Progress(tmp_path).keep(ENTRY)
    assert (tmp_path / FILE).exists() and not list(tmp_path.glob("progress-damaged-*"))


@pytest.mark.parametrize(
    "change",
    [
        {"lesson": "../05"},
        {"lesson": "5"},
        {"cell": "../x"},
        {"cell": ""},
        {"cell": "x" * 81},
        {"kind": "other"},
        {"content": "x" * (CONTENT + 1)},
        {"state": "x" * STATE},
        {"hash": "x" * 65},
        {"lesson": 5},
        {"content": 5},
    ],
)
def test_what_is_no_entry_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Progress(tmp_path).keep({**ENTRY, **change})
    assert not (tmp_path / FILE).exists()


def test_what_json_has_no_word_for_is_kept_as_null(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.keep({**ENTRY, "kind": "quiz", "state": {"x": [float("nan"), float("inf"), 1]}})
    assert progress.read()["05"]["softmax"]["quiz"]["state"] == {"x": [None, None, 1]}


def test_settings_of_a_page_belong_to_no_lesson(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.keep({"lesson": "", "cell": "settings", "kind": "read", "state": {"model": "tiny"}})
    assert progress.read()[""]["settings"]["read"]["state"] == {"model": "tiny"}


def test_two_studios_lose_nothing_of_each_other(tmp_path: Path) -> None:
    def write(name: str) -> None:
        mine = Progress(tmp_path)
        for number in range(10):
            mine.keep({**ENTRY, "cell": f"{name}-{number}"})

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Progress(tmp_path).read()["05"]) == 20


def test_lessons_are_told_without_their_checks_and_solutions(tmp_path: Path) -> None:
    with running(tmp_path) as live:
        state = live.get("/api/state")
        assert [row["number"] for row in state["lessons"]] == [
            lesson.number for lesson in catalogue.lessons()
        ]
        for row in state["lessons"]:
            lesson = live.get(f"/api/lessons/{row['number']}")
            assert lesson["title"].keys() == {"zh", "en"} and lesson["minutes"] > 0
            assert {"kind", "id"} <= lesson["cells"][0].keys()
            for cell in catalogue.lesson(row["number"]).code_cells:
                if cell.check is not None:
                    assert json.dumps(cell.check) not in json.dumps(lesson)
            (told,) = (one for one in state["lessons"] if one["number"] == row["number"])
            quizzes = [cell["id"] for cell in lesson["cells"] if cell["kind"] == "quiz"]
            assert told["parts"]["quizzes"] == quizzes
        first = live.get(f"/api/lessons/{state['lessons'][0]['number']}")
        assert first["previous"] is None and first["next"]["number"]
        assert live.request("GET", "/api/lessons/99")[0] == 422


def test_a_full_disk_is_said_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    entry = {"lesson": "05", "cell": "a", "kind": "code", "content": "x = 1", "hash": "h"}
    with running(tmp_path) as live:
        assert live.post("/api/progress", entry)[0] == 200
        before = (tmp_path / "home" / FILE).read_bytes()
        with monkeypatch.context() as patched:
            patched.setattr("os.fsync", full)
            status, answer = live.post("/api/progress", {**entry, "content": "x = 2"}, "zh")
            assert status == 422 and "磁盘已满" in answer["error"]["message"]
        assert (tmp_path / "home" / FILE).read_bytes() == before
        kept = [path.name for path in (tmp_path / "home").iterdir()]
        assert not [name for name in kept if name.endswith(".tmp")], kept
        assert live.post("/api/progress", {**entry, "content": "x = 3"})[0] == 200
        lessons = live.get("/api/progress")["lessons"]
        assert lessons["05"]["a"]["code"]["content"] == "x = 3"
