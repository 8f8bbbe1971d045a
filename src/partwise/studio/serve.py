"""The server: takes a port of this machine alone, says its address, serves until it is stopped."""

import asyncio
import errno
import logging
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn

from partwise.errors import UsageError
from partwise.studio.app import build
from partwise.studio.hub import Hub
from partwise.studio.state import State

PORT = 8017

# How many ports above the usual one are tried.
NEXT = 50

# Largest message that a page may send through its socket (bytes).
MESSAGE = 4 << 20

# Browsers that would take the terminal over.
TERMINAL = ("www-browser", "links", "elinks", "lynx", "w3m")

# How long answers under way may take when the server ends (seconds).
PATIENCE = 3
FAREWELL = 0.1


def listen(port: int | None, host: str = "127.0.0.1") -> socket.socket:
    """A socket that listens on the loopback address.

    Args:
        port: the port; None: the usual one, or the next that is free.
        host: the address.

    Raises:
        UsageError: the port that was asked for is taken or may not be used.
    """
    if port is not None and not 0 <= port < 1 << 16:
        raise UsageError("port {port} does not exist; give 1 to 65535", port=port)
    tried = range(PORT, PORT + NEXT) if port is None else [port]
    for number in tried:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
            made.listen(128)
        except OSError as problem:
            made.close()
            if port is None:
                continue
            if problem.errno == errno.EADDRINUSE:
                raise UsageError(
                    "port {port} is taken by another program; leave out --port, or choose another",
                    port=number,
                ) from problem
            raise UsageError(
                "port {port} cannot be used: {reason}", port=number, reason=problem.strerror
            ) from problem
        made.setblocking(False)
        return made
    raise UsageError(
        "ports {first} to {last} are all taken; name a free one with --port",
        first=tried[0],
        last=tried[-1],
    )


def serve(
    state: State,
    *,
    port: int | None = None,
    browser: bool = True,
    announce: Callable[[str], None],
) -> int | None:
    """Serve until a signal ends it.

    Args:
        state: what is served; its port is set here.
        port: see `listen`.
        browser: open the address in the learner's browser.
        announce: is given the address once it answers.

    Returns:
        The signal that ended it.

    Raises:
        UsageError: there is no port to be had.
    """
    made = listen(port, state.host)
    state.port = made.getsockname()[1]
    ready = _Server(
        uvicorn.Config(
            build(state),
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            ws_max_size=MESSAGE,
            timeout_graceful_shutdown=PATIENCE,
        )
    )

    def tell() -> None:
        announce(state.address)
        if browser:
            # Some browsers keep the caller waiting.
            threading.Thread(target=show, args=(state.address,), daemon=True).start()

    ready.tell, ready.hub = tell, state.hub
    with made:
        asyncio.run(ready.serve(sockets=[made]))
    return ready.ended_by


def show(address: str) -> None:
    """Open an address in the learner's browser, unless all there is is one in the terminal."""
    with suppress(webbrowser.Error):
        browser = webbrowser.get()
        if Path(getattr(browser, "name", "")).name not in TERMINAL:
            browser.open(address)


class _Server(uvicorn.Server):
    """uvicorn's, which tells when it is ready and by what it was ended."""

    tell: Callable[[], None]
    hub: Hub
    ended_by: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.hub.everybody({"type": "server.stopping"})
        # Long enough for the tabs to be told, before their connections are closed.
        await asyncio.sleep(FAREWELL)
        # From here on it would only tell of requests that the end has cut off.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: object) -> None:
        self.ended_by = signal.Signals(sig)
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
