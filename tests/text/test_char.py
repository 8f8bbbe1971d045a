"""The character tokenizer: any Unicode, sorted, exact, and clear about what it does not know."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import TextError
from partwise.text.char import CharTokenizer, named

TEXTS = st.text(min_size=1)


def test_ids_are_ranks_by_code_point() -> None:
    tokenizer = CharTokenizer("banana\n🙂你")
    assert tokenizer.characters == "\nabn你🙂"
    assert tokenizer.encode("ban🙂\n").tolist() == [2, 1, 3, 5, 0]
    assert (tokenizer.vocab_size, tokenizer.name) == (6, "char-6")


@settings(deadline=None)
@given(TEXTS)
def test_every_text_comes_back(text: str) -> None:
    tokenizer = CharTokenizer(text)
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int64 and len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode("utf-8")


@settings(deadline=None)
@given(TEXTS, st.lists(st.integers(1, 5)))
def test_blocks_are_the_whole(text: str, sizes: list[int]) -> None:
    tokenizer = CharTokenizer(text)
    blocks, place = [], 0
    for size in [*sizes, len(text)]:
        blocks.append(text[place : place + size])
        place += size
    joined = np.concatenate(list(tokenizer.encode_blocks(blocks)))
    assert joined.dtype == np.dtype("u1")
    assert joined.tolist() == tokenizer.encode(text).tolist()


def test_more_than_256_characters_take_two_bytes() -> None:
    text = "".join(map(chr, range(300)))
    tokenizer = CharTokenizer(text)
    (block,) = tokenizer.encode_blocks(["a\u012b"])
    assert block.dtype == np.dtype("<u2") and block.tolist() == [97, 299]
    # A text of ASCII alone may not take the short cut here: its ids are of another width.
    (block,) = tokenizer.encode_blocks(["ab"])
    assert block.tolist() == [97, 98]


@settings(deadline=None)
@given(TEXTS, st.text())
def test_unknown_characters_are_skipped_or_refused(known: str, text: str) -> None:
    tokenizer = CharTokenizer(known)
    kept = "".join(character for character in text if character in known)
    assert tokenizer.decode(tokenizer.encode(text, unknown="skip")) == kept
    if kept == text:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    else:
        with pytest.raises(TextError):
            tokenizer.encode(text)


def test_unknown_characters_are_named_with_their_code_points() -> None:
    with pytest.raises(TextError) as caught:
        CharTokenizer("abc").encode("a\u200bné你")
    line = str(caught.value)
    assert "'n' (U+006E), 'é' (U+00E9), U+200B, '你' (U+4F60)" in line
    assert "char-3" in line and "--unknown skip" in line


def test_half_a_surrogate_pair_is_unknown_not_a_crash() -> None:
    tokenizer = CharTokenizer("ab")
    with pytest.raises(TextError, match=r"U\+DCFF"):
        tokenizer.encode("a\udcff")
    assert tokenizer.encode("a\udcffb", unknown="skip").tolist() == [0, 1]
    with pytest.raises(TextError, match="surrogate"):
        CharTokenizer("a\udcff")


def test_many_unknown_characters_are_counted() -> None:
    assert named(range(0x61, 0x67)).endswith("'e' (U+0065), … (6)")


def test_no_characters_are_refused() -> None:
    with pytest.raises(TextError, match="at least one character"):
        CharTokenizer("")


def test_the_fingerprint_is_the_vocabulary() -> None:
    assert CharTokenizer("ab").fingerprint == CharTokenizer("bba").fingerprint
    assert CharTokenizer("ab").fingerprint != CharTokenizer("abc").fingerprint
    assert len(CharTokenizer("ab").fingerprint) == 64


def test_json_can_be_read_by_eye() -> None:
    text = CharTokenizer("你b").to_json()
    assert json.loads(text)["characters"] == "b你" and "你" in text
