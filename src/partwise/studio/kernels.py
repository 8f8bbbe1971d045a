"""The Python of every lesson that is open: one process a lesson, whatever tabs show it."""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

from partwise.course.catalogue import lesson
from partwise.course.cells import Code, Quiz
from partwise.errors import UsageError
from partwise.messages import Notice
from partwise.storage import safe_name
from partwise.studio.answers import field
from partwise.studio.hub import Tab
from partwise.studio.kernel import Ask, Kernel
from partwise.studio.models import Models
from partwise.studio.socket import Answer
from partwise.studio.state import State

# Processes at once; and how long one stays that no tab shows (seconds).
MOST = 4
LINGER = 120.0

OPENING = "from partwise.course.prelude import *\n"

# A longer cell is none that anybody typed (characters).
LONGEST = 200_000


class Kernels:
    """All of them.

    Args:
        state: of the studio.
        opening: code that a process runs first.
    """

    def __init__(self, state: State, opening: str = OPENING) -> None:
        self._state = state
        self._opening = opening
        self._models = Models(state)
        self._kernels: dict[str, Kernel] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Making room takes a moment, in which another tab may ask for the same lesson.
        self._opening_one = asyncio.Lock()

    def answers(self) -> dict[str, Answer]:
        """What is done with a tab's messages."""
        return {
            "kernel.open": self.open,
            "kernel.close": self.leave,
            "kernel.run": self.run,
            "kernel.check": self.run,
            "kernel.interrupt": self.interrupt,
            "kernel.restart": self.restart,
            "kernel.complete": self.complete,
        }

    async def open(self, tab: Tab, sent: dict[str, Any]) -> None:
        """A tab shows a lesson: start its Python, and tell what its cells have shown."""
        kernel = await self._of(tab, sent)
        kernel.warm(tab.language)
        tab.send(kernel.told)
        for cell, shown in kernel.shown.items():
            tab.send(
                {
                    "type": "kernel.cell",
                    "lesson": kernel.lesson,
                    "cell": cell,
                    "outputs": shown.outputs,
                    "done": shown.done,
                }
            )

    async def leave(self, tab: Tab, sent: dict[str, Any]) -> None:
        """A tab no longer shows a lesson."""
        name = field(sent, "lesson", str)
        tab.channels.discard(_channel(name))
        self._let_go(name)

    async def gone(self, tab: Tab) -> None:
        """A tab is closed."""
        for name in list(self._kernels):
            if _channel(name) in tab.channels:
                self._let_go(name)

    async def run(self, tab: Tab, sent: dict[str, Any]) -> None:
        """Run a cell, and its check if that is asked for."""
        name, cell = field(sent, "lesson", str), field(sent, "cell", str)
        code = code_of(sent)
        check = None
        if sent["type"] == "kernel.check":
            check = check_of(name, cell)
        model = field(sent, "model", str, None)
        if model is not None:
            self._models.folder(model)
        kernel = await self._of(tab, sent)
        kernel.run(Ask(cell, code, model, check, tab.language))

    async def interrupt(self, tab: Tab, sent: dict[str, Any]) -> None:
        """Stop a lesson's cells."""
        kernel = self._kernels.get(field(sent, "lesson", str))
        if kernel is not None:
            self._later(tab, sent, kernel.interrupt())

    async def restart(self, tab: Tab, sent: dict[str, Any]) -> None:
        """End a lesson's Python and start it anew."""
        kernel = await self._of(tab, sent)
        self._later(tab, sent, kernel.restart(tab.language))

    async def complete(self, tab: Tab, sent: dict[str, Any]) -> None:
        """What could stand at the cursor; answered whatever else goes on."""
        kernel = await self._of(tab, sent)
        ask, code = field(sent, "ask", str), code_of(sent)
        cursor = max(0, field(sent, "cursor", int))

        async def answer() -> None:
            found = await kernel.complete(code, cursor)
            tab.send({"type": "kernel.completion", "ask": ask, **found})

        self._later(tab, sent, answer())

    async def close(self) -> None:
        """The server ends, and with it every process."""
        for leaving in self._leaving.values():
            leaving.cancel()
        reason = Notice("the studio has stopped")
        await asyncio.gather(*(kernel.close(reason) for kernel in self._kernels.values()))
        self._kernels.clear()

    def _later(self, tab: Tab, sent: dict[str, Any], work: Coroutine[Any, Any, None]) -> None:
        """Do something without letting the tab's next message wait for it."""

        async def done() -> None:
            try:
                await work
            except Exception as error:
                tab.fault(error, sent)

        task = asyncio.create_task(done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _of(self, tab: Tab, sent: dict[str, Any]) -> Kernel:
        """The Python of the lesson that a message names; the tab is told of it from now on."""
        name = field(sent, "lesson", str)
        known(name)
        tab.channels.add(_channel(name))
        leaving = self._leaving.pop(name, None)
        if leaving is not None:
            leaving.cancel()
        async with self._opening_one:
            if name not in self._kernels:
                await self._make_room()
                self._kernels[name] = Kernel(
                    name,
                    self._state.data / "lessons" / safe_name(name),
                    self._opening,
                    lambda told: self._state.hub.tell(_channel(name), told),
                    model_path=self._model_path,
                    memory=self._state.kernel_memory,
                )
            return self._kernels[name]

    def _model_path(self, id: str) -> str:
        return id if id == "tiny" else str(self._models.folder(id))

    async def _make_room(self) -> None:
        """End the Python that was not used for longest, if there are too many."""
        if len(self._kernels) < MOST:
            return
        idle = [kernel for kernel in self._kernels.values() if not kernel.busy]
        oldest = min(idle or self._kernels.values(), key=lambda kernel: kernel.touched)
        del self._kernels[oldest.lesson]
        await oldest.close(
            Notice("Python of this lesson was ended, as {most} others are open", most=MOST)
        )

    def _let_go(self, name: str) -> None:
        """End a lesson's Python in a while, unless a tab shows it again."""
        if name not in self._kernels or name in self._leaving:
            return
        if any(_channel(name) in tab.channels for tab in self._state.hub.tabs):
            return

        async def end() -> None:
            await asyncio.sleep(LINGER)
            self._leaving.pop(name, None)
            kernel = self._kernels.pop(name, None)
            if kernel is not None:
                await kernel.close()

        with suppress(RuntimeError):
            self._leaving[name] = asyncio.create_task(end())


def known(name: str) -> None:
    """Refuse a lesson that there is not.

    Raises:
        UsageError: there is no lesson of that number.
    """
    try:
        lesson(name)
    except KeyError as error:
        raise UsageError("there is no lesson {name!r}", name=name) from error


def code_of(sent: Mapping[str, Any]) -> str:
    """The code of a cell.

    Raises:
        UsageError: it is longer than any that somebody types, or has half a character in it.
    """
    code: str = field(sent, "code", str)
    if len(code) > LONGEST:
        raise UsageError("a cell of {count:,} characters is too long", count=len(code))
    try:
        code.encode("utf-8")
    except UnicodeEncodeError as error:
        place = error.start + 1
        raise UsageError("the cell has half a character at {place:,}", place=place) from error
    return code


def check_of(name: str, cell: str) -> str:
    """The hidden check of a lesson's cell.

    Raises:
        UsageError: it has none.
    """
    known(name)
    for found in lesson(name).cells:
        # A formula may have the name of the code below it.
        if found.id == cell and isinstance(found, Code | Quiz) and found.check:
            return found.check
    raise UsageError("the cell {name!r} has no check", name=cell)


def _channel(name: str) -> str:
    return f"kernel:{name}"
