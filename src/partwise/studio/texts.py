"""Texts that a learner brings along, kept in the user's data folder."""

import re
import unicodedata
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partwise.errors import TextError, UsageError
from partwise.storage import cleaned, safe_name, write_atomic
from partwise.studio.answers import Json, body, field
from partwise.studio.state import State

# Bytes of a text, and texts.
MOST = 32 << 20
TEXTS = 200

# A text has next to none of what stands for undecodable bytes, and of control characters.
STRANGE = 0.001

CORPORA = ("shakespeare", "tinyshakespeare")
UPLOAD = "upload:"


def routes(state: State) -> list[BaseRoute]:
    """`GET` and `POST /api/texts`."""
    folder = state.data / "texts"

    def known(request: Request) -> Response:
        return Json({"corpora": list(CORPORA), "texts": texts(folder)})

    async def take(request: Request) -> Response:
        sent = await body(request)
        name, text = field(sent, "name", str), field(sent, "text", str)
        return Json(await run_in_threadpool(keep, folder, name, text))

    return [
        Route("/api/texts", known, methods=["GET"]),
        Route("/api/texts", take, methods=["POST"]),
    ]


def texts(folder: Path) -> list[dict[str, Any]]:
    """The texts that are kept, by name."""
    if not folder.is_dir():
        return []
    found = sorted(path for path in folder.glob("*.txt") if path.is_file())
    return [
        {"id": UPLOAD + path.stem, "name": path.stem, "bytes": path.stat().st_size}
        for path in found
    ]


def keep(folder: Path, name: str, text: str) -> dict[str, Any]:
    """Keep a text.

    Returns:
        Its id, name, and how many bytes, characters, and different characters it has.

    Raises:
        TextError: it is no text, empty, or too large.
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError("{name} is not a text: it has half characters in it", name=name) from error
    if len(data) > MOST:
        raise TextError(
            "{name} has {size} MB and {most} MB is the most here; train on it from the command "
            "line: partwise train FILE",
            name=name,
            size=f"{len(data) / 2**20:.0f}",
            most=MOST >> 20,
        )
    if not text.strip():
        raise TextError("{name} is empty; there is nothing to learn from it", name=name)
    strange = text.count("\ufffd") + len(re.findall(r"[\x00-\x08\x0e-\x1f\x7f]", text))
    if "\x00" in text or strange > STRANGE * len(text):
        raise TextError(
            "{name} is not a text, or not in UTF-8; save it as plain text in UTF-8", name=name
        )
    stem = cleaned(re.sub(r"\.(txt|text|md)$", "", unicodedata.normalize("NFC", name)))[:60]
    path = _place(folder, safe_name(cleaned(stem)), data)
    if not path.exists():
        if len(texts(folder)) >= TEXTS:
            raise TextError(
                "there are {most} texts already; delete some in {folder}", most=TEXTS, folder=folder
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    return {
        "id": UPLOAD + path.stem,
        "name": path.stem,
        "bytes": len(data),
        "characters": len(text),
        "distinct": len(set(text)),
    }


def spec_of(folder: Path, id: str) -> str:
    """What `partwise train` is given for a text: a corpus's name, or a kept text's file.

    Raises:
        UsageError: there is no such text.
    """
    if id in CORPORA:
        return id
    for one in texts(folder):
        if one["id"] == id:
            return str((folder / f"{one['name']}.txt").absolute())
    raise UsageError("there is no text {name!r}", name=id)


def _place(folder: Path, stem: str, data: bytes) -> Path:
    """Where a text of that name goes: beside another one of the same name, if it is another."""
    path, number = folder / f"{stem}.txt", 2
    while path.exists() and path.read_bytes() != data:
        path, number = folder / f"{stem}-{number}.txt", number + 1
    return path
