"""From a text to tokens on disk, once: `prepare` finds in the cache what it has made before.

What is prepared is kept under its content: the SHA-256 of the text, the tokenizer and the settings.
Editing the text therefore prepares it anew, and nothing is ever stale.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from partwise.errors import StorageError, TextError
from partwise.messages import Notice
from partwise.storage import require_free, sweep
from partwise.text.batches import require_tokens
from partwise.text.char import CharTokenizer, named, unknown_characters
from partwise.text.choose import as_asked, choose_tokenizer, losses
from partwise.text.config import DataConfig
from partwise.text.dtypes import dtype_for
from partwise.text.scan import Scan, scan
from partwise.text.sources import Announce, Source, open_source
from partwise.text.summary import summary
from partwise.text.tokenfile import VERSION, TokenFile, TokenView, write_tokens
from partwise.text.tokenizers import Tokenizer
from partwise.text.turns import in_turn

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Prepared:
    """A text ready for training.

    Args:
        train: the tokens to learn from.
        validation: the tokens to judge by.
        tokenizer: what made them.
        summary: what the reader should know about the text, line by line.
        text_fingerprint: SHA-256 of the text; of both fingerprints where validation has its own.
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
    announce: Announce = lambda notice: None,
) -> Prepared:
    """Cut a text into tokens and split it, or find that done in the cache.

    Memory is constant: the text is read in blocks and the tokens stay on disk.

    Args:
        spec: the text (see `open_source`).
        config: tokenizer and split.
        cache: folder for token files; another process at work on the same text is waited for.
        tokenizer: cut the text with this one, whatever `config` says.
        offline: never download a corpus.
        progress: is told how much is done, and of how much (bytes, each text read twice).
        announce: is told before anything is downloaded.

    Raises:
        TextError: the text is missing, empty, not UTF-8, or has characters without a token.
        StorageError: the cache cannot be written, or the disk has no room.
    """
    sources = [
        open_source(each, offline=offline, cache=cache, announce=announce)
        for each in (spec, config.validation)
        if each is not None
    ]
    meter = _Meter(progress, 2 * sum(source.size for source in sources))
    scans = [scan(source, config.errors, meter.add) for source in sources]
    if tokenizer is None:
        chosen, notices = choose_tokenizer(config, sources[0], scans, cache)
    else:
        chosen = as_asked(tokenizer, config)
        notices = losses(chosen, sources[0], config)
    notices += _require_known(chosen, scans, config)
    files = [
        _token_file(source, found, chosen, config, cache, meter)
        for source, found in zip(sources, scans, strict=True)
    ]
    meter.finish()
    if config.validation is None:
        # By position: the first (1 - val_fraction) of the tokens, rounded down, are learned from.
        cut = int(len(files[0]) * (1 - config.val_fraction))
        train, validation = files[0].view(0, cut), files[0].view(cut)
    else:
        train, validation = files[0].view(), files[1].view()
    return Prepared(
        train=train,
        validation=validation,
        tokenizer=chosen,
        summary=(*summary(sources, scans, chosen, train, validation), *notices),
        text_fingerprint=_joined([found.fingerprint for found in scans]),
        name=sources[0].name,
        spec=sources[0].spec,
    )


def _require_known(tokenizer: Tokenizer, scans: Iterable[Scan], config: DataConfig) -> list[Notice]:
    """Refuse, or announce as left out, characters that a character tokenizer lacks."""
    if not isinstance(tokenizer, CharTokenizer):
        return []
    missing = sorted(
        {point for found in scans for point in tokenizer.unknown_to(found.code_points)}
    )
    if not missing:
        return []
    if config.unknown == "refuse":
        raise unknown_characters(tokenizer.name, missing)
    return [
        Notice(
            "left out, unknown to the tokenizer {name}: {characters}",
            name=tokenizer.name,
            characters=named(missing),
        )
    ]


def _token_file(
    source: Source,
    found: Scan,
    tokenizer: Tokenizer,
    config: DataConfig,
    cache: Path,
    meter: "_Meter",
) -> TokenFile:
    made_of: list[object] = [VERSION, found.fingerprint, tokenizer.fingerprint]
    made_of += [config.special_tokens, config.unknown, config.shard_tokens]
    key = hashlib.sha256(json.dumps(made_of).encode("ascii")).hexdigest()[:32]
    place = cache / "tokens" / key
    folder = place / "tokens"
    with in_turn(place / "lock"):
        sweep(place)
        try:
            return TokenFile(folder, tokenizer, verify=True)
        except (StorageError, TextError):
            # Not there yet, torn, or of another version: in each case it is made from the text.
            pass
        # A piece of a BPE is seldom shorter than 4 bytes; a full disk is met all the same.
        guesses = {"characters": found.characters, "bytes": found.bytes}
        tokens = guesses.get(tokenizer.unit, found.bytes // 4)
        require_free(folder, tokens * dtype_for(tokenizer.vocab_size).itemsize)
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
    yield from tokenizer.encode_blocks(
        meter.over(source.blocks(config.errors)), unknown=config.unknown
    )
    # Tokens of a text that changed under our hands would be kept under the old one's name.
    source.require_unchanged()


def _joined(fingerprints: list[str]) -> str:
    if len(fingerprints) == 1:
        return fingerprints[0]
    return hashlib.sha256("\n".join(fingerprints).encode("ascii")).hexdigest()


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

    def over(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            yield text
            self.add(len(text) if text.isascii() else len(text.encode("utf-8")))

    def finish(self) -> None:
        self.add(self._total - self._done)
