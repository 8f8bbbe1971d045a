"""Lessons as static pages: what a learner sees first, recorded, for any web server to show.

Each page is index.html with its data inside: the lesson, what its cells showed, and the answers
that its instruments ask for first. Text, formulas and quizzes work; cells are read-only; an
instrument that needs more says so.
"""

import asyncio
import base64
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from partwise.course import catalogue
from partwise.course.cells import Lesson, Widget
from partwise.course.tiny import make_tiny
from partwise.errors import UsageError
from partwise.messages import Notice, use_language
from partwise.storage import write_folder
from partwise.studio.app import build
from partwise.studio.kernel import Ask, Kernel
from partwise.studio.kernel_output import Shown
from partwise.studio.kernels import OPENING
from partwise.studio.pages import not_built
from partwise.studio.state import State

MARK = '<script type="application/json" id="partwise-export">'

# Tokens in a row of the grid of likeliest words, as the explorer asks for them.
GRID = 12

NORMS = ("none", "pre", "post")
INITIALISATIONS = ("fan_in", "normal", "gpt2")

# Draws of random numbers that a page can step through.
SEEDS = (1, 2, 3)

Announce = Callable[[Notice], None]


def export(folder: Path, state: State, announce: Announce = lambda notice: None) -> list[Path]:
    """Write every lesson as a page into `folder`.

    Args:
        folder: is made; an earlier export there is replaced.
        state: of a studio; nothing of its runs or progress is written.
        announce: is told how far it is.

    Returns:
        The pages.

    Raises:
        UsageError: there are no pages to make them of, or something else stands in the folder.
        StorageError: it cannot be written.
    """
    page = state.static / "index.html"
    if not page.is_file():
        raise UsageError("{reason}", reason=not_built())
    if folder.exists() and any(folder.iterdir()):
        index = folder / "index.html"
        if not index.is_file() or MARK not in index.read_text(encoding="utf-8"):
            raise UsageError(
                "{folder} is not empty and holds no earlier export; name another folder",
                folder=folder,
            )
    with tempfile.TemporaryDirectory(prefix="partwise-") as nothing:
        # A studio that knows of no run, no text and no progress: none of them belongs into a page.
        empty = Path(nothing)
        bare = dataclasses.replace(
            state, root=empty / "runs", ladders=empty / "ladders", data=empty / "data"
        )
        return asyncio.run(_export(folder, bare, announce))


async def _export(folder: Path, state: State, announce: Announce) -> list[Path]:
    announce(Notice("training the tiny model, unless it is there"))
    await asyncio.to_thread(make_tiny)
    app = build(state)
    page = (state.static / "index.html").read_text(encoding="utf-8").replace("__CSP_NONCE__", "")
    page = page.replace('"/assets/', '"./assets/')
    shared = Recorder(app, state)
    await shared.get("/api/state")
    await shared.get("/api/models")
    with write_folder(folder) as inside:
        for path in state.static.iterdir():
            if path.is_dir():
                shutil.copytree(path, inside / path.name)
            elif path.suffix in (".svg", ".png", ".ico"):
                shutil.copy(path, inside / path.name)
        _write(inside / "index.html", page, state, "/", shared.answers, {})
        for lesson in catalogue.lessons():
            announce(Notice("lesson {number}", number=lesson.number))
            recorder = Recorder(app, state)
            recorder.answers.update(shared.answers)
            await recorder.get(f"/api/lessons/{lesson.number}")
            for cell in lesson.cells:
                if isinstance(cell, Widget) and cell.name in ASKED:
                    await ASKED[cell.name](recorder, cell.props)
            outputs = {lesson.number: await shown(lesson, state)}
            _write(
                inside / f"{lesson.number}.html",
                page,
                state,
                f"/lesson/{lesson.number}",
                recorder.answers,
                outputs,
            )
    return sorted(folder.glob("*.html"))


def _write(
    file: Path,
    page: str,
    state: State,
    path: str,
    answers: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> None:
    data = {"path": path, "language": state.language, "answers": answers, "outputs": outputs}
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("</", "<\\/")
    file.write_text(
        page.replace("</body>", f"{MARK}{text}</script>\n</body>"), encoding="utf-8", newline="\n"
    )


async def shown(lesson: Lesson, state: State) -> dict[str, list[dict[str, Any]]]:
    """What each cell of a lesson shows; an exercise shows nothing, but is solved for the others."""
    ended: asyncio.Queue[str] = asyncio.Queue()

    def tell(told: dict[str, Any]) -> None:
        if told["type"] == "kernel.done":
            ended.put_nowait(told["cell"])

    kernel = Kernel(lesson.number, state.data / lesson.number, OPENING, tell)
    try:
        for cell in lesson.code_cells:
            kernel.run(Ask(cell.id, cell.solution or cell.code, "tiny", None, state.language))
            await ended.get()
        return {
            cell.id: kernel.shown.get_or(cell.id, Shown).outputs
            for cell in lesson.code_cells
            if cell.solution is None
        }
    finally:
        await kernel.close()


class Recorder:
    """Asks the studio, without a network, and keeps the answers under the names that pages use.

    Args:
        app: the studio.
        state: whose secret it knows.
    """

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app = app
        self._state = state
        self.answers: dict[str, Any] = {}

    async def get(self, path: str) -> Any:
        """Ask for an address, and keep the answer."""
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a JSON object, and keep the answer."""
        return await self._ask("POST", path, body)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        name = f"{method} {path}"
        if body is not None:
            name += " " + _canonical(body)
        if name in self.answers:
            return self.answers[name]
        status, kind, data = await self._answer(method, path, body)
        if status != 200:
            # The page is told that this needs a running studio.
            return None
        value: Any
        if kind.startswith("application/octet-stream"):
            value = base64.b64encode(data).decode("ascii")
        elif kind.startswith("application/x-ndjson"):
            value = [json.loads(line) for line in data.splitlines() if line.strip()]
        else:
            value = json.loads(data)
        self.answers[name] = value
        return value

    async def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, str, bytes]:
        state = self._state
        sent = b"" if body is None else json.dumps(body).encode("utf-8")
        plain, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": plain,
            "raw_path": plain.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [
                (b"host", f"127.0.0.1:{state.port}".encode()),
                (b"cookie", f"{state.cookie}={state.token}".encode()),
                (b"content-type", b"application/json"),
                (b"x-partwise-language", state.language.encode()),
            ],
            "client": None,
            "server": None,
        }
        status, kind, data = 0, "", b""
        given = False

        async def receive() -> dict[str, Any]:
            nonlocal given
            if given:
                # Nobody hangs up here.
                await asyncio.Event().wait()
            given = True
            return {"type": "http.request", "body": sent, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status, kind, data
            if message["type"] == "http.response.start":
                status = message["status"]
                kind = dict(message["headers"]).get(b"content-type", b"").decode()
            else:
                data += message.get("body", b"")

        with use_language(state.language):
            await self._app(scope, receive, send)
        return status, kind, data


def _canonical(value: object) -> str:
    """JSON as the pages name requests by: keys sorted, no spaces, 2.0 as 2."""
    return json.dumps(_numbers(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _numbers(value: Any) -> Any:
    """`value` with its numbers as JavaScript has them, which knows one kind only."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _numbers(inner) for name, inner in value.items()}
    return [_numbers(inner) for inner in value] if isinstance(value, list | tuple) else value


# --- What each instrument asks for first ----------------------------------------------------------


async def _trace(recorder: Recorder, causal: bool | None = None) -> Any:
    return await recorder.post("/api/trace", {"model": "tiny", "text": None, "causal": causal})


async def _pipeline(recorder: Recorder, props: Mapping[str, Any]) -> None:
    trace = await _trace(recorder)
    if trace is not None:
        await _rows(recorder, trace, "logits")
        names = [one["tensor"] for one in trace["pipeline"] if one["tensor"]]
        names += [f"block.{layer}.output" for layer in range(trace["layers"])]
        for name in dict.fromkeys(names):
            await _rows(recorder, trace, name)


async def _rows(recorder: Recorder, trace: Any, name: str) -> None:
    """One row of a tensor for each token, and what may come after each token."""
    for position in range(len(trace["tokens"])):
        address = f"/api/trace/{trace['key']}"
        await recorder.get(f"{address}/tensor?name={name}&row={position}&rows=1&by_token=1")
        await recorder.get(f"{address}/next?position={position}")


async def _explorer(recorder: Recorder, props: Mapping[str, Any]) -> None:
    trace = await _trace(recorder)
    if trace is None:
        return
    address, length = f"/api/trace/{trace['key']}", len(trace["tokens"])
    await _rows(recorder, trace, "logits")
    await recorder.get(f"{address}/stream?")
    for position in range(length):
        await recorder.get(f"{address}/lens?position={position}")
    for first in range(max(1, length - GRID + 1)):
        await recorder.get(f"{address}/grid?first={first}&count={GRID}")
    for name in ("embedding.token", "embedding.position"):
        await recorder.get(f"{address}/tensor?name={name}&by_token=1")
    for layer in range(trace["layers"]):
        await recorder.get(f"{address}/small?layer={layer}")
        await recorder.get(f"{address}/maps?layer={layer}")
        for stage in trace["stages"]:
            name = f"block.{layer}.{stage['tensor']}"
            await recorder.get(f"{address}/tensor?name={name}&by_token=1")
        for head in range(trace["sizes"].get("H", 0)):
            name = f"block.{layer}.attention.weights"
            await recorder.get(f"{address}/tensor?name={name}&head={head}&by_token=1")


async def _heads(recorder: Recorder, props: Mapping[str, Any]) -> None:
    trace = await _trace(recorder)
    if trace is not None:
        for layer in range(trace["layers"]):
            await recorder.get(f"/api/trace/{trace['key']}/maps?layer={layer}")
    await _silences(recorder, props)


async def _mask(recorder: Recorder, props: Mapping[str, Any]) -> None:
    for causal in (None, True, False):
        trace = await _trace(recorder, causal)
        for layer in range(0 if trace is None else trace["layers"]):
            for head in range(trace["sizes"].get("H", 0)):
                name = f"block.{layer}.attention.weights"
                address = f"/api/trace/{trace['key']}/tensor"
                await recorder.get(f"{address}?name={name}&head={head}&by_token=1")


async def _perturb(recorder: Recorder, props: Mapping[str, Any]) -> None:
    """Each token in turn, exchanged for the one that the page proposes."""
    trace = await _trace(recorder)
    tokens = [] if trace is None else trace["tokens"]
    for place, here in enumerate(tokens):
        others = (one for one in tokens if one["id"] != here["id"] and one["text"].strip())
        token = next(others, tokens[0])["id"]
        sent = {"key": trace["key"], "position": place, "token": token}
        await recorder.post("/api/perturb", sent)


async def _silences(recorder: Recorder, props: Mapping[str, Any]) -> None:
    """The loss without each part."""
    found = await recorder.post("/api/parts", {"model": "tiny"})
    for part in [] if found is None else found["parts"]:
        await recorder.post("/api/silence", {"model": "tiny", "parts": [part["id"]]})


async def _share(recorder: Recorder, props: Mapping[str, Any]) -> None:
    await recorder.get("/api/shares?model=tiny")


async def _stacks(recorder: Recorder, props: Mapping[str, Any]) -> None:
    """Every setting of its switches, at the depth that the page begins with."""
    for residual in (True, False):
        for norm in NORMS:
            for initialisation in INITIALISATIONS:
                sent = {"residual": residual, "norm": norm, "initialisation": initialisation}
                await recorder.post("/api/labs/stack", {**sent, "layers": 96})


async def _norms(recorder: Recorder, props: Mapping[str, Any]) -> None:
    for texts in range(1, 5):
        for seed in SEEDS:
            sent = {"texts": texts, "length": 4, "width": 8, "spread": 1, "seed": seed}
            await recorder.post("/api/labs/norms", sent)


async def _edges(recorder: Recorder, props: Mapping[str, Any]) -> None:
    text = str(props.get("text", "First Citizen"))
    sent = {"model": "tiny", "text": text, "layer": 0, "head": 0}
    for rate in (0, 0.1, 0.2, 0.3, 0.4, 0.5):
        for seed in SEEDS:
            await recorder.post("/api/labs/edges", {**sent, "rate": rate, "seed": seed})


async def _races(recorder: Recorder, props: Mapping[str, Any]) -> None:
    for initialisation in ("fan_in", "normal"):
        sent = {"initialisation": initialisation, "layers": 48, "steps": 120}
        await recorder.post("/api/labs/race", sent)


async def _thinned(recorder: Recorder, props: Mapping[str, Any]) -> None:
    sent = {"model": "tiny", "rate": 0.2, "networks": 16, "seed": 1}
    await recorder.post("/api/labs/thinned", sent)


async def _calculator(recorder: Recorder, props: Mapping[str, Any]) -> None:
    asked = ("n_layers", "d_model", "n_heads", "context_length", "vocab_size")
    for one in await recorder.get("/api/presets") or []:
        model = {name: one["model"][name] for name in asked}
        await recorder.post("/api/size", {"preset": one["name"], "model": model})


async def _rungs(recorder: Recorder, props: Mapping[str, Any]) -> None:
    await recorder.get("/api/ladder/rungs")
    recorder.answers["GET /api/ladders"] = {"ladders": []}


async def _translators(recorder: Recorder, props: Mapping[str, Any]) -> None:
    recorder.answers["GET /api/labs/translators"] = []


ASKED = {
    "Alignment": _translators,
    "Calculator": _calculator,
    "DeepStack": _stacks,
    "DropoutEdges": _edges,
    "Explorer": _explorer,
    "Heads": _heads,
    "Knockout": _silences,
    "LadderLive": _rungs,
    "Mask": _mask,
    "Norms": _norms,
    "Perturb": _perturb,
    "Pipeline": _pipeline,
    "Race": _races,
    "Share": _share,
    "Subnetworks": _thinned,
}
