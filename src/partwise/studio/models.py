"""Models to look into: the tiny one, and every run of the folder, by an id that a page can send."""

import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partwise.course.tiny import TINY, tiny_folder, tiny_ready
from partwise.errors import PartwiseError, RunError
from partwise.messages import message
from partwise.model.config import ModelConfig
from partwise.model.parameters import count_parameters
from partwise.settings import build
from partwise.storage import read_json, safe_name
from partwise.studio.answers import Json
from partwise.studio.state import State
from partwise.training.listeners import read_metrics

if TYPE_CHECKING:
    from partwise.model.gpt import GPT
    from partwise.text.tokenizers import Tokenizer

RUN = "run:"


def routes(state: State) -> list[BaseRoute]:
    """`GET /api/models`."""
    models = Models(state)

    def known(request: Request) -> Response:
        return Json(models.known())

    return [Route("/api/models", known)]


class Models:
    """Finds and loads models by their ids: "tiny" and "run:NAME".

    Args:
        state: of the studio; what is loaded is kept there, for all areas together.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def folder(self, id: str) -> Path:
        """The run folder of a model.

        Raises:
            RunError: there is no such model.
        """
        if id == "tiny":
            return tiny_folder().absolute()
        name = id.removeprefix(RUN)
        with suppress(PartwiseError):
            # Only a folder's plain name: whatever else a page sends leads nowhere.
            if id.startswith(RUN) and safe_name(name) == name:
                path = self._state.root / name
                if (path / "run.toml").is_file():
                    return path.absolute()
        raise RunError("there is no model {name}", name=name)

    def load(self, id: str) -> "tuple[GPT, Tokenizer]":
        """A model with its best weights, ready to write, on the CPU; and its tokenizer.

        It is kept, and loaded anew once the run has a better checkpoint.

        Raises:
            RunError: there is no such model, or it has no checkpoint yet.
        """
        folder = self.folder(id)
        if id == "tiny" and not tiny_ready():
            raise RunError("the tiny model is not trained yet; that takes some seconds")
        from partwise.run import Run

        mark = (str(folder), *(_step(folder, name) for name in ("best", "last")))
        with self._state.loading:
            found: tuple[GPT, Tokenizer] | None = self._state.loaded.get(mark)
            if found is None:
                run = Run.open(folder)
                found = self._state.loaded.put(mark, (run.model(), run.tokenizer()))
            return found

    def known(self) -> list[dict[str, Any]]:
        """Every model, the tiny one first, then runs, the newest first; torch is not needed."""
        tiny = {**_shape(TINY), "val_loss": None, "tokenizer": "char"}
        with suppress(PartwiseError, OSError):
            tiny |= _glance(tiny_folder())
        found = [{"id": "tiny", "name": message("tiny model"), **tiny, "ready": tiny_ready()}]
        runs = []
        with suppress(OSError):
            for path in self._state.root.iterdir():
                if path.name.startswith(".") or not (path / "run.toml").is_file():
                    continue
                with suppress(PartwiseError, OSError, KeyError, TypeError, ValueError):
                    runs.append({"id": RUN + path.name, "name": path.name, **_glance(path)})
        runs.sort(key=lambda one: str(one["created"]), reverse=True)
        return found + runs


def _glance(folder: Path) -> dict[str, Any]:
    """What a run's files say of its model, read without torch."""
    tables = tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))
    if tables["kind"] != "partwise.run":
        raise RunError("there is no model {name}", name=folder.name)
    last: dict[str, Any] = {}
    for line in read_metrics(folder / "metrics.jsonl"):
        last = line if line.get("best_val_loss") is not None else last
    return {
        **_shape(build(ModelConfig, tables["model"])),
        "val_loss": last.get("best_val_loss"),
        "tokenizer": tables["text"]["tokenizer"],
        "text": tables["text"]["name"],
        "created": str(tables["created"]),
        "ready": _step(folder, "last") is not None,
    }


def _shape(model: ModelConfig) -> dict[str, Any]:
    return {
        "layers": model.n_layers,
        "heads": model.n_heads,
        "d_model": model.d_model,
        "context_length": model.context_length,
        "vocab_size": model.vocab_size,
        "parameters": count_parameters(model),
    }


def _step(folder: Path, pointer: str) -> int | None:
    try:
        _, value = read_json(folder / "checkpoints" / f"{pointer}.json", kind="pointer", newest=1)
        return int(value["step"])
    except (PartwiseError, KeyError, TypeError):
        return None
