"""What text a model learns and how it is cut into tokens."""

from dataclasses import dataclass
from typing import Literal

from partwise.errors import ConfigError
from partwise.settings import at_least_one, check, not_negative, option

TokenizerKind = Literal["char", "byte", "bpe"]
DecodingErrors = Literal["strict", "replace"]
UnknownCharacters = Literal["refuse", "skip"]

# Each worker holds a batch; more than these only wait for one another.
MOST_WORKERS = 256
# Room for each piece is taken before the first is learned.
MOST_PIECES = 10_000_000


@dataclass(frozen=True)
class DataConfig:
    """Text, tokenizer and split.

    Raises:
        ConfigError: a share outside (0, 1), or a size below 1.
    """

    tokenizer: TokenizerKind = option("char", "a token is a character, a byte or a BPE piece")
    tokenizer_file: str | None = option(
        None, "load this tokenizer.json instead of making one from the text"
    )
    bpe_vocab_size: int = option(4096, "pieces of a BPE learned on the text (tokens)")
    bpe_sample: int = option(
        10_000_000,
        "BPE merges are learned on this much text (bytes); it takes up to 100 times the memory",
    )
    special_tokens: bool = option(
        False, "read names such as <|endoftext|> in the text as special tokens"
    )
    errors: DecodingErrors = option(
        "strict", "bytes that are not UTF-8: refuse them, or replace them with U+FFFD"
    )
    unknown: UnknownCharacters = option(
        "refuse", "characters that a given tokenizer does not know: refuse them, or leave them out"
    )
    val_fraction: float = option(0.1, "share of the text's end kept for validation")
    validation: str | None = option(None, "validate on this file, folder or glob instead")
    shard_tokens: int = option(1_000_000_000, "longest token file (tokens); more go to a next one")
    workers: int = option(0, "threads that draw batches ahead; changes no batch")

    def __post_init__(self) -> None:
        check(self)
        if not 0 < self.val_fraction < 1:
            raise ConfigError(
                "val_fraction={value} is not a share; give more than 0 and less than 1",
                value=self.val_fraction,
            )
        if self.bpe_vocab_size < 256:
            raise ConfigError(
                "bpe_vocab_size={value} is less than the 256 bytes; give 257 or more",
                value=self.bpe_vocab_size,
            )
        if self.bpe_vocab_size > MOST_PIECES:
            raise ConfigError(
                "bpe_vocab_size={value} is more pieces than can be learned; give {most:,} or fewer",
                value=self.bpe_vocab_size,
                most=MOST_PIECES,
            )
        at_least_one(self, "bpe_sample", "shard_tokens")
        if self.workers > MOST_WORKERS:
            raise ConfigError(
                "{name}={value} is more than {most}; give the number of cores",
                name="workers",
                value=self.workers,
                most=MOST_WORKERS,
            )
        not_negative(self, "workers")
