"""One lesson's Python: its cells are run one after the other, and the pages told what comes."""

import ast
import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from partwise.errors import PartwiseError
from partwise.messages import Language, Notice, message, use_language
from partwise.studio.answers import logged
from partwise.studio.kernel_life import Process
from partwise.studio.kernel_output import Shown, Told
from partwise.studio.kernel_talk import Conversation, Died, nothing_at
from partwise.studio.memory import machine_memory, suitable
from partwise.studio.recent import Recent

# Seconds until it is said that a cell does not stop.
STUBBORN = 3.0

# Cells that wait.
WAITING = 50

# Characters of what a lesson's cells have shown that are kept for the next tab, and what a cell
# counts beside them. The cell that runs may go beyond.
SHOWN = 64 << 20
CELL = 1000


@dataclass
class Ask:
    """A cell to run.

    Args:
        cell: its id.
        code: its text.
        model: "tiny", "run:NAME" or a folder; None: whatever is in use.
        check: what is run after it, unseen; None: nothing.
        language: whose words are used.
    """

    cell: str
    code: str
    model: str | None = None
    check: str | None = None
    language: Language = "en"


class Kernel:
    """The process of one lesson; it starts when it is first needed.

    Args:
        lesson: whose it is.
        folder: where its cells read and write files.
        opening: code that is run first.
        tell: is given each message for the pages.
        model_path: makes of a model's id what `use_model` takes.
        memory: the most it may have (bytes); None: what suits this machine.
    """

    def __init__(
        self,
        lesson: str,
        folder: Path,
        opening: str,
        tell: Callable[[Told], None],
        *,
        model_path: Callable[[str], str] = str,
        memory: int | None = None,
    ) -> None:
        self.lesson = lesson
        self.state = "dead"
        self.reason: str | None = None
        self.shown: Recent[str, Shown] = Recent(SHOWN, lambda shown: shown.size + CELL)
        self.touched = time.monotonic()
        self._folder = folder
        self._opening = opening
        self._tell = tell
        self._model_path = model_path
        self._memory = memory
        self._model: str | None = None
        self._process: Process | None = None
        self._waiting: deque[Ask] = deque()
        self._more = asyncio.Event()
        self._current: Ask | None = None
        self._interrupted = False
        self._starting = asyncio.Lock()
        self._worker: asyncio.Task[None] | None = None
        self._language: Language = "en"

    # --- What a page asks ------------------------------------------------------------------------

    def run(self, ask: Ask) -> None:
        """Run a cell once those before it are done; one that waits already is replaced."""
        self.touched = time.monotonic()
        self._waiting = deque(one for one in self._waiting if one.cell != ask.cell)
        if len(self._waiting) >= WAITING:
            self._done(ask, "interrupted", 0.0)
            return
        self._waiting.append(ask)
        self._work()

    def warm(self, language: Language) -> None:
        """Start, as somebody will soon need it."""
        self._language = language
        if self._process is None:
            # A page that hears of a dead Python gives up the cells that wait for it.
            self._set("starting")
        self._work()

    async def interrupt(self) -> None:
        """Stop the cell that runs, and forget those that wait."""
        while self._waiting:
            self._done(self._waiting.popleft(), "interrupted", 0.0)
        current = self._current
        if current is None or self._process is None:
            return
        self._interrupted = True
        self._process.interrupt()
        await asyncio.sleep(STUBBORN)
        if self._current is current and self._interrupted:
            with use_language(current.language):
                words = message(
                    "the cell is inside a computation that cannot be stopped half-way; wait, or "
                    "restart Python, which forgets all its values"
                )
            self._tell({"type": "error", "lesson": self.lesson, "message": words})

    async def restart(self, language: Language) -> None:
        """End the process and start another, which knows nothing of the first."""
        self.touched = time.monotonic()
        self._language = language
        await self._end(None)
        self.shown.clear()
        self._set("starting")
        self._work()

    async def complete(self, code: str, cursor: int) -> Told:
        """What could stand at the cursor, also while a cell runs.

        Args:
            code: the cell.
            cursor: where, in UTF-16 units as a browser counts.

        Returns:
            start, end (UTF-16 units), and matches, each with text and type.
        """
        try:
            return await self._talk.complete(code, cursor)
        except Died:
            return nothing_at(cursor)

    async def close(self, reason: Notice | None = None) -> None:
        """End the process for good.

        Args:
            reason: why, for the pages that are still there.
        """
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker
            self._worker = None
        await self._end(reason)
        self._set("dead", None if reason is None else self._say(reason))

    @property
    def busy(self) -> bool:
        """Whether a cell runs or waits."""
        return self._current is not None or bool(self._waiting)

    @property
    def process(self) -> int | None:
        """The process's number, while there is one."""
        return None if self._process is None else self._process.pid

    # --- Cells, one after the other --------------------------------------------------------------

    def _work(self) -> None:
        self._more.set()
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._carry_on())

    async def _carry_on(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            try:
                await self._start()
                while self._waiting:
                    await self._carry_out(self._waiting.popleft())
            except Died:
                while self._waiting:
                    self._done(self._waiting.popleft(), "error", 0.0)

    async def _carry_out(self, ask: Ask) -> None:
        """Run one cell and, if it went well, its check."""
        self._current, self._interrupted = ask, False
        self._language = ask.language
        self.shown.put(ask.cell, Shown())
        begun = time.monotonic()
        status, checked = "error", None
        try:
            await self._start()
            self._set("busy")
            if await self._choose(ask):
                reply = await self._talk.execute(ask.code, cell=ask.cell)
                status = reply["status"]
                if any(one.get("source") == "ask_exit" for one in reply.get("payload", ())):
                    await self._end(Notice("the cell ended Python"))
                    raise Died
                if status == "ok" and ask.check is not None:
                    checked = await self._check(ask)
        except Died:
            status = "error"
        except Exception as error:
            # Ours to mend; the cells that wait are still run.
            status = "error"
            with use_language(ask.language):
                told = {"type": "error", "lesson": self.lesson, "message": logged(error)}
            self._tell({**told, "cell": ask.cell})
        finally:
            self._current = None
        if status != "ok" and self._interrupted:
            status = "interrupted"
        self._done(ask, status, time.monotonic() - begun, checked)
        if self.state == "busy":
            self._set("idle")

    async def _choose(self, ask: Ask) -> bool:
        """Hand the model over that the page has picked; false, and the error shown, if it fails."""
        if ask.model is None or ask.model == self._model:
            return True
        try:
            path = self._model_path(ask.model)
        except PartwiseError as error:
            # The run is gone since the cell was asked for.
            with use_language(ask.language):
                told = {"type": "error", "cell": ask.cell, "message": str(error)}
            self._tell({**told, "lesson": self.lesson})
            return False
        reply = await self._talk.execute(f"use_model({path!r})", cell=ask.cell, quiet=True)
        if reply["status"] == "ok":
            self._model = ask.model
        return bool(reply["status"] == "ok")

    async def _check(self, ask: Ask) -> Told:
        """Run the hidden check; what it says, in the reader's language."""
        assert ask.check is not None
        talk = self._talk
        await talk.execute("from partwise.course.prelude import expect\nexpect.begin()")
        reply = await talk.execute(ask.check)
        if reply["status"] == "error":
            stopped = f"expect.stopped({reply.get('ename', '')!r}, {reply.get('evalue', '')!r})"
            await talk.execute(stopped)
        reply = await talk.execute("", expressions={"report": "expect.report()"})
        told = reply.get("user_expressions", {}).get("report", {})
        try:
            report = json.loads(ast.literal_eval(told["data"]["text/plain"]))
        except (KeyError, ValueError, SyntaxError):
            return {"passed": False, "messages": []}
        messages = [one.get(ask.language, "") for one in report["messages"]]
        return {"passed": bool(report["passed"]), "messages": messages}

    def _done(self, ask: Ask, status: str, seconds: float, checked: Told | None = None) -> None:
        told: Told = {
            "type": "kernel.done",
            "lesson": self.lesson,
            "cell": ask.cell,
            "status": status,
            "seconds": round(seconds, 3),
        }
        if checked is not None:
            told["check"] = checked
        self.shown.get_or(ask.cell, Shown).done = told
        self.touched = time.monotonic()
        self._tell(told)

    # --- The process -----------------------------------------------------------------------------

    @property
    def _talk(self) -> Conversation:
        """The conversation with the process.

        Raises:
            Died: there is none.
        """
        if self._process is None:
            raise Died
        return self._process.talk

    async def _start(self) -> None:
        """Start the process unless there is one.

        Raises:
            Died: it ended before it was ready.
        """
        async with self._starting:
            if self._process is not None:
                return
            self._set("starting")
            memory = self._memory or suitable(machine_memory())
            process = Process(self._folder, memory, self._language, self._heard, self._ended)
            self._process, self._model = process, None
            try:
                await process.begin(self._opening)
            except Died:
                raise
            except Exception as error:
                logged(error)
                await process.end(Notice("Python cannot be started: {reason}", reason=error))
                raise Died from error
            self._set("idle")

    async def _end(self, reason: Notice | None) -> None:
        if self._process is not None:
            await self._process.end(reason)

    def _ended(self, process: Process, reason: Notice | None) -> None:
        """A process is over: the next cell starts another."""
        if self._process is process:
            self._process = None
            if reason is not None:
                self._set("dead", self._say(reason))

    def _heard(self, cell: str, output: Told) -> None:
        self.shown.get_or(cell, Shown).add(output)
        self._tell({"type": "kernel.output", "lesson": self.lesson, "cell": cell, "output": output})

    def _set(self, state: str, reason: str | None = None) -> None:
        if (state, reason) == (self.state, self.reason):
            return
        self.state, self.reason = state, reason
        self._tell(self.told)

    @property
    def told(self) -> Told:
        """How it stands, as a message."""
        told = {"type": "kernel.state", "lesson": self.lesson, "state": self.state}
        return told if self.reason is None else {**told, "reason": self.reason}

    def _say(self, notice: Notice) -> str:
        with use_language(self._language):
            return str(notice)
