"""What the reader is told about a text that was prepared."""

from collections.abc import Iterator, Sequence

from partwise.messages import Notice
from partwise.text.scan import Scan
from partwise.text.sources import Source
from partwise.text.tokenfile import TokenView
from partwise.text.tokenizers import Tokenizer


def summary(
    sources: Sequence[Source],
    scans: Sequence[Scan],
    tokenizer: Tokenizer,
    train: TokenView,
    validation: TokenView,
) -> Iterator[Notice]:
    """One line for each text, one for the split, and one for each thing that is unusual.

    Args:
        sources: the text, and the validation text if there is one.
        scans: what was found in them.
        tokenizer: what cut them.
        train: the tokens that are learned from.
        validation: the tokens that are judged by.
    """
    for source, found in zip(sources, scans, strict=True):
        yield Notice(
            "{name}: {characters} characters, {bytes} bytes, {distinct} different characters",
            name=source.name,
            characters=f"{found.characters:,}",
            bytes=f"{found.bytes:,}",
            distinct=f"{len(found.code_points):,}",
        )
        yield from source.notices
        yield from _unusual(found)
    yield Notice(
        "tokenizer {name}: {vocabulary} different tokens; {train} to learn from, {validation} to "
        "validate on",
        name=tokenizer.name,
        vocabulary=f"{tokenizer.vocab_size:,}",
        train=f"{len(train):,}",
        validation=f"{len(validation):,}",
    )


def _unusual(found: Scan) -> Iterator[Notice]:
    if found.marks:
        yield Notice("byte-order marks, kept as they are: {count}", count=f"{found.marks:,}")
    if found.crlf:
        yield Notice("line ends that are CRLF, kept as they are: {count}", count=f"{found.crlf:,}")
    if found.nul:
        yield Notice("NUL characters, kept as they are: {count}", count=f"{found.nul:,}")
    if found.replaced:
        yield Notice(
            "characters U+FFFD, which stand for bytes that are not UTF-8: {count}",
            count=f"{found.replaced:,}",
        )
