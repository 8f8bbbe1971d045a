"""`step.c` as a library: compiled once a machine by its own compiler, kept in the cache."""

import hashlib
import json
import platform
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from partwise.errors import SamplingError, StorageError
from partwise.machine.facts import cpu_model
from partwise.storage import cache_folder, write_atomic

SOURCE = Path(__file__).with_name("step.c")
COMPILERS = ("cc", "gcc", "clang")

# Nothing asks for floating-point traps or the sign of a zero; sums keep the order of the source.
_FLAGS = (
    *("-std=gnu11", "-O3", "-fPIC", "-shared", "-pthread"),
    *("-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"),
)

# The first set that a compiler takes: this very processor with its longest vectors, or any.
_TARGETS = (("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ())

_PATIENCE = 60


def kept() -> Path | None:
    """The library, if it is kept and whole: its name ends with the digest of what it holds."""
    for path in sorted(_folder().glob(f"{_beginning()}-*.so")):
        with suppress(OSError):
            if path.stem.endswith(_digest(path.read_bytes())):
                return path
    return None


def library() -> Path:
    """The library, compiled now (about two seconds) unless it is kept.

    Raises:
        SamplingError: there is no compiler here, or it fails; in one line why.
    """
    known = kept()
    if known is not None:
        return known
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise SamplingError("there is no C compiler here; install gcc or clang")
    said = ""
    with TemporaryDirectory(prefix="partwise-") as made:
        out = Path(made) / "sample.so"
        for target in _TARGETS:
            words = [compiler, *_FLAGS, *target, str(SOURCE), "-o", str(out), "-lm"]
            try:
                done = subprocess.run(
                    words,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    encoding="utf-8",
                    errors="replace",
                    timeout=_PATIENCE,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                said = str(error)
                break
            if done.returncode == 0:
                data = out.read_bytes()
                path = _folder() / f"{_beginning()}-{_digest(data)}.so"
                try:
                    write_atomic(path, data)
                except StorageError as error:
                    raise SamplingError(
                        "the C compiler's library cannot be kept: {reason}", reason=str(error)
                    ) from error
                return path
            said = done.stderr
    lines = [line for line in said.splitlines() if "error" in line] or said.splitlines() or ["?"]
    raise SamplingError("the C compiler failed: {reason}", reason=lines[0][:200])


def _folder() -> Path:
    return cache_folder() / "compiled"


def _beginning() -> str:
    """Of the file's name: another source or processor has another file."""
    here = [platform.system(), platform.machine(), cpu_model(), _FLAGS, _TARGETS]
    sources = [*sorted(SOURCE.parent.glob("*.h")), SOURCE]
    code = b"".join(path.read_bytes() for path in sources)
    return f"sample-{_digest(json.dumps(here).encode('utf-8') + code)}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
