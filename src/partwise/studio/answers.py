"""How the areas read a request and answer it: JSON in, JSON out, a mistake as one line."""

import errno
import json
import logging
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from partwise.errors import PartwiseError, StorageError, UsageError
from partwise.messages import message
from partwise.storage.faults import writing

# Bytes that take long enough to read for others to notice.
LARGE = 1 << 20

# A full disk, and what may not be written to.
REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)

# Lists and objects in each other; what no page sends would be too deep for an answer to repeat.
DEEPEST = 50


class Json(JSONResponse):
    """JSON without escapes; what JSON has no word for, such as NaN, is null."""

    def render(self, content: Any) -> bytes:
        return written(content).encode("utf-8")


def written(value: Any) -> str:
    """`value` as JSON; what JSON has no word for is null, and half a character is its escape."""
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def finite(value: Any) -> Any:
    """`value` with None for NaN and infinities, wherever in it they stand."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


async def body(request: Request) -> dict[str, Any]:
    """The JSON object that was sent.

    Raises:
        UsageError: it is none.
    """
    data = await request.body()
    # A whole book is read beside the loop, which has others to answer.
    return read(data) if len(data) < LARGE else await run_in_threadpool(read, data)


def read(data: bytes | str) -> dict[str, Any]:
    """The JSON object that `data` is.

    Raises:
        UsageError: it is none, or nested deeper than any page sends.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError("the request is not JSON") from error
    if not isinstance(value, dict):
        raise UsageError("the request is not a JSON object")
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return value
    raise UsageError("the request is nested more than {most} deep", most=DEEPEST)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def field(sent: Mapping[str, Any], name: str, kind: type, default: Any = ...) -> Any:
    """One field of what was sent, held to its type.

    Raises:
        UsageError: it is missing and has no default, or has another type.
    """
    value = sent.get(name)
    if value is None and default is not ...:
        return default
    # A bool is an int to Python and not to anybody else; a whole number is a number.
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is float and type(value) is int and abs(value) <= sys.float_info.max:
        return float(value)
    if not right:
        raise UsageError(
            "the request needs {name} of the type {kind}", name=name, kind=kind.__name__
        )
    return value


def mistake(request: Request, error: Exception) -> Response:
    """A PartwiseError as an answer."""
    assert isinstance(error, PartwiseError)
    kind = type(error).__name__.removesuffix("Error").lower()
    return Json({"error": {"kind": kind, "message": str(error)}}, 422)


def refused(request: Request, error: Exception) -> Response:
    """What the system refuses: a full disk or a missing permission is the learner's to mend."""
    assert isinstance(error, OSError)
    if error.errno not in REFUSALS:
        logged(error)
        return fault(request, error)
    try:
        with writing(Path(error.filename or "?")):
            raise error
    except StorageError as told:
        return mistake(request, told)


def fault(request: Request, error: Exception) -> Response:
    """Anything else, which is ours to mend, as an answer; the terminal has the traceback."""
    return Json({"error": {"kind": "fault", "message": fault_words(error)}}, 500)


def fault_words(error: Exception) -> str:
    """A fault that is ours to mend, in one line."""
    return message("internal fault: {kind}: {text}", kind=type(error).__name__, text=error)


def logged(error: Exception) -> str:
    """As `fault_words`, where nobody above would log it: the terminal gets the traceback."""
    logging.getLogger("partwise.studio").error("a fault in the studio", exc_info=error)
    return fault_words(error)


def gone(request: Request, error: Exception) -> Response:
    """The page has asked for something else meanwhile; nobody reads this."""
    return Response(status_code=400)
