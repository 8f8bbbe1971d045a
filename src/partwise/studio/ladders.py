"""The ladder: its rungs and what each adds, the ladders in the folder, and their tables."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partwise.errors import PartwiseError, RunError
from partwise.ladder.parts import label
from partwise.ladder.rungs import Change, changes, definition, published, rungs, written
from partwise.ladder.table import read_table
from partwise.messages import Notice, message
from partwise.model.config import ModelConfig
from partwise.settings import options, plain
from partwise.storage import safe_name
from partwise.studio.answers import Json, body
from partwise.studio.foresight import Foresight
from partwise.studio.state import State
from partwise.training.config import TrainConfig

CORPUS = "tinyshakespeare"

# What a rung is called on a page.
NAMES = {
    "head": Notice("one head"),
    "heads": Notice("several heads"),
    "feedforward": Notice("feed-forward layer"),
    "residual": Notice("residual connections"),
    "layernorm": Notice("layer normalisation"),
    "scaled": Notice("scaled up"),
}


def routes(state: State) -> list[BaseRoute]:
    """`GET /api/ladder/rungs`, `POST /api/ladder/estimate`, `GET /api/ladders`, `GET
    /api/ladders/{name}`."""
    foresight = Foresight(state)

    def steps(request: Request) -> Response:
        found, below = [], None
        for here in rungs():
            entry: dict[str, Any] = {
                "rung": here.number,
                "id": here.name,
                "name": str(NAMES[here.name]),
                "adds": str(here.adds),
                "published": published(here.number, CORPUS),
                "model": plain(here.model),
                "train": plain(here.train),
            }
            if below is None:
                entry["definition"] = dict(definition(here))
            else:
                entry["changes"] = [
                    {**vars(change), "text": told_of(change)} for change in changes(below, here)
                ]
            found.append(entry)
            below = here
        return Json({"rungs": found})

    async def estimate(request: Request) -> Response:
        return Json(await run_in_threadpool(foresight.told, await body(request)))

    def known(request: Request) -> Response:
        found = []
        with suppress(OSError):
            for path in sorted(state.ladders.iterdir()):
                if (path / "runs").is_dir() and not path.name.startswith("."):
                    runs = sorted(one.parent.name for one in path.glob("runs/*/run.toml"))
                    whole = (path / "ladder.json").is_file()
                    found.append({"name": path.name, "runs": runs, "table": whole})
        return Json({"ladders": found})

    def one(request: Request) -> Response:
        folder = state.ladders / safe_name(request.path_params["name"])
        if not (folder / "runs").is_dir():
            raise RunError("there is no ladder {name}", name=folder.name)
        told: dict[str, Any] = {"name": folder.name, "table": None}
        told["runs"] = sorted(path.parent.name for path in folder.glob("runs/*/run.toml"))
        with suppress(PartwiseError):
            table = read_table(folder / "ladder.json").to_dict()
            told["table"] = table
            told["labels"] = {one["part"]: str(label(one["part"])) for one in table["knock_outs"]}
        return Json(told)

    return [
        Route("/api/ladder/rungs", steps),
        Route("/api/ladder/estimate", estimate, methods=["POST"]),
        Route("/api/ladders", known),
        Route("/api/ladders/{name}", one),
    ]


def told_of(change: Change) -> str:
    """A field that differs from the rung below, in the reader's words."""
    fields: Mapping[str, type[Any]] = {"model": ModelConfig, "train": TrainConfig}
    return message(
        "{what} ({field}): {before} → {after}",
        what=message(options(fields[change.config])[change.field].help),
        field=change.field,
        before=_value(change.before),
        after=_value(change.after),
    )


def _value(value: object) -> str:
    if value is True:
        return message("on")
    if value is False:
        return message("off")
    return message("without") if value in (None, "none") else written(value)
