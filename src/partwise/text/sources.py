"""Where a text comes from: a file, a folder, a glob, standard input, or a named corpus.

A text is read as UTF-8 whatever the machine's locale. Files of a folder or glob follow each other
in the order of their paths; where one does not end with a newline, one is put between it and the
next, and nothing else is added. Nothing is taken away: byte-order marks, CRLF and NUL stay.
"""

import codecs
import difflib
import hashlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from partwise.errors import TextError
from partwise.messages import Notice
from partwise.storage import cache_folder
from partwise.storage.faults import reading, writing
from partwise.text import corpora

BLOCK = 1 << 20
HEAD = 1 << 16


@dataclass(frozen=True)
class Part:
    """One file of a text, or a text in memory.

    Args:
        label: what a message calls it.
        size: its length (bytes).
        path: the file, or None.
        data: the text in memory, when there is no file.
    """

    label: str
    size: int
    path: Path | None = None
    data: bytes = b""

    def open(self) -> BinaryIO:
        """The bytes from their start."""
        return io.BytesIO(self.data) if self.path is None else self.path.open("rb")


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
    notices: tuple[Notice, ...] = field(default=())

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
            if not last.endswith("\n") and part.size:
                yield "\n"
            for text in _decoded(part, errors):
                if text:
                    yield text
                    last = text[-1]


def open_source(
    spec: str,
    *,
    offline: bool = False,
    cache: Path | None = None,
    announce: Callable[[Notice], None] = lambda notice: None,
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
    """
    if spec == "-":
        return _piped(sys.stdin.buffer, cache, "-")
    named = spec.removeprefix("corpus:")
    if spec.startswith("corpus:") or (named in corpora.NAMES and not Path(spec).exists()):
        return _corpus(named, offline, cache, announce)
    path = Path(spec).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.exists():
        return _file(path, cache)
    raise _missing(spec, path)


def _corpus(
    name: str, offline: bool, cache: Path | None, announce: Callable[[Notice], None]
) -> Source:
    if name == "shakespeare":
        data = corpora.shakespeare()
        part = Part("shakespeare", len(data), data=data)
    elif name == "tinyshakespeare":
        path = corpora.tinyshakespeare(cache, offline=offline, announce=announce)
        part = Part(str(path), corpora.BYTES, path)
    else:
        raise TextError(
            "there is no corpus {name!r}; choose {names}", name=name, names=", ".join(corpora.NAMES)
        )
    return Source(name, f"corpus:{name}", (part,))


def _file(path: Path, cache: Path | None) -> Source:
    with reading(path):
        return Source(
            path.stem, str(path.absolute()), (Part(str(path), path.stat().st_size, path),)
        )


def _folder(path: Path) -> Source:
    found = sorted(path.rglob("*"), key=lambda inner: inner.relative_to(path).as_posix())
    parts = [Part(str(inner), inner.stat().st_size, inner) for inner in found if inner.is_file()]
    return Source(path.resolve().name, str(path.absolute()), tuple(parts))


def _piped(stream: BinaryIO, cache: Path | None, label: str) -> Source:
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
    return Source("stdin", str(kept.absolute()), (Part(label, kept.stat().st_size, kept),))


def _missing(spec: str, path: Path) -> TextError:
    folder = path.parent
    names = [inner.name for inner in folder.iterdir()] if folder.is_dir() else []
    near = difflib.get_close_matches(path.name, names + list(corpora.NAMES), n=1, cutoff=0.5)
    if near and near[0] in names:
        return TextError(
            "there is no text {spec}; did you mean {near}?", spec=spec, near=folder / near[0]
        )
    return TextError(
        "there is no text {spec}; give a file, a folder, a glob, - for standard input, or a "
        "corpus: {names}",
        spec=spec,
        names=", ".join(corpora.NAMES),
    )


def _decoded(part: Part, errors: Literal["strict", "replace"]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    place = 0
    with reading(Path(part.label)), part.open() as file:
        while True:
            data = file.read(BLOCK)
            held = len(decoder.getstate()[0])
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                raise TextError(
                    "{path} is not UTF-8 at byte {place:,} (0x{byte:02x}); save it as UTF-8, or "
                    "--errors replace to read U+FFFD there",
                    path=part.label,
                    place=place - held + error.start,
                    byte=error.object[error.start],
                ) from error
            yield text
            if not data:
                return
            place += len(data)
