"""The settings of a text: what makes no sense is refused with what would."""

import pytest

from partwise.errors import ConfigError
from partwise.text.config import DataConfig


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"tokenizer": "word"}, "choose char, byte, bpe"),
        ({"val_fraction": 0.0}, "more than 0 and less than 1"),
        ({"val_fraction": 1.0}, "more than 0 and less than 1"),
        ({"val_fraction": float("nan")}, "more than 0 and less than 1"),
        ({"bpe_vocab_size": 255}, "bpe_vocab_size=255 .* give 257 or more"),
        ({"bpe_sample": 0}, "bpe_sample=0 is too small; give 1 or more"),
        ({"shard_tokens": 0}, "shard_tokens=0 is too small; give 1 or more"),
        ({"workers": -1}, "workers=-1 is negative"),
        ({"workers": 1_000_000}, "workers=1000000 is more than 256"),
        ({"bpe_vocab_size": 10**9}, "bpe_vocab_size=1000000000 .* give 10,000,000 or fewer"),
        ({"errors": "ignore"}, "choose strict, replace"),
        ({"unknown": "keep"}, "choose refuse, skip"),
        ({"special_tokens": "yes"}, "true or false"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(values: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        DataConfig(**values)  # type: ignore[arg-type]
