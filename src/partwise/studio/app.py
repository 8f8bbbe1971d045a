"""The studio put together: a guard, a language, and one group of routes an area."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Mount, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from partwise.errors import PartwiseError
from partwise.messages import LANGUAGES, use_language, use_words
from partwise.studio import about, jobs, lessons, models, pages, progress, socket, texts
from partwise.studio.answers import fault, gone, mistake, refused
from partwise.studio.kernels import Kernels
from partwise.studio.playground import Playground
from partwise.studio.security import Guard, TooLargeError, too_large
from partwise.studio.state import State
from partwise.studio.wording import PAGES

# An area is a module with `routes(state)`.
AREAS: tuple[Callable[[State], list[BaseRoute]], ...] = (
    about.routes,
    lessons.routes,
    progress.routes,
    jobs.routes,
    texts.routes,
    models.routes,
)

# Areas that need torch, which takes a second or two: they are loaded behind the first page, or by
# the first request that no other area answers.
LATER = (
    "partwise.studio.runs",
    "partwise.studio.ladders",
    "partwise.studio.sizes",
    "partwise.studio.explorer",
    "partwise.studio.labs",
)

# How long after the first page is open they are loaded (seconds).
AFTER = 0.5


def build(state: State) -> ASGIApp:
    """The whole app of one studio."""
    kernels, playground, later = Kernels(state), Playground(state), Later(state)
    state.jobs = jobs.Jobs(state)
    state.first_looks.append(state.jobs.first_look)

    async def warm() -> None:
        """Load the heavy areas once a page is open and has asked for what it shows first."""
        while not state.hub.tabs:
            await asyncio.sleep(AFTER)
        await asyncio.sleep(AFTER)
        await later.load()

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        state.hub.begin()
        background = [asyncio.create_task(state.jobs.watch()), asyncio.create_task(warm())]
        try:
            yield
        finally:
            for task in background:
                task.cancel()
            await kernels.close()

    answers = {**socket.channels(state), **kernels.answers(), **playground.answers()}
    app = Starlette(
        routes=[
            *socket.routes(state, answers, (kernels.gone, playground.gone)),
            *(route for area in AREAS for route in area(state)),
            Mount("/api", later),
            *pages.routes(state),
        ],
        exception_handlers={
            PartwiseError: mistake,
            TooLargeError: too_large,
            ClientDisconnect: gone,
            OSError: refused,
            Exception: fault,
        },
        lifespan=life,
    )
    # Outside of everything, so that an answer to a fault of ours is guarded as well.
    return Spoken(Guard(app, state), state)


class Later:
    """The areas that need torch, loaded when one of them is asked.

    Args:
        state: of the studio.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._router: Router | None = None
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.load()
        assert self._router is not None
        # The areas name their whole addresses.
        await self._router({**scope, "root_path": ""}, receive, send)

    async def load(self) -> None:
        """Load them, if they are not yet."""
        async with self._turn:
            if self._router is None:
                self._router = await run_in_threadpool(self._loaded)

    def _loaded(self) -> Router:
        areas = [importlib.import_module(name).routes for name in LATER]
        found = [route for area in areas for route in area(self._state)]
        return Router([*found, *pages.unknown(self._state)])


class Spoken:
    """Speaks the language that a page asks for in its header, else the studio's, and as to a page.

    Args:
        app: what speaks.
        state: whose language is spoken otherwise.
    """

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = None
        if scope["type"] in ("http", "websocket"):
            wanted = Headers(scope=scope).get("x-partwise-language")
        chosen = next((known for known in LANGUAGES if known == wanted), self._state.language)
        with use_language(chosen), use_words(PAGES):
            await self._app(scope, receive, send)
