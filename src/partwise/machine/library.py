"""A C file of the package as a library: compiled once a machine by its own compiler, and kept."""

import hashlib
import json
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from partwise.errors import CompilerError, StorageError
from partwise.machine.facts import c_library, cpu_features, cpu_model
from partwise.storage import cache_folder, write_atomic

COMPILERS = ("cc", "gcc", "clang")

# Of the headers that any C file may include.
HEADERS = Path(__file__).parent

# Nothing asks for floating-point traps or the sign of a zero; sums keep the order of the source.
_FLAGS = (
    *("-std=gnu11", "-O3", "-fPIC", "-shared", "-pthread"),
    *("-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"),
)

# The first set that a compiler takes: this very processor with its longest vectors, or any. gcc for
# Windows does not align the stack for long vectors (its bug 54412), and a program with them ends.
_ANY: tuple[str, ...] = ()
NATIVE: tuple[tuple[str, ...], ...] = (
    ("-march=native", "-mprefer-vector-width=512"),
    ("-march=native",),
)
if sys.platform == "win32":
    NATIVE = ()

_PATIENCE = 60


@dataclass(frozen=True)
class Source:
    """What a library is made of.

    Args:
        file: the C file; the headers beside it may be part of it.
        flags: that its compilation cannot do without, besides the usual ones.
        native: it is of no use compiled for any processor, but only for this one.
    """

    file: Path
    flags: tuple[str, ...] = ()
    native: bool = False

    def kept(self) -> Path | None:
        """The library, if it is kept and whole: its name ends with the digest of what it holds."""
        with suppress(OSError, StorageError):
            for path in sorted(_folder().glob(f"{self._beginning()}-*.so")):
                with suppress(OSError):
                    if path.stem.endswith(_digest(path.read_bytes())):
                        return path
        return None

    def library(self) -> Path:
        """The library, compiled now (about two seconds) unless it is kept.

        Raises:
            CompilerError: there is no compiler here, it fails, or what it makes cannot be kept; in
                one line why.
        """
        known = self.kept()
        if known is not None:
            return known
        try:
            return self._keep(self._compiled())
        except (StorageError, OSError) as error:
            raise CompilerError(
                "the C compiler's library cannot be kept: {reason}", reason=str(error)
            ) from error

    def _compiled(self) -> bytes:
        compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
        if compiler is None:
            raise CompilerError("there is no C compiler here; install gcc or clang")
        said = ""
        with TemporaryDirectory(prefix="partwise-") as made:
            out = Path(made) / "made.so"
            for target in self._targets:
                flags = (*_FLAGS, *self.flags, *target)
                words = [compiler, *flags, f"-I{HEADERS}", str(self.file), "-o", str(out), "-lm"]
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
                except subprocess.TimeoutExpired as error:
                    raise CompilerError(
                        "the C compiler took longer than {seconds} seconds; try again when the "
                        "machine is less busy",
                        seconds=_PATIENCE,
                    ) from error
                except OSError as error:
                    said = str(error)
                    break
                if done.returncode == 0:
                    return out.read_bytes()
                said = done.stderr
        lines = [line for line in said.splitlines() if "error" in line] or said.splitlines()
        raise CompilerError("the C compiler failed: {reason}", reason=(lines or ["?"])[0][:200])

    @property
    def _targets(self) -> tuple[tuple[str, ...], ...]:
        return NATIVE if self.native else (*NATIVE, _ANY)

    def _keep(self, data: bytes) -> Path:
        path = _folder() / f"{self._beginning()}-{_digest(data)}.so"
        write_atomic(path, data)
        return path

    def _beginning(self) -> str:
        """Of the library's name: another source or processor has another one."""
        here = [platform.system(), platform.machine(), cpu_model(), cpu_features(), c_library()]
        how = [*_FLAGS, *self.flags, *map(list, self._targets)]
        sources = [*_headers(HEADERS), *_headers(self.file.parent), self.file]
        code = b"".join(path.read_bytes() for path in sources)
        return f"{self.file.stem}-{_digest(json.dumps([here, how]).encode('utf-8') + code)}"


def compiled_together(*sources: Source | None) -> list[Path | None]:
    """The library of each source, compiled side by side where there are several; None of None.

    Raises:
        CompilerError: see `Source.library`.
    """
    with ThreadPoolExecutor() as pool:
        waited = [None if source is None else pool.submit(source.library) for source in sources]
        return [None if one is None else one.result() for one in waited]


def _headers(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.h"))


def _folder() -> Path:
    return cache_folder() / "compiled"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
