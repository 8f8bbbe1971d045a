"""How soon the studio answers: a page, completion after `np.`, each view of the explorer.

    python benchmarks/studio.py [--layers 12 --heads 12 --tokens 256]

The studio runs in this process on a port of its own and is asked over HTTP and its socket, as a
browser asks; the explorer's views are called as their addresses call them. The model is a GPT-2
small by shape with random weights (12 layers, 12 heads, width 768), its text as many tokens as
asked. Each figure is the middle of nine and the slowest, in milliseconds; the load of the machine
is told with them, as whatever else runs is in them.
"""

import argparse
import http.client
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import uvicorn
from websockets.sync.client import connect

from partwise.model.config import ModelConfig
from partwise.model.gpt import GPT
from partwise.studio import explorer
from partwise.studio.app import build
from partwise.studio.serve import MESSAGE, listen
from partwise.studio.state import State
from partwise.text.char import CharTokenizer

TIMES = 9
LETTERS = "".join(map(chr, range(32, 127)))
# What a reader waits for without noticing (milliseconds).
LIMIT = 200


class Asker:
    """Asks one studio.

    Args:
        state: of the studio, which listens.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._cookie = f"{state.cookie}={state.token}"
        self._connection = http.client.HTTPConnection("127.0.0.1", state.port)

    def get(self, path: str) -> bytes:
        """The body of an answer."""
        self._connection.request("GET", path, headers={"Cookie": self._cookie})
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {data[:200]!r}")
        return data

    def socket(self) -> Any:
        """The connection of a tab."""
        address = f"127.0.0.1:{self._state.port}"
        return connect(
            f"ws://{address}/api/socket",
            origin=f"http://{address}",  # type: ignore[arg-type]
            additional_headers={"Cookie": self._cookie},
        )


def told(name: str, work: Callable[[], object], times: int = TIMES) -> float:
    """Print how long something takes; the middle one (milliseconds)."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - begun))
    middle = statistics.median(taken)
    mark = "" if middle <= LIMIT else f"   more than {LIMIT}"
    print(f"{name:44} {middle:8.1f} {max(taken):8.1f}{mark}", flush=True)
    return middle


def views(layers: int, heads: int, tokens: int) -> None:
    """Every view of the explorer, on a model of that shape."""
    config = ModelConfig(
        vocab_size=len(LETTERS),
        context_length=tokens,
        n_layers=layers,
        n_heads=heads,
        d_model=64 * heads,
    )
    torch.manual_seed(0)
    model, tokenizer = GPT(config).eval(), CharTokenizer(LETTERS)
    traces = explorer.Traces()
    text = (LETTERS * (1 + tokens // len(LETTERS)))[:tokens]
    asked: dict[str, Callable[[explorer.Traced, dict[str, str]], Any]] = {
        "stream": explorer.stream,
        "maps": explorer.maps,
        "small": explorer.small,
        "lens": explorer.lens_at,
        "grid": explorer.grid,
        "next": explorer.next_at,
    }
    begun = time.perf_counter()
    traced, _ = traces.trace(model, tokenizer, text)
    print(f"{'one forward pass, everything kept':44} {1000 * (time.perf_counter() - begun):8.1f}")
    last = str(layers - 1)
    for name, view in asked.items():
        told(f"view {name}", lambda view=view: view(traced, {"layer": last}))  # type: ignore[misc]
    stages = ("norm1", "attention", "residual1", "norm2", "feedforward.hidden", "output")
    for stage in stages:
        query = {"name": f"block.{last}.{stage}", "by_token": "1"}

        def one(query: dict[str, str] = query) -> None:
            # What was found out about a tensor is kept; a new reader has it found out.
            traced.figures.clear()
            explorer.tensor(traced, query)

        told(f"tensor {stage}", one)
    for kind in ("weights", "query"):
        query = {"name": f"block.{last}.attention.{kind}", "head": str(heads - 1), "by_token": "1"}
        told(f"tensor attention.{kind} of a head", lambda q=query: explorer.tensor(traced, q))  # type: ignore[misc]


def completion(asker: Asker) -> None:
    """`np.` and a name of numpy, idle and while a cell runs."""
    with asker.socket() as socket:

        def until(wanted: str) -> dict[str, Any]:
            while True:
                message: dict[str, Any] = json.loads(socket.recv(timeout=120))
                if message["type"] == wanted:
                    return message

        def send(type: str, **more: Any) -> None:
            socket.send(json.dumps({"type": type, "lesson": "05", **more}))

        def ask(code: str) -> None:
            send("kernel.complete", ask="q", code=code, cursor=len(code))
            if not until("kernel.completion")["matches"]:
                raise RuntimeError(f"nothing after {code}")

        begun = time.perf_counter()
        send("kernel.run", cell="a", code="import numpy as np")
        until("kernel.done")
        print(
            f"{'Python started, a first cell run':44} {1000 * (time.perf_counter() - begun):8.1f}"
        )
        told("completion after np., the first", lambda: ask("np."), 1)
        told("completion after np.", lambda: ask("np."))
        told("completion after np.lin", lambda: ask("np.lin"))
        send("kernel.run", cell="b", code="while True: pass")
        time.sleep(1)
        told("completion after np. while a cell runs", lambda: ask("np."))
        send("kernel.interrupt")
        until("kernel.done")


def main() -> None:
    """Measure all of it."""
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, usual in (("layers", 12), ("heads", 12), ("tokens", 256)):
        words.add_argument(f"--{name}", type=int, default=usual)
    asked = words.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        state = State(root=folder / "runs", ladders=folder / "ladders", data=folder / "home")
        listening = listen(0)
        state.port = listening.getsockname()[1]
        server = uvicorn.Server(
            uvicorn.Config(
                build(state), log_config=None, access_log=False, ws_max_size=MESSAGE, lifespan="on"
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        with suppress(OSError, AttributeError):
            print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"{'':44} {'median':>8} {'slowest':>8}  (ms)")
        asker = Asker(state)
        told("the page itself", lambda: asker.get("/"))
        told("a lesson", lambda: asker.get("/api/lessons/06.5"))
        completion(asker)
        print(f"explorer: {asked.layers} layers, {asked.heads} heads, {asked.tokens} tokens")
        views(asked.layers, asked.heads, asked.tokens)
        server.should_exit = True
        thread.join(30)


if __name__ == "__main__":
    main()
