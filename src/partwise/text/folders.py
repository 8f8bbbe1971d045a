"""Which files of a folder or glob are text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from partwise.messages import Notice
from partwise.storage.faults import reading
from partwise.text.formats import format_of

# A file with a NUL among its first bytes is not text, as git sees it too.
HEAD = 1 << 16

# A folder with one of these is a run's or a ladder's. Read as text, it would change the text whose
# training writes it.
OURS = ("run.toml", "ladder.json")


@dataclass
class Found:
    """Files that are text, and those that were left out.

    Args:
        texts: in the order they are read.
        hidden: files and folders whose names begin with a dot.
        ours: folders of runs and ladders.
        binary: files that are not text.
        other: links that lead nowhere or to what was read, and what is no file at all.
    """

    texts: list[Path] = field(default_factory=list)
    hidden: list[Path] = field(default_factory=list)
    ours: list[Path] = field(default_factory=list)
    binary: list[Path] = field(default_factory=list)
    other: list[Path] = field(default_factory=list)

    @property
    def skipped(self) -> int:
        """How many were left out."""
        return len(self.hidden) + len(self.ours) + len(self.binary) + len(self.other)

    def notices(self) -> Iterator[Notice]:
        """What was left out, a line a reason."""
        if self.hidden:
            yield Notice("hidden, skipped: {names}", names=_few(self.hidden))
        if self.ours:
            yield Notice("runs and ladders, skipped: {names}", names=_few(self.ours))
        if self.binary:
            yield Notice("not text, skipped: {names}", names=_few(self.binary))
        if self.other:
            yield Notice("broken links and the like, skipped: {names}", names=_few(self.other))


def files_in(folder: Path) -> Found:
    """The files in a folder and all folders in it, sorted by path.

    Hidden ones are left out, and what Partwise wrote itself.
    """
    left = Found()
    paths = sorted(_walk(folder, set(), left), key=lambda path: path.relative_to(folder).as_posix())
    found = _sorted_out(paths)
    found.hidden, found.ours = sorted(left.hidden), sorted(left.ours)
    found.other += left.other
    return found


def matching(folder: Path, pattern: str) -> Found:
    """The files in `folder` that match a glob, sorted by path.

    Hidden ones, and what lies in hidden folders, are left out unless the pattern names a dot.

    Args:
        folder: where the pattern starts.
        pattern: such as "chapters/*.md" or "**/*.py".
    """
    names_dots = any(part.startswith(".") for part in pattern.split("/"))
    hidden: list[Path] = []
    paths: list[Path] = []
    for path in sorted(set(folder.glob(pattern)), key=Path.as_posix):
        dotted = any(part.startswith(".") for part in path.relative_to(folder).parts)
        (hidden if dotted and not names_dots else paths).append(path)
    found = _sorted_out(paths)
    found.hidden = hidden
    return found


def _sorted_out(paths: Iterable[Path]) -> Found:
    """Those of `paths` that are text, in their order; folders are passed over."""
    found = Found()
    for path in paths:
        if path.is_dir():
            continue
        if not path.is_file():
            found.other.append(path)
            continue
        with reading(path), path.open("rb") as file:
            head = file.read(HEAD)
        (found.binary if b"\0" in head or format_of(head) else found.texts).append(path)
    return found


def _walk(folder: Path, seen: set[tuple[int, int]], left: Found) -> Iterator[Path]:
    with reading(folder):
        here = folder.stat()
        inner = sorted(folder.iterdir())
    # Links may lead back up, or twice to one place; each folder is read once.
    if (here.st_dev, here.st_ino) in seen:
        left.other.append(folder)
        return
    seen.add((here.st_dev, here.st_ino))
    for path in inner:
        if path.name.startswith("."):
            left.hidden.append(path)
        elif path.is_dir() and any((path / name).is_file() for name in OURS):
            left.ours.append(path)
        elif path.is_dir():
            yield from _walk(path, seen, left)
        else:
            yield path


def _few(paths: list[Path]) -> str:
    names = ", ".join(path.name for path in paths[:3])
    return names + (f", … ({len(paths):,})" if len(paths) > 3 else "")
