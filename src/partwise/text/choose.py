"""The tokenizer that a text and its settings ask for."""

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path

from partwise.errors import StorageError, TextError
from partwise.messages import Notice
from partwise.storage import read_json, write_json
from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer
from partwise.text.config import DataConfig
from partwise.text.scan import Scan
from partwise.text.sources import Source
from partwise.text.tokenizers import Tokenizer, load_tokenizer
from partwise.text.turns import in_turn

KIND = "partwise.bpe"
VERSION = 1

# Text on which a loaded tokenizer is tried (characters).
TRIAL = 1 << 16


def choose_tokenizer(
    config: DataConfig, source: Source, scans: list[Scan], cache: Path
) -> tuple[Tokenizer, list[Notice]]:
    """A tokenizer loaded, or made from the text.

    A character tokenizer knows the characters of all texts, those of the validation text too. BPE
    merges are learned on the part that is trained on.

    Args:
        config: which tokenizer.
        source: the text to train on.
        scans: what was found in the text, and in the validation text if there is one.
        cache: where learned merges are kept.

    Returns:
        The tokenizer, and what the reader should know about it.
    """
    if config.tokenizer_file is not None:
        tokenizer = load_tokenizer(
            Path(config.tokenizer_file).expanduser(), special_tokens=config.special_tokens
        )
        return tokenizer, losses(tokenizer, source, config)
    if config.tokenizer == "byte":
        return ByteTokenizer(), []
    if config.tokenizer == "char":
        points = {point for found in scans for point in found.code_points.tolist()}
        return CharTokenizer(map(chr, points)), []
    return _learned(config, source, scans[0], cache)


def as_asked(tokenizer: Tokenizer, config: DataConfig) -> Tokenizer:
    """A given tokenizer, reading the names of special tokens in a text if `config` says so."""
    if tokenizer.unit != "tokens":
        return tokenizer
    from partwise.text.bpe import BPETokenizer

    if not isinstance(tokenizer, BPETokenizer):
        return tokenizer
    return tokenizer.with_special_tokens(config.special_tokens)


def _learned(
    config: DataConfig, source: Source, found: Scan, cache: Path
) -> tuple[Tokenizer, list[Notice]]:
    from partwise.text.bpe import BPETokenizer, learn_bpe

    share = 1.0 if config.validation is not None else 1 - config.val_fraction
    known = math.ceil(found.bytes * share)
    sample = min(known, config.bpe_sample)
    made_of = [VERSION, found.fingerprint, config.bpe_vocab_size, known, sample]
    key = hashlib.sha256(json.dumps(made_of).encode("ascii")).hexdigest()[:32]
    path = cache / "tokenizers" / f"{key}.json"
    with in_turn(path.with_suffix(".lock")):
        try:
            _, kept = read_json(path, kind=KIND, newest=VERSION)
            tokenizer = BPETokenizer(kept, special_tokens=config.special_tokens)
        except (StorageError, TextError):
            # Not there yet, or torn: learned from the text.
            tokenizer = learn_bpe(_sampled(source, config, known, sample), config.bpe_vocab_size)
            write_json(path, tokenizer.to_json(), kind=KIND, version=VERSION)
            tokenizer = tokenizer.with_special_tokens(config.special_tokens)
    notices = [
        Notice(
            "BPE: {tokens} tokens learned on {sample} of {known} training bytes{spread}",
            tokens=f"{tokenizer.vocab_size:,}",
            sample=f"{sample:,}",
            known=f"{known:,}",
            spread="" if sample == known else Notice(", a piece of every megabyte"),
        )
    ]
    if tokenizer.vocab_size < config.bpe_vocab_size:
        notices.append(
            Notice(
                "the text has no more pairs that occur twice: {tokens} tokens instead of {wanted}",
                tokens=f"{tokenizer.vocab_size:,}",
                wanted=f"{config.bpe_vocab_size:,}",
            )
        )
    return tokenizer, notices


def _sampled(source: Source, config: DataConfig, known: int, sample: int) -> Iterator[str]:
    """The first `known` bytes of the text, or the beginning of each block of them.

    Args:
        source: the text.
        config: how it is decoded.
        known: length of the part that is looked at (bytes).
        sample: about how much of it is given (bytes).
    """
    share = sample / known
    for text in source.blocks(config.errors):
        size = len(text.encode("utf-8"))
        text = text[: math.ceil(len(text) * min(1.0, known / size))]
        yield text[: math.ceil(len(text) * share)]
        known -= size
        if known <= 0:
            return


def losses(tokenizer: Tokenizer, source: Source, config: DataConfig) -> list[Notice]:
    """A line if a loaded tokenizer does not give the text's beginning back exactly."""
    if isinstance(tokenizer, CharTokenizer):
        return []
    text = next(iter(source.blocks(config.errors)))[:TRIAL]
    back = tokenizer.decode(tokenizer.encode(text))
    if back == text:
        return []
    place = next(
        (place for place, pair in enumerate(zip(text, back, strict=False)) if len(set(pair)) == 2),
        min(len(text), len(back)),
    )
    return [
        Notice(
            "the tokenizer {name} does not give this text back exactly: {there!r} becomes {here!r}",
            name=tokenizer.name,
            there=text[max(place - 10, 0) : place + 10],
            here=back[max(place - 10, 0) : place + 10],
        )
    ]
