"""The life of a kernel's process: it is started, greeted, watched, interrupted and ended."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import partwise
from partwise.messages import Language, Notice
from partwise.studio.kernel_output import Told
from partwise.studio.kernel_talk import Conversation, Died
from partwise.studio.memory import used

# The same package that runs here, and nothing from the folder that the cells write to.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from partwise.studio.kernel_process import main; main(sys.argv[2:])"
)

# Seconds between two looks at the process, and at its memory.
LOOK = 0.2
MEMORY_LOOK = 1.0


class Process:
    """One process, from its start to its end; another one is another `Process`.

    Args:
        folder: where its cells read and write files.
        memory: the most it may have (bytes).
        language: whose words its tools use.
        heard: is given a cell's id and one of its outputs.
        ended: is called once, when it is over, with the reason if there is one to tell.
    """

    def __init__(
        self,
        folder: Path,
        memory: int,
        language: Language,
        heard: Callable[[str, Told], None],
        ended: Callable[["Process", Notice | None], None],
    ) -> None:
        self._folder = folder
        self._memory = memory
        self._language = language
        self._heard = heard
        self._ended = ended
        self._over = False
        self._place: Path | None = None
        self._process: Any = None
        self._talk: Conversation | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Its number, once it has one."""
        return None if self._process is None else int(self._process.pid)

    @property
    def talk(self) -> Conversation:
        """The conversation with it.

        Raises:
            Died: there is none.
        """
        if self._talk is None or self._over:
            raise Died
        return self._talk

    async def begin(self, opening: str) -> None:
        """Start it, and the lesson's tools in it.

        Args:
            opening: code that is run first.

        Raises:
            Died: it ended before it was ready; `ended` was told why.
        """
        try:
            process, talk = self._launch()
        except OSError as error:
            await self.end(Notice("Python cannot be started: {reason}", reason=error))
            raise Died from error
        self._watcher = asyncio.create_task(self._watch(process))
        try:
            await _greeted(talk, process)
        except (RuntimeError, TimeoutError) as error:
            if process.poll() is None:
                await self.end(Notice("Python did not start in time"))
            raise Died from error
        if self._over:
            raise Died
        talk.listen()
        reply = await talk.execute(opening)
        if reply["status"] == "error":
            words = Notice(
                "the lesson's tools cannot be loaded: {name}: {reason}",
                name=reply.get("ename"),
                reason=reply.get("evalue"),
            )
            await self.end(words)
            raise Died

    def interrupt(self) -> None:
        """Interrupt it as Ctrl+C would."""
        if self._process is None or self._over:
            return
        if sys.platform == "win32":
            from jupyter_client.win_interrupt import send_interrupt

            send_interrupt(self._process.win32_interrupt_event)
        else:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGINT)

    async def end(self, reason: Notice | None) -> None:
        """End it, whatever it is doing, and clear up after it.

        Args:
            reason: why, for the pages; None where they know.
        """
        if self._over:
            return
        self._over = True
        if self._watcher is not None and self._watcher is not asyncio.current_task():
            self._watcher.cancel()
        if self._talk is not None:
            self._talk.hang_up()
        self._ended(self, reason)
        if self._process is not None:
            _kill(self._process)
            await asyncio.to_thread(self._process.wait)
        if self._talk is not None:
            self._talk.end()
        if self._place is not None:
            await asyncio.to_thread(shutil.rmtree, self._place, True)

    def _launch(self) -> tuple[Any, Conversation]:
        """Start the process and open the channels to it."""
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
        here = str(Path(partwise.__file__).parent.parent)
        words = [here, "-f", file, "--memory", str(self._memory)]
        process = self._process = launch_kernel(
            [sys.executable, "-P", "-c", _PROGRAM, *words],
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
        talk = self._talk = Conversation(client, self._heard)
        return process, talk

    async def _watch(self, process: Any) -> None:
        """Notice the end of the process, and end it when it has more memory than it may."""
        next_look = 0.0
        while True:
            status = process.poll()
            if status is not None:
                await self.end(_obituary(status))
                return
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + MEMORY_LOOK
                if await asyncio.to_thread(used, process.pid) > self._memory:
                    size = f"{self._memory / 2**30:.1f}"
                    await self.end(
                        Notice("Python was ended: it had more than {size} GB of memory", size=size)
                    )
                    return
            await asyncio.sleep(LOOK)


async def _greeted(talk: Conversation, process: Any) -> None:
    """Wait until a process answers, or is gone."""
    ready = asyncio.create_task(talk.greet())
    while not ready.done():
        if process.poll() is not None:
            ready.cancel()
            raise RuntimeError
        await asyncio.wait([ready], timeout=LOOK)
    await ready


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
