"""A conversation with a kernel's process: code goes out, its answer and its output come back."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from partwise.studio.answers import logged
from partwise.studio.kernel_output import Told, output_of

# Seconds: until a process answers at all; until a completion is no longer of use; after an answer,
# until its last output must be here.
STARTING = 60.0
COMPLETING = 2.0
LATE = 5.0

# Cells whose late output is still known.
REMEMBERED = 32


class Died(Exception):  # noqa: N818
    """The process is gone."""


@dataclass
class _Pending:
    reply: "asyncio.Future[dict[str, Any]]"
    idle: asyncio.Event


class Conversation:
    """Asks one process, and hears what its cells show.

    Args:
        client: jupyter_client's, with open channels.
        heard: is given a cell's id and one of its outputs.
    """

    def __init__(self, client: Any, heard: Callable[[str, Told], None]) -> None:
        self._client = client
        self._heard = heard
        self._subshell: str | None = None
        self._pending: dict[str, _Pending] = {}
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._cells: dict[str, str] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._over = False

    async def greet(self) -> None:
        """Wait for the first answer, and open the second way in, that completion goes.

        Raises:
            RuntimeError, TimeoutError: it does not answer.
        """
        await self._client.wait_for_ready(timeout=STARTING)
        request = self._client.session.msg("create_subshell_request", {})
        await self._send(self._client.control_channel, request)
        with suppress(Exception):
            reply = await self._client.get_control_msg(timeout=LATE)
            self._subshell = reply["content"].get("subshell_id")

    def listen(self) -> None:
        """Hear answers and output from now on."""
        self._loops = [
            asyncio.create_task(self._hear_answers()),
            asyncio.create_task(self._hear_output()),
        ]

    async def execute(
        self,
        code: str,
        *,
        cell: str | None = None,
        quiet: bool = False,
        expressions: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Run code.

        Args:
            code: any Python.
            cell: whose output it is; None: nobody's.
            quiet: show its errors and what it prints, but not its value.
            expressions: name -> what is evaluated after it and sent with the answer.

        Returns:
            The content of IPython's `execute_reply`.

        Raises:
            Died: the process ended meanwhile.
        """
        if self._over:
            raise Died
        pending = _Pending(asyncio.get_running_loop().create_future(), asyncio.Event())
        shown = cell is not None and not quiet
        content = {
            "code": code,
            "silent": not shown,
            # A last line that ends with a semicolon shows nothing; IPython looks for it there.
            "store_history": shown,
            "user_expressions": dict(expressions or {}),
            "allow_stdin": False,
            "stop_on_error": False,
        }
        request = self._client.session.msg("execute_request", content)
        number = request["header"]["msg_id"]
        self._pending[number] = pending
        if cell is not None:
            self._cells[number] = cell
            while len(self._cells) > REMEMBERED:
                del self._cells[next(iter(self._cells))]
        try:
            await self._send(self._client.shell_channel, request)
            reply = await pending.reply
            with suppress(TimeoutError):
                await asyncio.wait_for(pending.idle.wait(), LATE)
        finally:
            self._pending.pop(number, None)
        return reply

    async def complete(self, code: str, cursor: int) -> Told:
        """What could stand at the cursor, also while a cell runs.

        Args:
            code: the cell.
            cursor: where, in UTF-16 units as a browser counts.

        Returns:
            start, end (UTF-16 units), and matches, each with text and type.
        """
        if self._subshell is None:
            return nothing_at(cursor)
        place = len(_units(code)[: 2 * cursor].decode("utf-16-le", "ignore"))
        sent = self._client.session.msg("complete_request", {"code": code, "cursor_pos": place})
        sent["header"]["subshell_id"] = self._subshell
        answer = asyncio.get_running_loop().create_future()
        self._asked[sent["header"]["msg_id"]] = answer
        try:
            await self._send(self._client.shell_channel, sent)
            content = await asyncio.wait_for(answer, COMPLETING)
        except (TimeoutError, Died):
            return nothing_at(cursor)
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

    def hang_up(self) -> None:
        """Hear no more."""
        self._subshell = None
        current = asyncio.current_task()
        for loop in self._loops:
            if loop is not current:
                loop.cancel()

    def end(self) -> None:
        """Close the channels; who still waits for an answer is told that the process is gone."""
        self._over = True
        self._client.stop_channels()
        waiting = [pending.reply for pending in self._pending.values()] + list(self._asked.values())
        for answer in waiting:
            if not answer.done():
                answer.set_exception(Died())

    async def _hear_answers(self) -> None:
        while True:
            got = await self._client.get_shell_msg()
            # A cell may send what it likes: one message that makes no sense must end no loop.
            try:
                self._take_answer(got)
            except Exception as error:
                logged(error)

    async def _hear_output(self) -> None:
        while True:
            got = await self._client.get_iopub_msg()
            try:
                self._take_output(got)
            except Exception as error:
                logged(error)

    def _take_answer(self, got: Told) -> None:
        number = got["parent_header"].get("msg_id")
        answer: asyncio.Future[dict[str, Any]] | None = None
        if number in self._pending:
            answer = self._pending[number].reply
        elif number in self._asked:
            answer = self._asked[number]
        if answer is not None and not answer.done():
            answer.set_result(got["content"])

    def _take_output(self, got: Told) -> None:
        number = got["parent_header"].get("msg_id")
        kind, content = got["msg_type"], got["content"]
        if kind == "status":
            if content["execution_state"] == "idle" and number in self._pending:
                self._pending[number].idle.set()
            return
        cell = self._cells.get(number)
        output = None if cell is None else output_of(kind, content)
        if cell is not None and output is not None:
            self._heard(cell, output)

    async def _send(self, channel: Any, message: Told) -> None:
        """Send a message through the asynchronous socket itself.

        The channel's own `send` goes around it, and then the socket may miss that an answer has
        come: what wakes it is told once, and the other way out has heard it.
        """
        await channel.socket.send_multipart(self._client.session.serialize(message))


def nothing_at(cursor: int) -> Told:
    """No completion."""
    return {"start": cursor, "end": cursor, "matches": []}


def _units(text: str) -> bytes:
    """A text as a browser counts it: two bytes a unit."""
    return text.encode("utf-16-le", "surrogatepass")
