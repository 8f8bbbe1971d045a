"""The labs' addresses: each experiment of `studio/lab` by its name."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args

import torch
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from partwise.errors import PartwiseError, RunError, UsageError
from partwise.ladder.deep import STACK_NORMS, to_plain
from partwise.model.config import Initialisation
from partwise.model.trace import trace
from partwise.run import Run
from partwise.run.listing import list_runs
from partwise.studio.answers import Json, body, field, written
from partwise.studio.lab import deep, dropout, norms
from partwise.studio.lab.limits import within
from partwise.studio.models import Models
from partwise.studio.reading import read_text
from partwise.studio.recent import Recent
from partwise.studio.state import State
from partwise.text.prepare import Prepared
from partwise.training.events import Stepped

Choice = TypeVar("Choice", bound=str)

# The lines of an answer that comes as its experiment goes on.
Lines: TypeAlias = Generator[dict[str, Any], None, None]

INITIALISATIONS: tuple[Initialisation, ...] = get_args(Initialisation)

# Tokens of a text whose edges are drawn.
MOST_EDGES = 24

# Pieces that thinned networks are measured on.
PIECES, PIECE = 16, 64

# Prepared texts that are kept open.
TEXTS = 8


def routes(state: State) -> list[BaseRoute]:
    """`/api/labs/{name}`; `race` and `thinned` answer line by line as they go."""
    labs = Labs(state)
    answers: dict[str, Callable[[dict[str, Any]], Any]] = {
        "stack": labs.stack,
        "norms": labs.norms,
        "edges": labs.edges,
        "alignment": labs.alignment,
    }
    flows: dict[str, Callable[[dict[str, Any]], Lines]] = {
        "race": labs.race,
        "thinned": labs.thinned,
    }

    async def experiment(request: Request) -> Response:
        name = request.path_params["name"]
        sent = await body(request)
        if name in flows:
            # Whatever is wrong with what was sent is found before the answer begins.
            lines = flows[name](sent)
            first = await run_in_threadpool(next, lines, None)
            return Flow(first, lines)
        if name not in answers:
            raise UsageError("there is no lab {name!r}", name=name)
        return Json(await run_in_threadpool(answers[name], sent))

    def translators(request: Request) -> Response:
        return Json(labs.translators())

    return [
        Route("/api/labs/translators", translators),
        Route("/api/labs/{name}", experiment, methods=["POST"]),
    ]


class Labs:
    """The experiments, on the models and texts of one studio.

    Args:
        state: of the studio.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._models = Models(state)
        # Two races at once would only slow each other down.
        self._lane = threading.Lock()
        # Draws are torch's own, which all threads share.
        self._draws = threading.Lock()
        # A run that is deleted and made anew under its name was created at another time.
        self._texts: Recent[tuple[Path, str], Prepared] = Recent(TEXTS)

    def stack(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Gradient, likeness of tokens and what blocks add, by layer, before any training."""
        start = time.perf_counter()
        found = deep.stack(
            field(sent, "residual", bool),
            one_of(sent, "norm", STACK_NORMS),
            one_of(sent, "initialisation", INITIALISATIONS),
            field(sent, "layers", int, 96),
            self._text(),
        )
        return {**to_plain(found), "seconds": time.perf_counter() - start}

    def race(self, sent: dict[str, Any]) -> Lines:
        """Pre-norm and post-norm side by side: a line every fifth step of each, and the end."""
        initialisation = one_of(sent, "initialisation", INITIALISATIONS)
        layers = field(sent, "layers", int, 48)
        steps = field(sent, "steps", int, 120)
        text = self._text()
        if not self._lane.acquire(blocking=False):
            raise UsageError("another race is being run; stop it, or wait for its end")
        try:
            for norm, event in deep.race(initialisation, layers, steps, text):
                if isinstance(event, Stepped):
                    yield {"norm": norm, "step": event.step, "loss": event.loss}
                else:
                    yield {"norm": norm, "val_loss": event.val_loss, "seconds": event.seconds}
        finally:
            self._lane.release()

    def norms(self, sent: dict[str, Any]) -> dict[str, Any]:
        """One batch of made-up tokens and what three norms make of it."""
        length = field(sent, "length", int, 4)
        x = norms.tokens(
            field(sent, "texts", int, 2),
            length,
            field(sent, "width", int, 8),
            field(sent, "spread", float, 1.0),
            field(sent, "seed", int, 1),
        )
        return {
            "input": x.tolist(),
            "norms": [one.to_plain() for one in norms.normalise(x, alone=length)],
        }

    def edges(self, sent: dict[str, Any]) -> dict[str, Any]:
        """One head's attention weights, and what training sees of them."""
        model, tokenizer = self._models.load(field(sent, "model", str))
        config = model.config
        layer, head = field(sent, "layer", int, 0), field(sent, "head", int, 0)
        if not config.attention:
            raise UsageError("this model has no attention; choose another")
        within("layer", layer, 0, config.n_layers - 1)
        within("head", head, 0, config.n_heads - 1)
        rate = field(sent, "rate", float, 0.2)
        if not 0 <= rate < 1:
            raise UsageError(
                "dropout={rate} drops nothing or everything; give 0.05 to 0.9", rate=rate
            )
        most = min(MOST_EDGES, config.context_length)
        reading = read_text(
            field(sent, "text", str), tokenizer, vocab_size=config.vocab_size, most=most
        )
        seen = trace(model, torch.tensor([reading.ids]))
        weights = seen[f"block.{layer}.attention.weights"][0, head].float()  # (T, T)
        with self._draws:
            dropped = dropout.edges(weights, rate, field(sent, "seed", int, 1))
        return {
            "tokens": [one.as_dict() for one in reading.labels],
            "notices": [str(notice) for notice in reading.notices],
            "weights": weights.tolist(),
            "dropped": dropped.tolist(),
            "layers": config.n_layers,
            "heads": config.n_heads,
        }

    def thinned(self, sent: dict[str, Any]) -> Lines:
        """Thinned networks one by one and their mean; first the whole network's loss."""
        id = field(sent, "model", str)
        model, _ = self._models.load(id)
        text = self._text(id)
        length = min(PIECE, model.config.context_length)
        ids = deep.pieces(text, PIECES, length, validation=True)
        lines = dropout.thinned(
            model,
            ids,
            field(sent, "rate", float, 0.2),
            field(sent, "networks", int, 16),
            field(sent, "seed", int, 1),
        )
        # The first network before anything is said, so that what makes no sense is refused whole.
        with self._draws:
            line = next(lines, None)
        yield {"whole": dropout.whole(model, ids), "tokens": ids[:, 1:].numel()}
        while line is not None:
            yield vars(line)
            with self._draws:
                line = next(lines, None)

    def translators(self) -> list[dict[str, Any]]:
        """The translators among the runs that have learned something."""
        return [
            {"name": run.name, "text": run.text, "parameters": run.parameters}
            for run in list_runs(self._state.root)
            if run.kind == "translation"
            and run.problem is None
            and (run.path / "checkpoints" / "last.json").is_file()
        ]

    def alignment(self, sent: dict[str, Any]) -> dict[str, Any]:
        """A translation, and where its decoder looked."""
        from partwise.translation.folder import Translation
        from partwise.translation.looking import look

        name = field(sent, "run", str)
        if name not in {run["name"] for run in self.translators()}:
            raise RunError("there is no translator {name!r} among the runs", name=name)
        seen = look(
            Translation.open(self._state.root / name),
            field(sent, "text", str),
            layer=field(sent, "layer", int, None),
            head=field(sent, "head", int, None),
        )
        return vars(seen)

    def _text(self, id: str = "tiny") -> Prepared:
        """The text that a model learned.

        Raises:
            RunError: it is gone, or is no longer the one that the model learned.
        """
        run = Run.open(self._models.folder(id))
        key = run.path, run.record.created
        known = self._texts.get(key)
        if known is None:
            known = run.reopen_text(cache=self._state.cache, offline=True)
            self._texts.put(key, known)
        return known


class Flow(StreamingResponse):
    """An answer line by line, which ends its experiment when its reader has gone.

    Args:
        first: the first line, if there is any.
        rest: all others.
    """

    def __init__(self, first: dict[str, Any] | None, rest: Lines) -> None:
        super().__init__(_written(first, rest), media_type="application/x-ndjson")
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and leave nothing behind."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            # A step may still be under way in its thread: whoever waits for it is not this task.
            threading.Thread(target=_end, args=(self._rest,), daemon=True).start()


def _end(lines: Lines) -> None:
    """Close a generator as soon as it stands still."""
    while True:
        try:
            lines.close()
        except ValueError:
            time.sleep(0.02)
        else:
            return


def one_of(sent: dict[str, Any], name: str, choices: Sequence[Choice]) -> Choice:
    """One field of what was sent, which must be one of `choices`.

    Raises:
        UsageError: it is none of them.
    """
    value = field(sent, name, str)
    for choice in choices:
        if value == choice:
            return choice
    raise UsageError(
        "{name}={value} is none of {choices}", name=name, value=value, choices=", ".join(choices)
    )


def _written(first: dict[str, Any] | None, rest: Lines) -> Iterator[str]:
    """Each answer as a line of JSON; a mistake on the way is the last line."""
    try:
        if first is not None:
            yield _line(first)
        for one in rest:
            yield _line(one)
    except PartwiseError as error:
        yield _line({"error": {"message": str(error)}})


def _line(value: dict[str, Any]) -> str:
    return written(value) + "\n"
