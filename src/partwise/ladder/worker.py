"""A process that trains for a ladder: tasks come in as lines of JSON, messages go out as such.

Started by `pool.py`. When its input ends, or says so, it saves the run at hand and ends: a ladder
that is killed leaves no process behind.
"""

import json
import os
import queue
import sys
import threading
from typing import Any, TextIO

from partwise.ladder.place import Place
from partwise.messages import Language, use_language, use_words


def run(place: str) -> None:
    """The whole process: tasks from standard input, messages to standard output.

    Args:
        place: a `Place` as JSON.
    """
    # Whatever torch or a driver prints must not mix with the messages.
    told = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", newline="\n")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    tasks = os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8")
    answer(Place(**json.loads(place)), tasks, told)
    sys.stderr.flush()
    # Everything is on the disk; taking torch down in good order would only keep the ladder waiting.
    os._exit(0)


def answer(place: Place, tasks: TextIO, told: TextIO) -> None:
    """Carry out tasks until there are no more.

    Args:
        place: where and on what.
        tasks: one task a line; a line that is not a task asks to stop.
        told: where messages go, one a line.
    """
    # Imported here so that a parent that only starts workers pays nothing for it.
    from partwise.ladder.work import carry_out

    language: Language = "zh" if place.language == "zh" else "en"
    waiting: queue.Queue[dict[str, Any] | None] = queue.Queue()
    stop = threading.Event()

    def listen() -> None:
        for line in tasks:
            task = json.loads(line)
            if not isinstance(task, dict) or "task" not in task:
                break
            waiting.put(task)
        stop.set()
        waiting.put(None)

    threading.Thread(target=listen, daemon=True).start()
    with use_language(language), use_words(place.words):
        while not stop.is_set() and (task := waiting.get()) is not None:
            for message in carry_out(task, place, stop.is_set):
                try:
                    told.write(json.dumps(message) + "\n")
                    told.flush()
                except BrokenPipeError:
                    # Nobody listens any more, the ladder is gone: what runs is saved, then it ends.
                    stop.set()
