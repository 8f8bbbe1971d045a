"""One lesson's Python: a process that runs cells one after the other and tells what comes of it."""

import ast
import asyncio
import base64
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import partwise
from partwise.errors import PartwiseError
from partwise.messages import Language, Notice, message, use_language
from partwise.studio.memory import machine_memory, suitable, used

Told = dict[str, Any]

# The same package that runs here, and nothing from the folder that the cells write to.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from partwise.studio.kernel_process import main; main(sys.argv[2:])"
)

# Seconds: until a process answers at all; until a completion is no longer of use; until it is said
# that a cell does not stop; after an answer, until its last output must be here; between two looks
# at the process, and at its memory.
STARTING = 60.0
COMPLETING = 2.0
STUBBORN = 3.0
LATE = 5.0
LOOK = 0.2
MEMORY_LOOK = 1.0

# Cells whose late output is still known, and those that wait.
REMEMBERED = 32
WAITING = 50

PICTURES = ("image/png", "image/jpeg", "image/svg+xml")


class Died(Exception):  # noqa: N818
    """The process is gone."""


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


@dataclass
class Shown:
    """What a cell has shown since it was run last."""

    outputs: list[Told] = field(default_factory=list)
    done: Told | None = None


@dataclass
class _Pending:
    reply: "asyncio.Future[dict[str, Any]]"
    idle: asyncio.Event
    cell: str | None


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
        self.shown: dict[str, Shown] = {}
        self.touched = time.monotonic()
        self._folder = folder
        self._opening = opening
        self._tell = tell
        self._model_path = model_path
        self._memory = memory
        self._model: str | None = None
        self._process: Any = None
        self._client: Any = None
        self._place: Path | None = None
        self._subshell: str | None = None
        self._pending: dict[str, _Pending] = {}
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._cells: dict[str, str] = {}
        self._waiting: deque[Ask] = deque()
        self._more = asyncio.Event()
        self._current: Ask | None = None
        self._interrupted = False
        self._loops: list[asyncio.Task[None]] = []
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
        self._work()

    async def interrupt(self) -> None:
        """Stop the cell that runs, and forget those that wait."""
        while self._waiting:
            self._done(self._waiting.popleft(), "interrupted", 0.0)
        current = self._current
        if current is None or self._process is None:
            return
        self._interrupted = True
        self._signal()
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
        nothing = {"start": cursor, "end": cursor, "matches": []}
        client, place = self._client, len(_units(code)[: 2 * cursor].decode("utf-16-le", "ignore"))
        if client is None or self._subshell is None:
            return nothing
        sent = client.session.msg("complete_request", {"code": code, "cursor_pos": place})
        sent["header"]["subshell_id"] = self._subshell
        answer = asyncio.get_running_loop().create_future()
        self._asked[sent["header"]["msg_id"]] = answer
        try:
            await _send(client, client.shell_channel, sent)
            content = await asyncio.wait_for(answer, COMPLETING)
        except (TimeoutError, Died):
            return nothing
        finally:
            self._asked.pop(sent["header"]["msg_id"], None)
        kinds = content.get("metadata", {}).get("_jupyter_types_experimental", [])
        start, end = content.get("cursor_start", place), content.get("cursor_end", place)
        known = {one.get("text"): one.get("type") for one in kinds}
        return {
            "start": len(_units(code[:start])) // 2,
            "end": len(_units(code[:end])) // 2,
            "matches": [
                {"text": text, "type": known.get(text, "")} for text in content.get("matches", [])
            ],
        }

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
        return None if self._process is None else int(self._process.pid)

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
        self.shown[ask.cell] = Shown()
        begun = time.monotonic()
        status, checked = "error", None
        try:
            await self._start()
            self._set("busy")
            if await self._choose(ask):
                reply = await self._execute(ask.code, cell=ask.cell)
                status = reply["status"]
                if any(one.get("source") == "ask_exit" for one in reply.get("payload", ())):
                    await self._end(Notice("the cell ended Python"))
                    raise Died
                if status == "ok" and ask.check is not None:
                    checked = await self._check(ask)
        except Died:
            status = "error"
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
        reply = await self._execute(f"use_model({path!r})", cell=ask.cell, quiet=True)
        if reply["status"] == "ok":
            self._model = ask.model
        return bool(reply["status"] == "ok")

    async def _check(self, ask: Ask) -> Told:
        """Run the hidden check; what it says, in the reader's language."""
        assert ask.check is not None
        await self._execute("from partwise.course.prelude import expect\nexpect.begin()")
        reply = await self._execute(ask.check)
        if reply["status"] == "error":
            stopped = f"expect.stopped({reply.get('ename', '')!r}, {reply.get('evalue', '')!r})"
            await self._execute(stopped)
        reply = await self._execute("", expressions={"report": "expect.report()"})
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
        self.shown.setdefault(ask.cell, Shown()).done = told
        self.touched = time.monotonic()
        self._tell(told)

    async def _execute(
        self,
        code: str,
        *,
        cell: str | None = None,
        quiet: bool = False,
        expressions: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Run code; its output belongs to `cell`, or to nobody.

        Raises:
            Died: the process ended meanwhile.
        """
        if self._client is None:
            raise Died
        pending = _Pending(asyncio.get_running_loop().create_future(), asyncio.Event(), cell)
        client, shown = self._client, cell is not None and not quiet
        content = {
            "code": code,
            "silent": not shown,
            # A last line that ends with a semicolon shows nothing; IPython looks for it there.
            "store_history": shown,
            "user_expressions": dict(expressions or {}),
            "allow_stdin": False,
            "stop_on_error": False,
        }
        request = client.session.msg("execute_request", content)
        number = request["header"]["msg_id"]
        self._pending[number] = pending
        if cell is not None:
            self._cells[number] = cell
            while len(self._cells) > REMEMBERED:
                del self._cells[next(iter(self._cells))]
        try:
            await _send(client, client.shell_channel, request)
            reply = await pending.reply
            with suppress(TimeoutError):
                await asyncio.wait_for(pending.idle.wait(), LATE)
        finally:
            self._pending.pop(number, None)
        return reply

    # --- What the process says -------------------------------------------------------------------

    async def _hear_answers(self, client: Any) -> None:
        while True:
            got = await client.get_shell_msg()
            number = got["parent_header"].get("msg_id")
            answer: asyncio.Future[dict[str, Any]] | None = None
            if number in self._pending:
                answer = self._pending[number].reply
            elif number in self._asked:
                answer = self._asked[number]
            if answer is not None and not answer.done():
                answer.set_result(got["content"])

    async def _hear_output(self, client: Any) -> None:
        while True:
            got = await client.get_iopub_msg()
            number = got["parent_header"].get("msg_id")
            kind, content = got["msg_type"], got["content"]
            if kind == "status":
                if content["execution_state"] == "idle" and number in self._pending:
                    self._pending[number].idle.set()
                continue
            cell = self._cells.get(number)
            output = None if cell is None else output_of(kind, content)
            if cell is None or output is None:
                continue
            _append(self.shown.setdefault(cell, Shown()).outputs, output)
            self._tell(
                {"type": "kernel.output", "lesson": self.lesson, "cell": cell, "output": output}
            )

    async def _watch(self, process: Any, memory: int) -> None:
        """Notice the end of the process, and end it when it has more memory than it may."""
        next_look = 0.0
        while True:
            status = process.poll()
            if status is not None:
                break
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + MEMORY_LOOK
                if await asyncio.to_thread(used, process.pid) > memory:
                    await self._end(
                        Notice(
                            "Python was ended: it had more than {size} GB of memory",
                            size=f"{memory / 2**30:.1f}",
                        )
                    )
                    return
            await asyncio.sleep(LOOK)
        await self._end(_obituary(status))

    # --- The process itself ----------------------------------------------------------------------

    async def _start(self) -> None:
        """Start the process unless there is one.

        Raises:
            Died: it ended before it was ready.
        """
        async with self._starting:
            if self._client is not None:
                return
            self._set("starting")
            try:
                await self._launch()
            except OSError as error:
                await self._end(Notice("Python cannot be started: {reason}", reason=error))
                raise Died from error

    async def _launch(self) -> None:
        """Start the process, its loops, and the lesson's tools."""
        from jupyter_client.asynchronous.client import AsyncKernelClient
        from jupyter_client.connect import write_connection_file
        from jupyter_client.launcher import launch_kernel

        place = self._place = Path(tempfile.mkdtemp(prefix="partwise-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        # A file of this user alone stands between others of this machine and the process.
        sockets: dict[str, Any] = {}
        if sys.platform != "win32":
            sockets = {"transport": "ipc", "ip": str(place / "k")}
        file, _ = write_connection_file(str(place / "kernel.json"), **sockets)
        memory = self._memory or suitable(machine_memory())
        here = str(Path(partwise.__file__).parent.parent)
        process = self._process = launch_kernel(
            [sys.executable, "-P", "-c", _PROGRAM, here, "-f", file, "--memory", str(memory)],
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=str(self._folder),
            env={
                **os.environ,
                "IPYTHONDIR": str(place / "ipython"),
                "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                "PARTWISE_LANG": self._language,
                "PYTHONUTF8": "1",
            },
        )
        client = AsyncKernelClient()
        client.load_connection_file(file)
        client.start_channels(hb=False, stdin=False)
        self._client, self._model, self._subshell = client, None, None
        self._loops = [asyncio.create_task(self._watch(process, memory))]
        try:
            await self._greet(client, process)
        except (RuntimeError, TimeoutError) as error:
            if process.poll() is None:
                await self._end(Notice("Python did not start in time"))
            raise Died from error
        if self._client is not client:
            raise Died
        self._loops.append(asyncio.create_task(self._hear_answers(client)))
        self._loops.append(asyncio.create_task(self._hear_output(client)))
        reply = await self._execute(self._opening)
        if reply["status"] == "error":
            words = Notice(
                "the lesson's tools cannot be loaded: {name}: {reason}",
                name=reply.get("ename"),
                reason=reply.get("evalue"),
            )
            await self._end(words)
            raise Died
        self._set("idle")

    async def _greet(self, client: Any, process: Any) -> None:
        """Wait for the first answer, and open the second way in that completion goes."""
        ready = asyncio.create_task(client.wait_for_ready(timeout=STARTING))
        while not ready.done():
            if process.poll() is not None:
                ready.cancel()
                raise RuntimeError
            await asyncio.wait([ready], timeout=LOOK)
        await ready
        request = client.session.msg("create_subshell_request", {})
        await _send(client, client.control_channel, request)
        with suppress(Exception):
            reply = await client.get_control_msg(timeout=LATE)
            self._subshell = reply["content"].get("subshell_id")

    async def _end(self, reason: Notice | None) -> None:
        """End the process, whatever it is doing, and clear up after it."""
        process, client, place = self._process, self._client, self._place
        self._process = self._client = self._place = self._subshell = None
        current = asyncio.current_task()
        for loop in self._loops:
            if loop is not current:
                loop.cancel()
        self._loops = []
        if reason is not None:
            self._set("dead", self._say(reason))
        if process is not None:
            _kill(process)
            await asyncio.to_thread(process.wait)
        if client is not None:
            client.stop_channels()
        if place is not None:
            await asyncio.to_thread(shutil.rmtree, place, True)
        waiting = [pending.reply for pending in self._pending.values()] + list(self._asked.values())
        for answer in waiting:
            if not answer.done():
                answer.set_exception(Died())

    def _signal(self) -> None:
        """Interrupt the process as Ctrl+C would."""
        if sys.platform == "win32":
            from jupyter_client.win_interrupt import send_interrupt

            send_interrupt(self._process.win32_interrupt_event)
        else:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGINT)

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


async def _send(client: Any, channel: Any, message: Told) -> None:
    """Send a message through the asynchronous socket itself.

    The channel's own `send` goes around it, and then the socket may miss that an answer has come:
    what wakes it is told once, and the other way out has heard it.
    """
    await channel.socket.send_multipart(client.session.serialize(message))


def output_of(kind: str, content: Mapping[str, Any]) -> Told | None:
    """What IPython sends, as a page shows it; None for what no page shows."""
    if kind == "stream":
        return {"kind": "stream", "name": content["name"], "text": content["text"]}
    if kind == "error":
        return {
            "kind": "error",
            "name": content["ename"],
            "value": content["evalue"],
            "line": content.get("line"),
            "traceback": content["traceback"],
        }
    if kind not in ("display_data", "execute_result", "update_display_data"):
        return None
    data = content["data"]
    for mime in PICTURES:
        if mime in data:
            picture = data[mime]
            if mime == "image/svg+xml":
                picture = base64.b64encode(picture.encode("utf-8")).decode("ascii")
            return {"kind": "image", "mime": mime, "data": picture.replace("\n", "")}
    if "text/html" in data:
        return {"kind": "html", "html": data["text/html"]}
    return {"kind": "text", "text": data.get("text/plain", "")}


def _append(outputs: list[Told], output: Told) -> None:
    """Add an output; text that goes on is one output."""
    last = outputs[-1] if outputs else {}
    if output["kind"] == "stream" == last.get("kind") and output["name"] == last["name"]:
        outputs[-1] = {**last, "text": last["text"] + output["text"]}
    else:
        outputs.append(output)


def _obituary(status: int) -> Notice:
    """Why a process is gone that nobody ended."""
    if status < 0:
        with suppress(ValueError):
            return Notice(
                "Python crashed ({signal}); its values are lost",
                signal=signal.Signals(-status).name,
            )
    return Notice("Python ended with status {status}; its values are lost", status=status)


def _kill(process: Any) -> None:
    """End a process and those that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


def _units(text: str) -> bytes:
    """A text as a browser counts it: two bytes a unit."""
    return text.encode("utf-16-le", "surrogatepass")
