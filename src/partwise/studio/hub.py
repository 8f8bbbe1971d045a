"""The tabs that are open, and what each of them wants to be told."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from partwise.messages import Language
from partwise.studio.answers import written

# Messages that may wait for a tab that does not read; then it is cut off, and comes back.
WAITING = 5000


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

    def send(self, told: dict[str, Any]) -> None:
        """Send a message once those before it are sent."""
        if self._queue.qsize() < WAITING:
            self._queue.put_nowait(written(told))
        else:
            self._queue.put_nowait(None)

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

    async def close(self, code: int) -> None:
        """End the connection."""
        if self._socket.application_state is not WebSocketState.DISCONNECTED:
            await self._socket.close(code)


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
