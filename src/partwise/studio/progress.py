"""What a learner has written and answered: one file, always whole, the same after a restart.

Each entry belongs to a lesson's cell and a kind, and carries the hash of the lesson's own code that
it was written over, so that a page can say when the lesson has changed since.
"""

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partwise.errors import StorageError, UsageError
from partwise.messages import message
from partwise.storage import read_json, write_json
from partwise.storage.atomic import replace
from partwise.storage.faults import writing
from partwise.studio.answers import Json, body, field, finite
from partwise.studio.lessons import hashes
from partwise.studio.state import State
from partwise.text.turns import in_turn

FILE = "progress.json"
KIND = "progress"
VERSION = 1

KINDS = ("code", "quiz", "check", "read")

# Characters of what is written into a cell, bytes of what a page keeps beside it, and entries.
CONTENT = 200_000
STATE = 8192
ENTRIES = 20_000

Entries = dict[str, dict[str, dict[str, dict[str, Any]]]]


def routes(state: State) -> list[BaseRoute]:
    """`GET` and `POST /api/progress`."""
    progress = Progress(state.data)

    def all_of_it(request: Request) -> Response:
        return Json(progress.told(hashes()))

    async def keep(request: Request) -> Response:
        sent = await body(request)
        await run_in_threadpool(progress.keep, sent)
        return Json({"kept": True})

    return [
        Route("/api/progress", all_of_it, methods=["GET"]),
        Route("/api/progress", keep, methods=["POST"]),
    ]


class Progress:
    """The file of one learner.

    Args:
        folder: where it is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock = folder / ".progress.lock"
        self._set_aside: Path | None = None

    def told(self, originals: Mapping[tuple[str, str], str]) -> dict[str, Any]:
        """Every entry, and whether the lesson has changed since.

        Args:
            originals: lesson and cell -> the hash of the lesson's own code.
        """
        lessons: Entries = {}
        for lesson, cells in self.read().items():
            for cell, kinds in cells.items():
                for kind, entry in kinds.items():
                    written_over = entry.get("hash")
                    now = originals.get((lesson, cell), written_over)
                    shown = {name: value for name, value in entry.items() if name != "hash"}
                    shown["changed"] = kind == "code" and now != written_over
                    lessons.setdefault(lesson, {}).setdefault(cell, {})[kind] = shown
        told: dict[str, Any] = {"lessons": lessons}
        if self._set_aside is not None:
            told["notice"] = message(
                "your progress could not be read and was set aside as {path}; it begins anew",
                path=self._set_aside,
            )
        return told

    def keep(self, sent: Mapping[str, Any]) -> None:
        """Write one entry down; one without content and state is forgotten.

        Raises:
            UsageError: the entry is none.
            StorageError: it cannot be written.
        """
        lesson, cell, kind = (field(sent, name, str) for name in ("lesson", "cell", "kind"))
        content, state = field(sent, "content", str, None), finite(sent.get("state"))
        mark = field(sent, "hash", str, None)
        if (
            kind not in KINDS
            or not re.fullmatch(r"(\d\d(\.\d{1,2})?)?", lesson)
            or not re.fullmatch(r"[\w.:-]{1,80}", cell)
            or len(content or "") > CONTENT
            or len(json.dumps(state)) > STATE
            or len(mark or "") > 64
        ):
            raise UsageError("this is no entry of a learner's progress")
        with in_turn(self._lock):
            lessons = self.read()
            kinds = lessons.setdefault(lesson, {}).setdefault(cell, {})
            if content is None and state is None:
                kinds.pop(kind, None)
            else:
                kinds[kind] = {"content": content, "state": state, "saved": round(time.time(), 3)}
                if mark is not None:
                    kinds[kind]["hash"] = mark
            if sum(len(kinds) for cells in lessons.values() for kinds in cells.values()) > ENTRIES:
                raise UsageError("this is no entry of a learner's progress")
            write_json(self._path, lessons, kind=KIND, version=VERSION)

    def read(self) -> Entries:
        """Every entry; what cannot be read is set aside, never written over.

        Raises:
            StorageError: a newer Partwise wrote it, or the folder cannot be read.
        """
        if not self._path.exists():
            return {}
        try:
            _, value = read_json(self._path, kind=KIND, newest=VERSION)
            entries: Entries = value
            for cells in entries.values():
                for kinds in cells.values():
                    for entry in kinds.values():
                        entry.items()
        except (StorageError, AttributeError) as error:
            if isinstance(error, StorageError) and _is_newer(self._path):
                raise
            aside = self._path.with_name(time.strftime("progress-damaged-%Y%m%d-%H%M%S.json"))
            with writing(aside):
                replace(self._path, aside)
            self._set_aside = aside
            return {}
        return entries


def _is_newer(path: Path) -> bool:
    try:
        whole = json.loads(path.read_bytes())
        return bool(whole["kind"] == KIND and whole["version"] > VERSION)
    except (OSError, ValueError, TypeError, KeyError):
        return False
