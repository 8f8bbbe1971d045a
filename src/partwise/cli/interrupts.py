"""Ctrl+C and SIGTERM: the first lets the run save itself, the second ends the process at once.

Only what every system has is used; Windows knows SIGINT and, as Ctrl+Break, SIGBREAK.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

INTERRUPTED = 128 + signal.SIGINT  # 130
TERMINATED = 128 + signal.SIGTERM  # 143

SHOW_CURSOR = "\x1b[?25h"


class Stopped(BaseException):
    """The system asked the program to end while there was nothing to save."""


class Stop:
    """Whether, and by which signal, a run was asked to stop; `stop()` is what the loop calls."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    @property
    def status(self) -> int:
        """The exit status that names the signal."""
        return TERMINATED if self.signal == signal.SIGTERM else INTERRUPTED


@contextmanager
def terminate_as_stopped() -> Iterator[None]:
    """Inside, SIGTERM raises `Stopped`, so that half-made files are cleared on the way out."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise Stopped

    with _handlers({signal.SIGTERM: handle}):
        yield


@contextmanager
def first_saves(words: str) -> Iterator[Stop]:
    """Inside, the first signal only asks the run to stop; a second one ends the process at once.

    Args:
        words: one line for standard error at the first signal.
    """
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            # The live view hides the cursor, and nothing else will bring it back.
            _write(sys.stdout, SHOW_CURSOR if sys.stdout.isatty() else "")
            os._exit(128 + number)
        stop.asked = True
        stop.signal = number
        _write(sys.stderr, f"\n{words}\n")

    numbers = [signal.SIGINT, signal.SIGTERM]
    if sys.platform == "win32":
        numbers.append(signal.SIGBREAK)
    with _handlers(dict.fromkeys(numbers, handle)):
        yield stop


def _write(stream: TextIO, text: str) -> None:
    """Past Python's buffers: the signal may have come in the middle of a `print`."""
    with suppress(OSError, ValueError):
        os.write(stream.fileno(), text.encode("utf-8"))


@contextmanager
def _handlers(
    wanted: dict[signal.Signals, Callable[[int, FrameType | None], None]],
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may set handlers; elsewhere the surroundings decide.
        yield
        return
    before = {
        number: signal.getsignal(number)
        for number in wanted
        if signal.getsignal(number) is not signal.SIG_IGN  # as under nohup or in the background
    }
    for number in before:
        signal.signal(number, wanted[number])
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
