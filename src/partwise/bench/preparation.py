"""Preparation speed: a text from disk to token files, for each kind of token."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from partwise.bench.cases import Case
from partwise.bench.text import write_words
from partwise.messages import Notice
from partwise.text.bpe import BPETokenizer, learn_bpe
from partwise.text.config import DataConfig, TokenizerKind
from partwise.text.prepare import prepare

# Merges are learned once, before anything is timed, from this much text (characters).
LEARNED_ON = 5_000_000
PIECES = 4096

# Encoding pieces is slower than copying characters: this share of the text is enough to measure it.
PIECES_SHARE = 0.1


@contextmanager
def preparation_cases(megabytes: int) -> Iterator[list[Case]]:
    """MB of text a second, and the `tokenizers` library alone beside our BPE.

    Args:
        megabytes: size of the text (MB).
    """
    with TemporaryDirectory(prefix="partwise-bench-") as made:
        folder = Path(made)
        text, part = folder / "text.txt", folder / "part.txt"
        write_words(text, megabytes)
        write_words(part, max(1, round(megabytes * PIECES_SHARE)))
        with part.open(encoding="ascii") as file:
            bpe = learn_bpe([file.read(LEARNED_ON)], PIECES)

        def characters() -> float:
            return _speed(text, DataConfig(tokenizer="char"), folder)

        def by_bytes() -> float:
            return _speed(text, _kind("byte"), folder)

        def pieces() -> float:
            return _speed(part, _kind("bpe"), folder, bpe)

        def library() -> float:
            return _library(part, bpe)

        yield [
            Case("preparation", Notice("characters"), "MB/s", characters),
            Case("preparation", Notice("bytes"), "MB/s", by_bytes),
            Case("preparation, BPE", Notice("BPE, merges given"), "MB/s", pieces),
            Case(
                "preparation, BPE",
                Notice("BPE, the tokenizers library alone on lines in memory"),
                "MB/s",
                library,
                baseline=True,
            ),
        ]


def _kind(kind: TokenizerKind) -> DataConfig:
    return DataConfig(tokenizer=kind)


def _speed(
    text: Path, config: DataConfig, folder: Path, tokenizer: BPETokenizer | None = None
) -> float:
    cache = folder / "cache"
    began = time.perf_counter()
    prepare(str(text), config, cache=cache, tokenizer=tokenizer)
    spent = time.perf_counter() - began
    shutil.rmtree(cache)
    return text.stat().st_size / 1e6 / spent


def _library(text: Path, bpe: BPETokenizer) -> float:
    import tokenizers

    plain = tokenizers.Tokenizer.from_str(bpe.to_json())
    content = text.read_text(encoding="ascii")
    lines = content.splitlines(keepends=True)
    began = time.perf_counter()
    for start in range(0, len(lines), 10_000):
        plain.encode_batch_fast(lines[start : start + 10_000])
    return len(content) / 1e6 / (time.perf_counter() - began)
