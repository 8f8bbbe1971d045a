"""The ladder: its rungs and what each adds, the ladders in the folder, and their tables."""

from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partwise.errors import PartwiseError, RunError
from partwise.ladder.parts import label
from partwise.ladder.rungs import changes, definition, published, rungs
from partwise.ladder.table import read_table
from partwise.settings import plain
from partwise.storage import safe_name
from partwise.studio.answers import Json
from partwise.studio.state import State

CORPUS = "tinyshakespeare"


def routes(state: State) -> list[BaseRoute]:
    """`GET /api/ladder/rungs`, `GET /api/ladders`, `GET /api/ladders/{name}`."""

    def steps(request: Request) -> Response:
        found, below = [], None
        for here in rungs():
            entry: dict[str, Any] = {
                "rung": here.number,
                "name": here.name,
                "adds": str(here.adds),
                "published": published(here.number, CORPUS),
                "model": plain(here.model),
                "train": plain(here.train),
            }
            if below is None:
                entry["definition"] = dict(definition(here))
            else:
                entry["changes"] = [
                    {**vars(change), "text": str(change)} for change in changes(below, here)
                ]
            found.append(entry)
            below = here
        return Json({"rungs": found})

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
        Route("/api/ladders", known),
        Route("/api/ladders/{name}", one),
    ]
