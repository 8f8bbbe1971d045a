"""Workers: real processes that are killed, that hang up, and that are asked to stop."""

import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from partwise.errors import TrainingError
from partwise.ladder import pool, worker
from partwise.ladder.climb import climb
from partwise.ladder.config import LadderConfig
from partwise.ladder.events import Climbed, Event, Failed, Moved
from partwise.ladder.place import Place

WORDS = "the cat sat on the mat and the dog sat on the log\n"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cats.txt").write_text(WORDS * 30, encoding="utf-8")
    # What lies in the folder at hand must not stand in for a library in a worker.
    Path("json.py").write_text("raise SystemExit('wrong json')", encoding="utf-8")
    Path("queue.py").write_text("raise SystemExit('wrong queue')", encoding="utf-8")


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list["subprocess.Popen[Any]"]:
    """Every worker process that is started."""
    started: list[subprocess.Popen[Any]] = []
    popen = subprocess.Popen

    def remember(*args: Any, **kwargs: Any) -> "subprocess.Popen[Any]":
        process = popen(*args, **kwargs)
        if "partwise.ladder.worker" in str(args[0]):
            started.append(process)
        return process

    monkeypatch.setattr(subprocess, "Popen", remember)
    return started


def place() -> Place:
    Path("ladder").mkdir(exist_ok=True)
    return Place(str(Path("ladder").absolute()), "cats.txt", True, "en")


def config(**asked: Any) -> LadderConfig:
    return LadderConfig(**{"only": "1", "steps": 60, "workers": 1, "name": "cats", **asked})


def test_a_killed_worker_is_replaced_and_nothing_is_lost(
    processes: list["subprocess.Popen[Any]"],
) -> None:
    here = list(climb(config(workers=0, name="here"), text="cats.txt"))[-1]
    killed = False
    events: list[Event] = []
    for event in climb(config(), text="cats.txt"):
        events.append(event)
        if isinstance(event, Moved) and not killed:
            killed = True
            if sys.platform != "win32":
                # Ctrl+C on the terminal reaches the ladder alone.
                assert os.getsid(processes[0].pid) != os.getsid(0)
            processes[0].kill()
    assert killed
    assert len(processes) == 2
    last = events[-1]
    assert isinstance(last, Climbed)
    assert isinstance(here, Climbed)
    assert last.reason == "finished"
    assert [row.val_loss for row in last.table.rows] == [row.val_loss for row in here.table.rows]
    assert all(process.poll() is not None for process in processes)
    assert not list(Path("ladders/cats").glob("worker-*.log")), "a log is kept only of a mishap"


def test_a_worker_that_dies_each_time_fails_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_PROGRAM", "raise SystemExit('out of memory')")
    events = list(climb(config(), text="cats.txt"))
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert "ended 3 times (status 1)" in failed.failure.reason
    log = next(Path("ladders/cats").glob("worker-*.log"))
    assert "out of memory" in log.read_text(encoding="utf-8")
    assert isinstance(events[-1], Climbed)
    assert events[-1].reason == "failed"


def test_stop_saves_and_the_same_call_goes_on(processes: list["subprocess.Popen[Any]"]) -> None:
    moved: list[int] = []

    def stop() -> bool:
        return bool(moved) and len(processes) == 1

    asked = config(steps=20_000)
    events: list[Event] = []
    for event in climb(asked, text="cats.txt", stop=stop):
        events.append(event)
        if isinstance(event, Moved) and event.step:
            moved.append(event.step)
    last = events[-1]
    assert isinstance(last, Climbed)
    assert last.reason == "interrupted"
    runs = Path("ladders/cats/runs/rung-1-seed-1")
    assert list((runs / "checkpoints").glob("step-*")), "the run was saved"
    assert processes[0].poll() == 0


def test_a_worker_that_has_nothing_to_save_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may still be loading torch, or be in the compiler, when Ctrl+C comes."""
    monkeypatch.setattr(pool, "_PROGRAM", "import time; time.sleep(900)")
    began = time.monotonic()
    last = list(climb(config(), text="cats.txt", stop=lambda: time.monotonic() > began + 1))[-1]
    assert isinstance(last, Climbed)
    assert last.reason == "interrupted"
    assert time.monotonic() < began + 300
    assert not list(Path("ladders/cats").glob("worker-*.log"))


def test_a_ladder_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    script = """
import os, sys
from partwise.ladder.climb import climb
from partwise.ladder.config import LadderConfig
from partwise.ladder.events import Moved
config = LadderConfig(only="1", steps=200000, workers=1, name="cats")
for event in climb(config, text="cats.txt"):
    if isinstance(event, Moved) and event.step:
        os._exit(9)
"""
    done = subprocess.run([sys.executable, "-P", "-c", script], timeout=120, check=False)
    assert done.returncode == 9
    # Its worker hears that its input has ended, saves the run and lets go of it.
    from partwise.errors import RunError
    from partwise.storage import lock

    for _ in range(300):
        try:
            with lock(Path("ladders/cats/runs/rung-1-seed-1/.lock")):
                break
        except RunError:
            time.sleep(0.1)
    else:
        pytest.fail("the worker still trains")
    assert list(Path("ladders/cats/runs/rung-1-seed-1/checkpoints").glob("step-*"))


class Once(io.StringIO):
    """One task; its end comes when the answer is complete, as it does from a ladder."""

    def __init__(self, task: dict[str, Any], told: io.StringIO) -> None:
        super().__init__(json.dumps(task) + "\n")
        self._told = told

    def __next__(self) -> str:
        line = self.readline()
        while not line:
            if any(f'"{end}"' in self._told.getvalue() for end in pool.ENDS):
                raise StopIteration
            time.sleep(0.01)
        return line


def test_a_worker_answers_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol without a process: a task in, messages out, the last of them an end."""
    from partwise.ladder.plan import plan

    monkeypatch.setattr("partwise.ladder.figures.ESTIMATE_BATCHES", 1)
    monkeypatch.setattr("partwise.ladder.work.SAMPLE_CHARS", 5)
    (job,), _ = plan(LadderConfig(only="1", steps=3))

    told = io.StringIO()
    task = {"task": "train", "job": job.to_plain()}
    worker.answer(place(), Once(task, told), told)
    messages = [json.loads(line) for line in told.getvalue().splitlines()]
    assert messages[0]["kind"] == "moved"
    assert messages[-1]["kind"] == "done"
    assert messages[-1]["machine"]["cores"] >= 1


def test_a_worker_that_nobody_hears_saves_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever it meets first: that its input has ended, or that nobody reads what it says."""
    from partwise.ladder.plan import plan

    class Unheard(io.StringIO):
        def flush(self) -> None:
            if any(json.loads(line).get("step") for line in self.getvalue().splitlines()):
                raise BrokenPipeError

    class Silent(io.StringIO):
        """One task, and never an end."""

        def __next__(self) -> str:
            line = self.readline()
            while not line:
                time.sleep(0.01)
            return line

    (job,), _ = plan(LadderConfig(only="1", steps=900))
    task = {"task": "train", "job": job.to_plain()}
    worker.answer(place(), Silent(json.dumps(task) + "\n"), Unheard())
    assert list(Path().glob("**/checkpoints/step-*"))


def test_a_worker_says_it_in_the_words_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> Any:
        raise TrainingError("{reason}", reason=1)

    monkeypatch.setattr("partwise.ladder.work.Job.from_plain", refuse)
    told = io.StringIO()
    here = replace(place(), words={"{reason}": "in other words {reason}"})
    worker.answer(here, Once({"task": "train", "job": {}}, told), told)
    assert json.loads(told.getvalue())["reason"] == "in other words 1"


def test_no_tasks_no_processes(processes: list["subprocess.Popen[Any]"]) -> None:
    assert list(pool.work_through([], place(), workers=2, threads=1, stop=lambda: False)) == []
    assert processes == []
