"""From a text to tokens on disk, once: `prepare` finds in the cache what it has made before.

What is prepared is kept under its content: the SHA-256 of the text, the tokenizer and the settings.
Editing the text therefore prepares it anew, and nothing is ever stale.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from partwise.errors import StorageError, TextError
from partwise.messages import Notice
from partwise.text.batches import require_tokens
from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer
from partwise.text.config import DataConfig
from partwise.text.scan import Scan, scan
from partwise.text.sources import Source, open_source
from partwise.text.tokenfile import VERSION, TokenFile, TokenView, write_tokens
from partwise.text.tokenizers import Tokenizer

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Prepared:
    """A text ready for training.

    Args:
        train: the tokens to learn from.
        validation: the tokens to judge by.
        tokenizer: what made them.
        summary: what the reader should know about the text, line by line.
        text_fingerprint: SHA-256 of the text.
        name: short name of the text.
        spec: opens the same text again, from any folder.
    """

    train: TokenView
    validation: TokenView
    tokenizer: Tokenizer
    summary: tuple[Notice, ...]
    text_fingerprint: str
    name: str
    spec: str

    def require_tokens(self, context_length: int) -> None:
        """Check that both parts hold a sequence of `context_length` tokens and its last target.

        Raises:
            TextError: one does not; the line offers a context that fits both.
        """
        shortest = min(len(self.train), len(self.validation))
        require_tokens(self.train, context_length, "training", shortest)
        require_tokens(self.validation, context_length, "validation", shortest)


def prepare(
    spec: str,
    config: DataConfig,
    *,
    cache: Path,
    tokenizer: Tokenizer | None = None,
    offline: bool = False,
    progress: Progress | None = None,
    announce: Callable[[Notice], None] = lambda notice: None,
) -> Prepared:
    """Cut a text into tokens and split it, or find that done in the cache.

    Args:
        spec: the text (see `open_source`).
        config: tokenizer and split.
        cache: folder for token files.
        tokenizer: cut the text with this one, whatever `config` says.
        offline: never download a corpus.
        progress: is told how much is done, and of how much (bytes).
        announce: is told before anything is downloaded.

    Raises:
        TextError: the text is missing, empty, not UTF-8, or has characters without a token.
    """
    source = open_source(spec, offline=offline, cache=cache, announce=announce)
    sources = [source]
    if config.validation is not None:
        sources.append(
            open_source(config.validation, offline=offline, cache=cache, announce=announce)
        )
    meter = _Meter(progress, 2 * sum(each.size for each in sources))
    scans = [scan(each, config.errors, meter.add) for each in sources]
    chosen = tokenizer or _make_tokenizer(config, scans)
    files = [
        _token_file(each, found, chosen, config, cache, meter)
        for each, found in zip(sources, scans, strict=True)
    ]
    meter.finish()
    if len(files) == 2:
        train, validation = files[0].view(), files[1].view()
    else:
        # By position: (1 - val_fraction) of the tokens, rounded down, are for training.
        cut = int(len(files[0]) * (1 - config.val_fraction))
        train, validation = files[0].view(0, cut), files[0].view(cut)
    return Prepared(
        train=train,
        validation=validation,
        tokenizer=chosen,
        summary=source.notices,
        text_fingerprint=scans[0].fingerprint,
        name=source.name,
        spec=source.spec,
    )


def _make_tokenizer(config: DataConfig, scans: list[Scan]) -> Tokenizer:
    if config.tokenizer == "byte":
        return ByteTokenizer()
    points: set[int] = set()
    for found in scans:
        points.update(found.code_points.tolist())
    return CharTokenizer(map(chr, points))


def _token_file(
    source: Source,
    found: Scan,
    tokenizer: Tokenizer,
    config: DataConfig,
    cache: Path,
    meter: "_Meter",
) -> TokenFile:
    made_of = [VERSION, found.fingerprint, tokenizer.fingerprint, config.shard_tokens]
    key = hashlib.sha256(json.dumps(made_of).encode("ascii")).hexdigest()[:32]
    folder = cache / "tokens" / key
    try:
        return TokenFile(folder, tokenizer, verify=True)
    except (StorageError, TextError):
        pass
    write_tokens(
        folder,
        _encoded(source, tokenizer, config, meter),
        tokenizer=tokenizer,
        text=source.name,
        text_fingerprint=found.fingerprint,
        shard_tokens=config.shard_tokens,
    )
    return TokenFile(folder, tokenizer)


def _encoded(
    source: Source, tokenizer: Tokenizer, config: DataConfig, meter: "_Meter"
) -> Iterator[npt.NDArray[Any]]:
    for text in source.blocks(config.errors):
        yield tokenizer.encode(text)
        meter.add(len(text))


class _Meter:
    """Adds up what is done and tells it on."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._done = 0
        self._total = total

    def add(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)

    def finish(self) -> None:
        self.add(self._total - self._done)
