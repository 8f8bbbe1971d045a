"""`/api/state`: what a page asks first."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partwise import __version__
from partwise.studio.answers import Json
from partwise.studio.state import State


def routes(state: State) -> list[BaseRoute]:
    """`GET /api/state`."""

    async def about(request: Request) -> Response:
        return Json(
            {"version": __version__, "language": state.language, "lessons": [], "features": []}
        )

    return [Route("/api/state", about)]
