"""The page itself: one index.html for every address that is not an answer or an asset."""

import re

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from partwise.messages import message
from partwise.studio.answers import Json
from partwise.studio.state import State


def routes(state: State) -> list[BaseRoute]:
    """Built files under /assets/, and index.html for everything else."""

    async def page(request: Request) -> Response:
        name = request.path_params["path"]
        # Files that stand beside index.html, such as the icon; nothing else, by any name.
        if re.fullmatch(r"[\w-]+\.(svg|png|ico|webmanifest|txt)", name):
            found = state.static / name
            if found.is_file():
                return FileResponse(found)
            return PlainTextResponse(message("there is nothing at {path}", path=name), 404)
        return HTMLResponse(_index(state, request.state.nonce))

    return [
        Mount("/assets", _Assets(directory=state.static / "assets", check_dir=False)),
        Route("/{path:path}", page, methods=["GET"]),
    ]


def unknown(state: State) -> list[BaseRoute]:
    """What answers a request that no area knows."""

    async def answer(request: Request) -> Response:
        words = message("there is nothing at {path}", path=request.url.path)
        return Json({"error": {"kind": "unknown", "message": words}}, 404)

    return [Route("/{path:path}", answer, methods=["GET", "POST"])]


class _Assets(StaticFiles):
    """Names hold a hash of what is in the file, so a browser may keep it."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        if answer.status_code == 200:
            answer.headers["cache-control"] = "private, max-age=31536000, immutable"
        return answer


def _index(state: State, nonce: str) -> str:
    """index.html with the nonce of this answer, or what to do where it was not built."""
    file = state.static / "index.html"
    if not file.is_file():
        return (
            '<!doctype html><html><head><meta charset="utf-8"><title>Partwise</title></head>'
            f"<body><main><h1>Partwise</h1><p>{not_built()}</p></main></body></html>"
        )
    text = file.read_text(encoding="utf-8")
    return text.replace("__CSP_NONCE__", nonce)


def not_built() -> str:
    """What is missing where the pages were not built, and what builds them."""
    return message(
        "the studio's pages were not built when Partwise was installed, as npm could not be "
        "reached; where it can be, build them with: pip install --force-reinstall --no-deps "
        "partwise (in a copy of the repository: make studio)"
    )
