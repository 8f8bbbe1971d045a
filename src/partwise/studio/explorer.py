"""The explorer's addresses: read a text once, then send what is on the screen."""

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partwise.errors import RunError, TextError, UsageError
from partwise.ladder.knockout import parts
from partwise.ladder.parts import label as part_label
from partwise.model.gpt import GPT
from partwise.model.presets import preset
from partwise.run import Run
from partwise.sampling.config import SampleConfig
from partwise.sampling.generate import complete
from partwise.studio import diagram, interventions, lens, shares, tensors
from partwise.studio.answers import Json, body, field
from partwise.studio.interventions import Measure, measure_on, measure_typed
from partwise.studio.models import Models
from partwise.studio.reading import label, read_text
from partwise.studio.state import State
from partwise.studio.traces import Traced, Traces, twin
from partwise.text.tokenizers import Tokenizer

Number = TypeVar("Number", int, None)

BINARY = "application/octet-stream"

LINE = "To be, or not to be: that is the question"

# Models beside which one's own is shown: those that the lessons speak of.
PRESETS = (
    ("gpt2", "GPT-2 small"),
    ("gpt2-xl", "GPT-2 XL"),
    ("gpt3-175b", "GPT-3 175B"),
    ("llama-7b", "LLaMA 7B"),
    ("llama-65b", "LLaMA 65B"),
    ("llama2-70b", "Llama 2 70B"),
)


def routes(state: State) -> list[BaseRoute]:
    """`/api/trace` and what hangs on a trace, `/api/perturb`, `/api/parts`, `/api/silence`,
    `/api/shares`."""
    explorer = Explorer(state)
    views: dict[str, Callable[[Traced, Mapping[str, str]], Response]] = {
        "tensor": tensor,
        "maps": maps,
        "stream": stream,
        "small": small,
        "lens": lens_at,
        "grid": grid,
        "next": next_at,
    }

    async def look(request: Request) -> Response:
        view = views.get(request.path_params["view"])
        if view is None:
            raise UsageError("a trace has no view {name!r}", name=request.path_params["view"])
        traced = explorer.traces.get(request.path_params["key"])
        return await run_in_threadpool(view, traced, request.query_params)

    def posted(work: Callable[[dict[str, Any]], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            sent = await body(request)
            return Json(await run_in_threadpool(work, sent))

        return answer

    def known(request: Request) -> Response:
        return Json(explorer.shares(request.query_params.get("model")))

    return [
        Route("/api/trace", posted(explorer.trace), methods=["POST"]),
        Route("/api/trace/{key}/{view}", look),
        Route("/api/perturb", posted(explorer.perturb), methods=["POST"]),
        Route("/api/parts", posted(explorer.parts), methods=["POST"]),
        Route("/api/silence", posted(explorer.silence), methods=["POST"]),
        Route("/api/shares", known),
    ]


class Explorer:
    """What the explorer keeps between requests: traces, and what losses are measured on.

    Args:
        state: of the studio.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._models = Models(state)
        self.traces = Traces()
        # Measuring changes its model for a moment, so one loss is measured at a time.
        self._lock = threading.Lock()
        self._measured: tuple[GPT, str | None, Measure] | None = None

    def trace(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Read a text: everything that the page needs to draw, and the key of the rest."""
        model, tokenizer = self._models.load(field(sent, "model", str))
        text = field(sent, "text", str, None)
        if text is None:
            text = some_text(model, tokenizer)
        traced, kept = self.traces.trace(model, tokenizer, text, field(sent, "causal", bool, None))
        config = traced.config
        return {
            "key": traced.key,
            "kept": kept,
            "text": text,
            "seconds": traced.seconds,
            "notices": [str(notice) for notice in traced.reading.notices],
            "tokens": [one.as_dict() for one in traced.labels],
            "surprise": lens.surprise(traced),
            "layers": config.n_layers,
            "sizes": diagram.sizes(config, len(traced.ids)),
            "stages": [stage.as_dict() for stage in diagram.block_stages(config)],
            "pipeline": diagram.pipeline(config),
            "embedding": diagram.embedding_formula(config),
            "position": config.position,
            "causal": config.causal,
            "masked": model.config.causal,
            "window": config.window,
            "scored": traced.scored,
            "unit": tokenizer.unit,
            "bytes": traced.bytes,
        }

    def perturb(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Exchange one token of a traced text; `token` by its number, or `text` that begins with
        it."""
        traced = self.traces.get(field(sent, "key", str))
        token = field(sent, "token", int, None)
        if token is None:
            token = first_token(traced.tokenizer, field(sent, "text", str))
        found = interventions.perturb(traced, field(sent, "position", int), token)
        return {
            "position": found.position,
            "before": label(traced.tokenizer, found.before).as_dict(),
            "after": label(traced.tokenizer, found.after).as_dict(),
            "stream": found.stream.tolist(),
            "output": found.output.tolist(),
            "attention": None if found.attention is None else found.attention.tolist(),
            "feedforward": None if found.feedforward is None else found.feedforward.tolist(),
            "leaks": found.leaks,
        }

    def parts(self, sent: dict[str, Any]) -> dict[str, Any]:
        """What of a model can be silenced, its whole loss, and what ladders say."""
        measure = self._measure(sent)
        with self._lock:
            loss = measure.loss()
        return {
            "loss": loss,
            "tokens": measure.tokens,
            "text": measure.name,
            "parts": [_part(name) for name in parts(measure.model)],
            "without": interventions.trained_without(self._state.ladders),
        }

    def silence(self, sent: dict[str, Any]) -> dict[str, Any]:
        """The loss with some parts silent at once."""
        silent = field(sent, "parts", list)
        if not all(isinstance(one, str) for one in silent):
            raise UsageError(
                "the request needs {name} of the type {kind}", name="parts", kind="str"
            )
        measure = self._measure(sent)
        with self._lock:
            return {"parts": silent, "loss": measure.loss(silent)}

    def shares(self, model: str | None) -> list[dict[str, Any]]:
        """Exact parameter counts of well-known models, the reader's own first."""
        found = []
        if model:
            found.append(shares.share(self._models.load(model)[0].config, model, ""))
        return found + [shares.share(preset(id), id, name) for id, name in PRESETS]

    def _measure(self, sent: dict[str, Any]) -> Measure:
        id, typed = field(sent, "model", str), field(sent, "text", str, None)
        model, tokenizer = self._models.load(id)
        with self._lock:
            if self._measured is not None:
                known, text, measure = self._measured
                if known is model and text == typed:
                    return measure
            measure = self._new_measure(id, model, tokenizer, typed)
            self._measured = (model, typed, measure)
            return measure

    def _new_measure(self, id: str, model: GPT, tokenizer: Tokenizer, typed: str | None) -> Measure:
        own = twin(model)
        if typed is not None:
            read = read_text(
                typed,
                tokenizer,
                vocab_size=model.config.vocab_size,
                most=interventions.measured_tokens(model.config),
            )
            return measure_typed(own, read.ids, "")
        run = Run.open(self._models.folder(id))
        if run.record.imported:
            raise TextError(
                "{model} was imported and has no validation text of its own; type one to measure",
                model=run.name,
            )
        try:
            prepared = run.reopen_text(cache=self._state.cache, offline=True)
        except RunError as gone:
            # A reader can type another one to measure on.
            raise TextError("{reason}", reason=gone) from gone
        return measure_on(own, prepared.validation, run.record.text.name)


def tensor(traced: Traced, query: Mapping[str, str]) -> Response:
    """A window of one matrix, with the figures of the whole."""
    name, head = query.get("name", ""), whole(query, "head", 0)
    values = tensors.find(traced, name, head)
    figures = traced.figures.get_or((name, head), lambda: tensors.statistics(values))
    header: dict[str, Any] = {"name": name, "statistics": figures}
    if "by_token" in query:
        header["by_token"] = tensors.by_token(values)
    window = tensors.Window(
        whole(query, "row", 0),
        whole(query, "rows", None),
        whole(query, "column", 0),
        whole(query, "columns", None),
    )
    return Response(tensors.pack(values, header, window), media_type=BINARY)


def maps(traced: Traced, query: Mapping[str, str]) -> Response:
    """The attention weights of all heads of a layer, small."""
    layer, most = whole(query, "layer", 0), whole(query, "most", 64)
    small = tensors.maps(traced, layer, max(1, most))
    return Response(tensors.pack(small, {"tokens": len(traced.ids)}), media_type=BINARY)


def small(traced: Traced, query: Mapping[str, str]) -> Response:
    """What each stage of a block gives, in small, in the order of its stages."""
    layer = whole(query, "layer", 0)
    found, tops = [], []
    for stage in diagram.block_stages(traced.config):
        values = tensors.find(traced, f"block.{layer}.{stage.as_dict()['tensor']}")
        found.append(tensors.thumbnail(values))
        tops.append(tensors.statistics(found[-1])["p99"])
    return Response(tensors.pack(torch.stack(found), {"p99": tops}), media_type=BINARY)


def stream(traced: Traced, query: Mapping[str, str]) -> Response:
    """How long each token's vector is at every point."""
    names, norms = tensors.stream(traced)
    return Response(tensors.pack(norms, {"names": names}), media_type=BINARY)


def lens_at(traced: Traced, query: Mapping[str, str]) -> Response:
    """What each layer would have the model say after one token."""
    return Json(lens.lens(traced, whole(query, "position", len(traced.ids) - 1)))


def grid(traced: Traced, query: Mapping[str, str]) -> Response:
    """The likeliest token of each layer after each of several tokens."""
    return Json(lens.lens_grid(traced, whole(query, "first", 0), whole(query, "count", 16)))


def next_at(traced: Traced, query: Mapping[str, str]) -> Response:
    """The likeliest tokens after one, with their logits."""
    return Json(lens.next_tokens(traced, whole(query, "position", len(traced.ids) - 1)))


def some_text(model: GPT, tokenizer: Tokenizer) -> str:
    """A text to begin with: a line that everybody knows, else what the model itself would write."""
    known = tokenizer.encode(LINE, unknown="skip")
    if tokenizer.decode(known) == LINE:
        return LINE
    return complete(model, tokenizer, "", SampleConfig(chars=len(LINE), temperature=0.7))[0]


def first_token(tokenizer: Tokenizer, text: str) -> int:
    """The token that a text begins with.

    Raises:
        TextError: the text has none.
    """
    ids = tokenizer.encode(text)
    if not len(ids):
        raise TextError("type the text that shall stand there instead")
    return int(ids[0])


def whole(query: Mapping[str, str], name: str, default: Number) -> int | Number:
    """A whole number of a request's address.

    Raises:
        UsageError: it is none.
    """
    text = query.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"-?\d{1,9}", text, re.ASCII):
        raise UsageError("{name}={text!r} is not a whole number", name=name, text=text)
    return int(text)


def _part(name: str) -> dict[str, Any]:
    """A part with its name for a reader, and where it stands."""
    words = name.split(".")
    kind = "head" if words[-2:-1] == ["head"] else words[-1]
    return {
        "id": name,
        "label": part_label(name),
        "kind": kind,
        "layer": int(words[1]) if words[0] == "block" else None,
        "head": int(words[-1]) if kind == "head" else None,
    }
