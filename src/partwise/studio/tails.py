"""Metrics as they are written: what a run's file has more than when it was looked at last."""

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

# A page draws no more points of one curve than this; of a longer one every so-manieth is sent.
POINTS = 2000


class Tail:
    """A run's metrics file, read on from where it was read to.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = b""
        self._began = False
        self._turn = threading.Lock()

    def whole(self) -> dict[str, Any]:
        """All lines up to where it was read to, as `more` gives them."""
        with self._turn:
            try:
                with self._path.open("rb") as file:
                    data = file.read(self._read)
            except OSError:
                data = b""
            whole = data[: self._read - len(self._rest)]
            return {"reset": True, "lines": thinned(_lines(whole))}

    def more(self) -> dict[str, Any] | None:
        """The lines since the last time, as {"reset", "lines"}; None when there are none.

        `reset` is true at first, and when the file was cut back as its run went on.
        """
        with self._turn:
            try:
                size = self._path.stat().st_size
            except OSError:
                size = 0
            reset = not self._began or size < self._read
            if reset:
                self._read, self._rest = 0, b""
            if size == self._read and not reset:
                return None
            self._began = True
            data = self._rest
            if size > self._read:
                more = self._part(size)
                data += more
                self._read += len(more)
            whole, _, self._rest = data.rpartition(b"\n")
            lines = _lines(whole)
            return {"reset": reset, "lines": thinned(lines)} if lines or reset else None

    def _part(self, end: int) -> bytes:
        """From where it was read to until `end`; nothing where the file has gone since."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                return file.read(end - self._read)
        except OSError:
            return b""


def _lines(data: bytes) -> list[dict[str, Any]]:
    lines = []
    for line in data.split(b"\n"):
        with suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                lines.append(value)
    return lines


def thinned(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every so-manieth step, and every other event."""
    steps = sum(line.get("event") == "step" for line in lines)
    if steps <= POINTS:
        return lines
    every, kept, number = -(-steps // POINTS), [], 0
    for line in lines:
        if line.get("event") == "step":
            number += 1
            if number % every and number != steps:
                continue
        kept.append(line)
    return kept
