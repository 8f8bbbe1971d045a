"""`/api/state`: what a page asks first."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partwise import __version__
from partwise.course import catalogue
from partwise.studio.answers import Json
from partwise.studio.lessons import row
from partwise.studio.state import State


def routes(state: State) -> list[BaseRoute]:
    """`GET /api/state`."""

    def about(request: Request) -> Response:
        lessons = [row(lesson) for lesson in catalogue.lessons()]
        return Json(
            {
                "version": __version__,
                "language": state.language,
                "lessons": lessons,
                "features": {},
            }
        )

    return [Route("/api/state", about)]
