"""The tabs that are open, and what each of them wants to be told."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from partwise.messages import Language, use_language
from partwise.studio.answers import logged, written

# Messages, and characters of them, that may wait for a tab that does not read; then it is cut off,
# and comes back. One message alone may be larger.
WAITING = 5000
WAITING_SIZE = 64 << 20


class Tab:
    """One tab: its socket, its language, and the channels that it watches.

    Args:
        socket: its connection.
        language: what it reads until it says otherwise.
    """

    def __init__(self, socket: WebSocket, language: Language) -> None:
        self.language = language
        self.channels: set[str] = set()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._socket = socket
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._waiting = 0
        self._cut_off = False

    def send(self, told: dict[str, Any]) -> None:
        """Send a message once those before it are sent."""
        if self._cut_off:
            return
        line = written(told)
        self._waiting += len(line)
        full = self._queue.qsize() >= WAITING or self._waiting > max(WAITING_SIZE, len(line))
        if full:
            self._cut_off = True
            while not self._queue.empty():
                self._queue.get_nowait()
        self._queue.put_nowait(None if full else line)

    def fault(self, error: Exception, sent: Mapping[str, Any]) -> None:
        """Log a fault of ours, and say it where it was met."""
        with use_language(self.language):
            self.send({"type": "error", "message": logged(error), **whose(sent)})

    async def write(self) -> None:
        """Send what is to be sent, until the connection ends."""
        # Who reads notices as well that the tab is gone, and ends this.
        with suppress(WebSocketDisconnect, RuntimeError):
            while True:
                line = await self._queue.get()
                if line is None:
                    await self.close(1013)
                    return
                await self._socket.send_text(line)
                self._waiting -= len(line)

    async def close(self, code: int) -> None:
        """End the connection."""
        if self._socket.application_state is not WebSocketState.DISCONNECTED:
            await self._socket.close(code)


def whose(sent: Mapping[str, Any]) -> dict[str, Any]:
    """What of a message tells a page where its answer belongs."""
    return {name: sent[name] for name in ("ask", "lesson", "cell") if name in sent}


class Hub:
    """All tabs."""

    def __init__(self) -> None:
        self.tabs: set[Tab] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """The server runs, in this loop."""
        self._loop = asyncio.get_running_loop()

    def threadsafe(self, tell: Callable[[], None]) -> None:
        """Do something from another thread that tells tabs."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(tell)

    def tell(self, channel: str, told: dict[str, Any]) -> None:
        """Send a message to the tabs that watch a channel."""
        for tab in self.tabs:
            if channel in tab.channels:
                tab.send(told)

    def event(self, channel: str, **told: Any) -> None:
        """Send an event to the tabs that watch its channel."""
        self.tell(channel, {"type": "event", "channel": channel, **told})

    def everybody(self, told: dict[str, Any]) -> None:
        """Send a message to every tab."""
        for tab in self.tabs:
            tab.send(told)

    def watched(self, prefix: str = "") -> Iterable[str]:
        """The channels that some tab watches."""
        names = Counter(name for tab in self.tabs for name in tab.channels)
        return [name for name in names if name.startswith(prefix)]
