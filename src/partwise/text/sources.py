"""Where a text comes from: a file, a folder, a glob, standard input, or a named corpus.

A text is read as UTF-8 whatever the machine's locale. Files of a folder or glob follow each other
in the order of their paths; where one does not end with a newline, one is put between it and the
next, and nothing else is added. Nothing is taken away: byte-order marks, CRLF and NUL stay.
"""

import difflib
import glob
import hashlib
import io
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from partwise.errors import TextError
from partwise.messages import Notice
from partwise.storage import cache_folder
from partwise.storage.faults import reading, writing
from partwise.text import corpora
from partwise.text.folders import Found, files_in, matching
from partwise.text.formats import format_of
from partwise.text.utf8 import decoded

BLOCK = 1 << 20
CORPUS = "corpus:"

Announce = Callable[[Notice], None]


@dataclass(frozen=True)
class Part:
    """One file of a text, or a text in memory.

    Args:
        label: what a message calls it.
        size: its length (bytes).
        changed: when it was last written (nanoseconds).
        path: the file, or None.
        data: the text in memory, when there is no file.
    """

    label: str
    size: int
    changed: int = 0
    path: Path | None = None
    data: bytes = b""

    @classmethod
    def of(cls, path: Path, label: str | None = None) -> "Part":
        """The part that a file is."""
        with reading(path):
            found = path.stat()
        return cls(label or str(path), found.st_size, found.st_mtime_ns, path)

    def open(self) -> BinaryIO:
        """The bytes from their start."""
        if self.path is None:
            return io.BytesIO(self.data)
        with reading(self.path):
            return self.path.open("rb")


@dataclass(frozen=True)
class Source:
    """A text, not yet read.

    Args:
        name: short name, for a run made from it.
        spec: opens the same text again, from any folder.
        parts: its files in order.
        notices: what was left out of it, and the like.
    """

    name: str
    spec: str
    parts: tuple[Part, ...]
    notices: tuple[Notice, ...] = ()

    @property
    def label(self) -> str:
        """What a message calls it."""
        return self.parts[0].label if len(self.parts) == 1 else self.spec

    @property
    def size(self) -> int:
        """Length of all parts together (bytes)."""
        return sum(part.size for part in self.parts)

    def blocks(self, errors: Literal["strict", "replace"] = "strict") -> Iterator[str]:
        """The text piece by piece, about a megabyte each, never cutting a character.

        Args:
            errors: refuse bytes that are not UTF-8, or give U+FFFD for them.

        Raises:
            TextError: bytes are not UTF-8; the line names the file and the place.
        """
        last = "\n"
        for part in self.parts:
            if last != "\n" and part.size:
                yield "\n"
            with part.open() as file:
                for text in decoded(file, part.label, errors, BLOCK):
                    yield text
                    last = text[-1]

    def require_unchanged(self) -> None:
        """Check that no file was written to since the source was opened.

        Raises:
            TextError: one was; the line names it.
        """
        for part in self.parts:
            if part.path is not None and Part.of(part.path, part.label) != part:
                raise TextError(
                    "{path} was changed while it was read; start again when it is finished",
                    path=part.label,
                )


def open_source(
    spec: str,
    *,
    offline: bool = False,
    cache: Path | None = None,
    announce: Announce = lambda notice: None,
) -> Source:
    """The text that `spec` names.

    Args:
        spec: a file, a folder, a glob, `-` for standard input, a corpus's name, or
            `corpus:NAME`. A path that exists comes before a corpus of the same name.
        offline: never download a corpus.
        cache: folder for what is downloaded or piped in; None: `cache_folder()`.
        announce: is told before anything is downloaded.

    Raises:
        TextError: nothing is there, or it is not text.
        StorageError: it cannot be read, or what is piped in cannot be kept.
    """
    if spec == "-":
        if sys.stdin is None:
            raise TextError("standard input is closed; pipe a text into it, or give a file")
        if _is_endless(sys.stdin.buffer):
            raise _device(Notice("standard input"))
        return _piped(sys.stdin.buffer, cache, Notice("standard input"))
    if spec.startswith(CORPUS):
        return _corpus(spec.removeprefix(CORPUS), offline, cache, announce)
    path = _path(spec)
    # An empty spec would be the folder one stands in.
    if not spec or not os.path.lexists(path):
        if spec in corpora.NAMES:
            return _corpus(spec, offline, cache, announce)
        if glob.has_magic(spec):
            return _glob(spec)
        raise _missing(spec, path)
    notices = []
    if spec in corpora.NAMES:
        notices.append(
            Notice(
                "{spec} is the path of that name; the corpus is {corpus}",
                spec=spec,
                corpus=CORPUS + spec,
            )
        )
    if path.is_dir():
        return _files(path.resolve().name or "text", spec, path, files_in(path), notices)
    with reading(path):
        mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise _device(spec)
    if not stat.S_ISREG(mode):
        # A named pipe, or what <(command) names, can be read once only.
        with reading(path), path.open("rb") as stream:
            return _piped(stream, cache, str(path))
    part = Part.of(path)
    _require_text(part)
    return Source(path.stem, str(path.absolute()), (part,), tuple(notices))


def _device(label: object) -> TextError:
    return TextError(
        "{label} is a device and not a text; give a file, or pipe a text into -",
        label=label,
    )


def _is_endless(stream: BinaryIO) -> bool:
    """Whether a stream reads from a device such as /dev/zero, and neither terminal nor nothing."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
        nothing = os.path.samestat(Path(os.devnull).stat(), os.fstat(stream.fileno()))
        return (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not (nothing or stream.isatty())
    except (OSError, ValueError):
        return False  # a text in memory


def _corpus(name: str, offline: bool, cache: Path | None, announce: Announce) -> Source:
    if name == "shakespeare":
        data = corpora.shakespeare()
        part = Part(name, len(data), data=data)
    elif name == "tinyshakespeare":
        path = corpora.tinyshakespeare(cache, offline=offline, announce=announce)
        part = Part.of(path)
    else:
        raise TextError(
            "there is no corpus {name}; choose {names}", name=name, names=", ".join(corpora.NAMES)
        )
    return Source(name, CORPUS + name, (part,))


def _glob(spec: str) -> Source:
    pattern = _path(spec).absolute()
    root = next(parent for parent in pattern.parents if not glob.has_magic(str(parent)))
    # Until Python 3.13 a final ** means folders only, and one inside a name is refused; here the
    # first means what is in them, and the second is a plain *, as in a shell.
    parts = [
        part if part == "**" else re.sub(r"\*+", "*", part)
        for part in pattern.relative_to(root).parts
    ]
    if parts[-1] == "**":
        parts.append("*")
    found = matching(root, "/".join(parts))
    return _files(root.name or "text", spec, pattern, found, [])


def _files(name: str, spec: str, path: Path, found: Found, notices: list[Notice]) -> Source:
    if not found.texts:
        raise TextError(
            "{spec} has no text files ({skipped} others); give a folder or glob with UTF-8 text",
            spec=spec,
            skipped=found.skipped,
        )
    if len(found.texts) > 1:
        notices.append(
            Notice(
                "{count} files in the order of their paths; a newline is put after one that does "
                "not end with it",
                count=f"{len(found.texts):,}",
            )
        )
    parts = tuple(map(Part.of, found.texts))
    return Source(name, str(path.absolute()), parts, (*notices, *found.notices()))


def _piped(stream: BinaryIO, cache: Path | None, label: object) -> Source:
    """Keep what is piped in under its SHA-256, so that the same text can be read again."""
    folder = (cache or cache_folder()) / "stdin"
    digest = hashlib.sha256()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                while block := stream.read(BLOCK):
                    digest.update(block)
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
            kept = folder / f"{digest.hexdigest()}.txt"
            Path(temporary).replace(kept)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    part = Part.of(kept, str(label))
    _require_text(part)
    notice = Notice("{label} is kept as {path}, for resuming", label=label, path=kept)
    return Source("stdin", str(kept.absolute()), (part,), (notice,))


def _require_text(part: Part) -> None:
    with part.open() as file:
        kind = format_of(file.read(16))
    if kind:
        raise TextError(
            "{path} is {kind}, not UTF-8 text; save what it says as plain text in UTF-8",
            path=part.label,
            kind=kind,
        )


def _path(spec: str) -> Path:
    try:
        return Path(spec).expanduser()
    except RuntimeError:
        # There is no such user: it is a name that begins with ~.
        return Path(spec)


def _missing(spec: str, path: Path) -> TextError:
    folder = path.parent
    try:
        here = [inner.name for inner in folder.iterdir()]
    except OSError:
        here = []
    near = difflib.get_close_matches(path.name, [*here, *corpora.NAMES], n=1, cutoff=0.5)
    if near:
        known = near[0] if near[0] in corpora.NAMES else str(folder / near[0])
        return TextError("there is no text {spec}; did you mean {near}?", spec=spec, near=known)
    return TextError(
        "there is no text {spec}; give a file, a folder, a glob, - for standard input, or a "
        "corpus: {names}",
        spec=spec,
        names=", ".join(corpora.NAMES),
    )
