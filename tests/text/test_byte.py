"""The byte tokenizer: 256 tokens for every text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import TextError
from partwise.text.byte import ByteTokenizer


@settings(deadline=None)
@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int64
    assert ids.tolist() == list(text.encode("utf-8"))
    assert tokenizer.decode(ids) == text
    assert np.concatenate([*tokenizer.encode_blocks([text, "é"])]).tolist() == [*ids, 0xC3, 0xA9]


@settings(deadline=None)
@given(st.binary())
def test_bytes_that_are_not_utf8_are_kept_as_bytes(data: bytes) -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode_bytes(list(data)) == data
    assert tokenizer.decode(np.frombuffer(data, np.uint8)) == data.decode("utf-8", "replace")


def test_half_a_surrogate_pair_is_refused_or_skipped() -> None:
    with pytest.raises(TextError, match=r"character 2 is U\+DC80"):
        ByteTokenizer().encode("a\udc80")
    assert ByteTokenizer().encode("a\udc80b", unknown="skip").tolist() == [97, 98]
