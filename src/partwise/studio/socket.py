"""The one connection of a tab: messages in, handed to the area that knows their type."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from partwise.errors import PartwiseError, UsageError
from partwise.messages import LANGUAGES, use_language
from partwise.studio.answers import field, read
from partwise.studio.hub import Tab, whose
from partwise.studio.state import State

# What an area does with a message, and what it does when a tab is gone.
Answer = Callable[[Tab, dict[str, Any]], Awaitable[None]]
Gone = Callable[[Tab], Awaitable[None]]

# Tabs that may be open at once, and channels that one may watch.
MOST = 64
CHANNELS = 64


def routes(
    state: State, answers: Mapping[str, Answer], gone: tuple[Gone, ...] = ()
) -> list[BaseRoute]:
    """`/api/socket`.

    Args:
        state: of the studio.
        answers: message type -> what is done with it.
        gone: called with a tab that has closed.
    """

    async def talk(socket: WebSocket) -> None:
        if len(state.hub.tabs) >= MOST:
            await socket.close(1013)
            return
        await socket.accept()
        tab = Tab(socket, state.language)
        state.hub.tabs.add(tab)
        writing = asyncio.create_task(tab.write())
        try:
            while True:
                heard = await socket.receive()
                if heard["type"] == "websocket.disconnect":
                    break
                await _answer(tab, heard.get("text") or heard.get("bytes") or "", answers)
        finally:
            state.hub.tabs.discard(tab)
            for task in [writing, *tab.tasks.values()]:
                task.cancel()
            for one in gone:
                await one(tab)
            # The other side may be gone already.
            with suppress(RuntimeError, WebSocketDisconnect):
                await tab.close(1000)

    return [WebSocketRoute("/api/socket", talk)]


async def _answer(tab: Tab, text: str | bytes, answers: Mapping[str, Answer]) -> None:
    """Hand a message to its area; what is wrong with it is said, and what is wrong with us too."""
    sent: dict[str, Any] = {}
    try:
        sent = read(text)
        field(sent, "type", str)
        tab.language = next((one for one in LANGUAGES if one == sent.get("language")), tab.language)
        answer = answers.get(sent["type"])
        if answer is None:
            raise UsageError("there is no message {name!r}", name=sent["type"])
        with use_language(tab.language):
            await answer(tab, sent)
    except PartwiseError as error:
        with use_language(tab.language):
            tab.send({"type": "error", "message": str(error), **whose(sent)})
    except Exception as error:
        tab.fault(error, sent)


def channels(state: State) -> dict[str, Answer]:
    """`watch` and `unwatch`."""

    async def watch(tab: Tab, sent: dict[str, Any]) -> None:
        channel = _channel(sent)
        if len(tab.channels | {channel}) > CHANNELS:
            raise UsageError("a tab watches up to {most} channels", most=CHANNELS)
        for look in state.first_looks:
            look(tab, channel)
        tab.channels.add(channel)

    async def unwatch(tab: Tab, sent: dict[str, Any]) -> None:
        tab.channels.discard(_channel(sent))

    return {"watch": watch, "unwatch": unwatch}


def _channel(sent: Mapping[str, Any]) -> str:
    channel = sent.get("channel")
    if not isinstance(channel, str) or not 0 < len(channel) <= 200:
        raise UsageError("a channel is a short text")
    return channel
