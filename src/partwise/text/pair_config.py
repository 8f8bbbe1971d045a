"""Which pairs of texts are learned, how they are cut into tokens, and which are held out."""

from dataclasses import dataclass

from partwise.errors import ConfigError
from partwise.settings import at_least_one, check, option
from partwise.text.config import MOST_PIECES, TokenizerKind


@dataclass(frozen=True)
class PairConfig:
    """Two columns, one tokenizer for both, and what is held out.

    Raises:
        ConfigError: shares that leave nothing to learn from, or a size below 1.
    """

    source_column: int | None = option(
        None, "column of the text to translate, from 1; none: the first of two"
    )
    target_column: int | None = option(
        None, "column of its translation, from 1; none: the second of two"
    )
    swap: bool = option(False, "translate the other way round")
    task_pairs: int = option(20_000, "pairs that a task such as reverse makes")

    tokenizer: TokenizerKind | None = option(
        None, "a token is a character, a byte or a BPE piece; none: BPE, characters for a task"
    )
    bpe_vocab_size: int = option(2000, "pieces of the BPE learned on both columns (tokens)")

    val_fraction: float = option(0.05, "share of the pairs kept to choose the best weights by")
    test_fraction: float = option(0.05, "share of the pairs kept to score the translations by")
    split_seed: int = option(1, "which pairs are kept")

    def __post_init__(self) -> None:
        check(self)
        for name in ("val_fraction", "test_fraction"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ConfigError(
                    "{name}={value} is not a share; give more than 0 and less than 1",
                    name=name,
                    value=value,
                )
        if self.val_fraction + self.test_fraction > 0.5:
            raise ConfigError(
                "val_fraction={val} and test_fraction={test} keep more than half of the pairs; "
                "give less",
                val=self.val_fraction,
                test=self.test_fraction,
            )
        if (self.source_column is None) != (self.target_column is None):
            raise ConfigError(
                "source_column={source} and target_column={target}: give both or none",
                source=self.source_column,
                target=self.target_column,
            )
        at_least_one(self, "source_column", "target_column", "task_pairs")
        if self.source_column is not None and self.source_column == self.target_column:
            raise ConfigError(
                "source_column and target_column are both {column}; give two columns",
                column=self.source_column,
            )
        if self.bpe_vocab_size < 257:
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
