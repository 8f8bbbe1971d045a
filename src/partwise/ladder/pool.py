"""One process a core: workers that are started, fed, listened to, replaced and stopped.

Workers are plain Python processes rather than multiprocessing's, so a script or a notebook may call
the ladder without a `__main__` guard, on every system.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import partwise
from partwise.errors import RunError
from partwise.ladder.place import Place

Task = dict[str, Any]
Message = dict[str, Any]

# A task whose process died this often is given up.
ATTEMPTS = 3

# Between two looks at whether to stop (seconds).
LOOK = 0.2

# How long a worker may take to save its run before it is ended (seconds).
PATIENCE = 120.0

# The same package that runs here, and nothing from the folder that the user happens to be in.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from partwise.ladder.worker import run; run(sys.argv[2])"
)

ENDS = ("done", "interrupted", "failed")


@dataclass(frozen=True)
class Told:
    """A message and the task that it belongs to.

    Args:
        task: number of the task in the list that was given.
        message: see `work.carry_out`.
    """

    task: int
    message: Message


def work_through(
    tasks: Sequence[Task],
    place: Place,
    *,
    workers: int,
    threads: int,
    stop: Callable[[], bool],
) -> Iterator[Told]:
    """Carry out all tasks, several at once, and tell what happens as it does.

    Tasks are begun in order. A task whose process dies is begun again, which goes on from its last
    checkpoint, up to three times; then the task fails and the others go on.

    Args:
        tasks: see `work.carry_out`.
        place: where and on what.
        workers: processes at once; 0: none, everything happens here.
        threads: CPU threads of each.
        stop: asked a few times a second; True saves what is at hand and ends.
    """
    if workers == 0:
        yield from _here(tasks, place, stop)
        return
    waiting = deque(enumerate(tasks))
    attempts = [0] * len(tasks)
    heard: queue.Queue[tuple[_Worker, Message | None]] = queue.Queue()
    crew = [_Worker(place, threads, heard, n) for n in range(min(workers, len(tasks)))]
    try:
        for worker in crew:
            worker.start()
            worker.take(waiting.popleft())
        stopping = False
        while any(worker.at is not None for worker in crew):
            if not stopping and stop():
                stopping = True
                waiting.clear()
                for worker in crew:
                    worker.ask_to_stop()
            try:
                worker, message = heard.get(timeout=LOOK)
            except queue.Empty:
                continue
            if worker.at is None:
                continue
            number, task = worker.at
            worker.heard_of |= message is not None
            if message is None:
                # The process is gone, and with it nothing but what came after its last checkpoint.
                worker.at = None
                if stopping:
                    yield Told(number, {"kind": "interrupted"})
                    continue
                attempts[number] += 1
                if attempts[number] < ATTEMPTS:
                    worker.start()
                    worker.take((number, task))
                else:
                    yield Told(number, worker.obituary(attempts[number]))
                    if waiting:
                        worker.start()
                        worker.take(waiting.popleft())
                continue
            if message["kind"] in ENDS:
                worker.at = None
                if message.get("fatal"):
                    waiting.clear()
                elif waiting:
                    worker.take(waiting.popleft())
            yield Told(number, message)
    finally:
        for worker in crew:
            worker.ask_to_stop()
        for worker in crew:
            worker.end()


class _Worker:
    """One process, and the task that it is at."""

    def __init__(
        self,
        place: Place,
        threads: int,
        heard: "queue.Queue[tuple[_Worker, Message | None]]",
        number: int,
    ) -> None:
        self.at: tuple[int, Task] | None = None
        self.heard_of = False
        self._dismissed = False
        self._place = place
        self._threads = threads
        self._heard = heard
        self._log = Path(place.folder) / f"worker-{number + 1}.log"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process, anew if there was one."""
        environment = {**os.environ, "OMP_NUM_THREADS": str(self._threads), "PYTHONUTF8": "1"}
        here = str(Path(partwise.__file__).parent.parent)
        command = [sys.executable, "-P", "-c", _PROGRAM, here, json.dumps(asdict(self._place))]
        # Ctrl+C reaches the whole group of the terminal: only the ladder answers it, and then asks
        # its workers to save.
        flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                env=environment,
                creationflags=flags,
                start_new_session=sys.platform != "win32",
            )
        self._process = process
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def take(self, at: tuple[int, Task]) -> None:
        """Give it a task."""
        self.at, self.heard_of = at, False
        self._say(at[1])

    def ask_to_stop(self) -> None:
        """Let it save and end; one that has told nothing of its task yet has nothing to save."""
        if self._process is not None and self.at is not None and not self.heard_of:
            self._dismissed = True
            self._process.terminate()
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def end(self) -> None:
        """Wait until it has ended, and clear away its log where nothing went wrong."""
        if self._process is None:
            return
        try:
            status = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if self._log.exists() and (status == 0 or self._dismissed):
            self._log.unlink()

    def obituary(self, times: int) -> Message:
        """What to tell of a task whose process died again and again."""
        status = None if self._process is None else self._process.wait()
        error = RunError(
            "the process that trained it ended {times} times (status {status}); {log} may say why",
            times=times,
            status=status,
            log=self._log,
        )
        return {"kind": "failed", "reason": str(error), "fatal": False}

    def _say(self, task: Task) -> None:
        assert self._process is not None and self._process.stdin is not None
        # A process that is gone already is noticed by its listener.
        with suppress(OSError):
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError):
                self._heard.put((self, json.loads(line)))
        process.wait()
        if process is self._process:
            self._heard.put((self, None))


def _here(tasks: Sequence[Task], place: Place, stop: Callable[[], bool]) -> Iterator[Told]:
    from partwise.ladder.work import carry_out

    for number, task in enumerate(tasks):
        for message in carry_out(task, place, stop):
            yield Told(number, message)
            if message.get("fatal"):
                return
        if stop():
            return
