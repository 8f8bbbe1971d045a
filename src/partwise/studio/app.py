"""The studio put together: a guard, a language, and one group of routes an area."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from partwise.errors import PartwiseError
from partwise.messages import LANGUAGES, use_language
from partwise.studio import about, pages
from partwise.studio.answers import mistake
from partwise.studio.security import Guard
from partwise.studio.state import State

# An area is a module with `routes(state)`. The last one answers whatever is left.
AREAS: tuple[Callable[[State], list[BaseRoute]], ...] = (
    about.routes,
    pages.routes,
)


def build(state: State) -> Starlette:
    """The whole app of one studio."""
    return Starlette(
        routes=[route for area in AREAS for route in area(state)],
        middleware=[Middleware(Spoken, state=state), Middleware(Guard, state=state)],
        exception_handlers={PartwiseError: mistake},
    )


class Spoken:
    """Speaks the language that a page asks for in its header, else the studio's.

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
        with use_language(chosen):
            await self._app(scope, receive, send)
