"""Who is let in: nobody but the learner's own browser, on a page that this server gave it.

A server on the loopback address can be reached from every page that the learner has open. So each
request must name this server as its Host (a foreign name may be made to point here), must not come
from a page of another Origin, and must carry the secret of the printed address, as a cookie that no
script reads and no foreign page sends. Pure ASGI: WebSockets pass through it as well.
"""

import hmac
import re
import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from partwise.messages import message
from partwise.studio.state import State

METHODS = ("GET", "HEAD", "POST")

# Bytes of a request's body; a path that begins with one of these may send more.
BODY = 1 << 20
BODIES = {"/api/texts": 72 << 20}

# A page that was opened by a link on another page: the browser holds the strict cookie back, and
# sends it when the page asks for itself again.
_AGAIN = '<!doctype html><meta http-equiv="refresh" content="0"><title>Partwise</title>'


def policy(host: str, nonce: str) -> str:
    """The content security policy of every answer."""
    return "; ".join(
        (
            "default-src 'self'",
            "script-src 'self'",
            f"style-src 'self' 'nonce-{nonce}'",
            "img-src 'self' data: blob:",
            f"connect-src 'self' ws://{host}",
            "frame-src 'self' blob:",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


class Guard:
    """Refuses what does not come from the learner, and sends the headers that keep a page in.

    Args:
        app: what is guarded.
        state: whose secret is asked for.
    """

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        scope.setdefault("state", {})
        nonce = scope["state"]["nonce"] = secrets.token_urlsafe(16)

        async def guarded(sent: Message) -> None:
            if sent["type"] == "http.response.start":
                out = MutableHeaders(scope=sent)
                out["content-security-policy"] = policy(
                    host if host in self._state.hosts else "127.0.0.1", nonce
                )
                out["x-content-type-options"] = "nosniff"
                out["referrer-policy"] = "no-referrer"
                out["cross-origin-opener-policy"] = "same-origin"
                out["cross-origin-resource-policy"] = "same-origin"
                out["x-frame-options"] = "DENY"
                out.setdefault("cache-control", "no-store")
            await send(sent)

        refusal = self._refusal(scope, headers)
        if refusal is None and scope["type"] == "http":
            limit = _limit(scope["path"])
            receive = _bounded(receive, limit)
            if int(headers.get("content-length", 0)) > limit:
                refusal = 413, message("the request is larger than {limit} bytes", limit=limit)
        if refusal is not None:
            await self._refuse(scope, headers, refusal, receive, guarded)
            return
        if scope["type"] == "http" and scope["path"] == "/" and _token_of(scope) is not None:
            await self._let_in(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Status and reason, if the request is not the learner's."""
        state = self._state
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in state.hosts or len(headers.getlist("host")) != 1:
            return 421, message("this server is not {host}", host=host)
        if origin is not None and origin != f"http://{host}":
            return 403, message("requests from {origin} are not answered", origin=origin)
        if scope["type"] == "websocket" and origin is None:
            return 403, message("a socket must say which page opens it")
        if scope["type"] == "http" and scope["method"] not in METHODS:
            return 405, message("the method {method} is not known here", method=scope["method"])
        given = _token_of(scope) if scope["type"] == "http" and scope["path"] == "/" else None
        if given is None:
            given = self._cookie(headers)
        if not hmac.compare_digest(given.encode("utf-8", "replace"), state.token.encode("ascii")):
            return 401, message("open the address that `partwise studio` printed, with its token")
        if scope["type"] == "http" and scope["method"] == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return 415, message("only JSON is taken: content-type application/json")
            if not re.fullmatch(r"\d{0,18}", headers.get("content-length", "")):
                return 400, message("the request says no length that can be read")
        return None

    def _cookie(self, headers: Headers) -> str:
        """The secret that the browser sends; empty without one."""
        try:
            found = SimpleCookie("; ".join(headers.getlist("cookie"))).get(self._state.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value

    async def _refuse(
        self,
        scope: Scope,
        headers: Headers,
        refusal: tuple[int, str],
        receive: Receive,
        send: Send,
    ) -> None:
        status, words = refusal
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": words[:40]})
            return
        if scope["path"].startswith("/api/"):
            await _answer(status, words)(scope, receive, send)
            return
        came = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
        if status == 401 and scope["method"] == "GET" and came == ("cross-site", "navigate"):
            await HTMLResponse(_AGAIN, status)(scope, receive, send)
            return
        allowed = {"allow": ", ".join(METHODS)} if status == 405 else None
        await PlainTextResponse(words + "\n", status, headers=allowed)(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self._state.cookie, self._state.token, path="/", httponly=True, samesite="strict"
        )
        await answer(scope, receive, send)


class TooLargeError(Exception):
    """The body is longer than it may be."""


def too_large(request: Request, error: Exception) -> Response:
    """That, as an answer."""
    limit = _limit(request.url.path)
    return _answer(413, message("the request is larger than {limit} bytes", limit=limit))


def _bounded(receive: Receive, limit: int) -> Receive:
    """`receive` that stops at a body of more than `limit` bytes, whatever its headers said."""
    left = limit

    async def bounded() -> Message:
        nonlocal left
        got = await receive()
        if got["type"] == "http.request":
            left -= len(got.get("body", b""))
            if left < 0:
                raise TooLargeError
        return got

    return bounded


def _limit(path: str) -> int:
    sizes: Iterable[int] = (size for start, size in BODIES.items() if path.startswith(start))
    return max(sizes, default=BODY)


def _token_of(scope: Scope) -> str | None:
    given = parse_qs(scope["query_string"].decode("latin-1")).get("token")
    return given[0] if given else None


def _answer(status: int, words: str) -> JSONResponse:
    return JSONResponse({"error": {"kind": "refused", "message": words}}, status)
