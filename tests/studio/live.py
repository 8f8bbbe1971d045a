"""A studio that really listens, and a browser's side of the conversation with it."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from websockets.sync.client import ClientConnection, connect

from partwise.studio.app import build
from partwise.studio.serve import MESSAGE, listen
from partwise.studio.state import State

# A busy machine may take long; what hangs takes longer.
PATIENCE = 120.0

Message = dict[str, Any]
T = TypeVar("T")


class Live:
    """One running studio, and requests to it."""

    def __init__(self, state: State) -> None:
        self.state = state

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.state.port}"

    @property
    def cookie(self) -> str:
        return f"{self.state.cookie}={self.state.token}"

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        cookie: bool = True,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body; `path` goes out as it is."""
        sent = {"Cookie": self.cookie} if cookie else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.state.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def get(self, path: str, language: str = "en") -> Any:
        """The JSON at an address."""
        status, _, data = self.request("GET", path, headers={"X-Partwise-Language": language})
        assert status == 200, (status, data)
        return json.loads(data)

    def post(self, path: str, body: object, language: str = "en") -> tuple[int, Any]:
        """Status and JSON of a POST."""
        headers = {"Content-Type": "application/json", "X-Partwise-Language": language}
        data = json.dumps(body).encode("utf-8")
        status, _, answer = self.request("POST", path, data, headers)
        return status, json.loads(answer)

    @contextmanager
    def tab(self) -> Iterator["Tab"]:
        """One tab's socket."""
        with connect(
            f"ws://127.0.0.1:{self.state.port}/api/socket",
            origin=self.origin,
            additional_headers={"Cookie": self.cookie},
            max_size=None,
        ) as socket:
            yield Tab(socket)


class Tab:
    """Sends messages and waits for others."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.heard: list[Message] = []

    def send(self, type: str, **message: Any) -> None:
        self._socket.send(json.dumps({"type": type, **message}))

    def raw(self, data: str | bytes) -> None:
        """Send what is no message, as it is."""
        self._socket.send(data)

    def tear(self, data: bytes) -> None:
        """Send bytes below the protocol, and end the connection without a word."""
        raw = self._socket.socket
        raw.sendall(data)
        raw.shutdown(socket.SHUT_RDWR)

    def until(self, wanted: Callable[[Message], bool], patience: float = PATIENCE) -> Message:
        """The first message from now on that is wanted."""
        end = time.monotonic() + patience
        while True:
            message = json.loads(self._socket.recv(timeout=max(0.01, end - time.monotonic())))
            self.heard.append(message)
            if wanted(message):
                found: Message = message
                return found

    def run(self, cell: str, code: str, lesson: str = "05", **more: Any) -> tuple[Message, list]:
        """Run a cell to its end: the `kernel.done` and the outputs."""
        self.heard.clear()
        self.send("kernel.run", lesson=lesson, cell=cell, code=code, **more)
        done = self.until(lambda m: m["type"] == "kernel.done" and m["cell"] == cell)
        outputs = [
            m["output"] for m in self.heard if m["type"] == "kernel.output" and m["cell"] == cell
        ]
        return done, outputs


@contextmanager
def running(folder: Path, **given: Any) -> Iterator[Live]:
    """A studio with folders of its own, until the `with` ends."""
    state = State(
        **{
            "root": folder / "runs",
            "ladders": folder / "ladders",
            "data": folder / "home",
            "language": "en",
            **given,
        }
    )
    socket = listen(0)
    state.port = socket.getsockname()[1]
    config = uvicorn.Config(
        build(state), log_config=None, access_log=False, ws_max_size=MESSAGE, lifespan="on"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    end = time.monotonic() + PATIENCE
    while not server.started:
        assert thread.is_alive() and time.monotonic() < end
        time.sleep(0.01)
    try:
        yield Live(state)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        socket.close()


def alone(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine comes to, in a thread of its own: a browser's loop may run in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
