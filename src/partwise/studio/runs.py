"""The folder of runs: what each one is, its curves, its samples, and in what several differ."""

import dataclasses
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partwise.errors import RunError
from partwise.run import Run, RunSummary, compare, list_runs, summarise
from partwise.settings import plain
from partwise.storage import safe_name
from partwise.studio.answers import Json
from partwise.studio.state import State
from partwise.studio.tails import Tail, thinned

# Characters of a sample that a page is sent, and samples.
SAMPLE = 20_000
SAMPLES = 200


def routes(state: State) -> list[BaseRoute]:
    """`GET /api/runs` and what hangs on it."""

    def known(request: Request) -> Response:
        return Json({"runs": [_told(one) for one in reversed(list_runs(state.root))]})

    def side_by_side(request: Request) -> Response:
        names = [name for name in request.query_params.get("names", "").split(",") if name]
        found = compare([_folder(state, name) for name in names])
        rows = [{"name": row.name, "values": list(row.values)} for row in found]
        return Json({"runs": names, "differences": rows})

    def one(request: Request) -> Response:
        run = Run.open(_folder(state, request.path_params["name"]))
        record = run.record
        return Json(
            {
                **_told(summarise(run.path)),
                "about": dataclasses.asdict(record.text),
                "settings": {
                    part: plain(getattr(record, part)) for part in ("model", "train", "data")
                },
                "machine": dict(record.machine),
                "versions": dict(record.versions),
                "ancestor": None if record.ancestor is None else vars(record.ancestor),
            }
        )

    def metrics(request: Request) -> Response:
        tail = Tail(_folder(state, request.path_params["name"]) / "metrics.jsonl").more()
        return Json({"lines": thinned([] if tail is None else tail["lines"])})

    def samples(request: Request) -> Response:
        folder = _folder(state, request.path_params["name"]) / "samples"
        found = []
        for path in sorted(folder.glob("*.txt"))[-SAMPLES:]:
            text = path.read_text(encoding="utf-8", errors="replace")
            found.append({"name": path.stem, "text": text[:SAMPLE]})
        return Json({"samples": found})

    return [
        Route("/api/runs", known),
        Route("/api/compare", side_by_side),
        Route("/api/runs/{name}", one),
        Route("/api/runs/{name}/metrics", metrics),
        Route("/api/runs/{name}/samples", samples),
    ]


def _folder(state: State, name: str) -> Path:
    """The folder of a run by its plain name.

    Raises:
        RunError: there is none.
        ConfigError: that is no name of a run.
    """
    path = state.root / safe_name(name)
    if not path.is_dir():
        raise RunError("there is no model {name}", name=name)
    return path


def _told(summary: RunSummary) -> dict[str, Any]:
    return {
        **{one.name: getattr(summary, one.name) for one in dataclasses.fields(summary)},
        "path": str(summary.path),
        "problem": None if summary.problem is None else str(summary.problem),
    }
