"""Streams: what is pushed and finished is what decode gives, for every sequence of ids."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer
from partwise.text.tokenizers import Tokenizer
from text.tokenizers_json import byte_level, sentencepiece, whole_words

TOKENIZERS: dict[str, Tokenizer] = {
    "char": CharTokenizer("ab é你🙂\n"),
    "byte": ByteTokenizer(),
    "byte-level": byte_level(),
    "sentencepiece": sentencepiece(),
    "whole words": whole_words(),
}


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None)
@given(data=st.data())
def test_a_stream_gives_what_decode_gives(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40))
    stream = tokenizer.stream()
    assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.decode(ids)
    assert tokenizer.decode_bytes(ids).decode("utf-8", "replace") == tokenizer.decode(ids)


@pytest.mark.parametrize("name", ["char", "byte", "byte-level", "sentencepiece"])
@settings(deadline=None)
@given(data=st.data())
def test_a_stream_goes_on_behind_a_prompt(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    text = data.draw(st.text("ab é你🙂\n", max_size=30))
    ids = tokenizer.encode(text).tolist()
    cut = data.draw(st.integers(0, len(ids)))
    stream, after = tokenizer.stream(), tokenizer.stream(after=ids[:cut])
    shown = "".join(map(stream.push, ids[:cut]))
    assert shown + "".join(map(after.push, ids[cut:])) + after.finish() == text


@settings(deadline=None)
@given(st.text(min_size=1))
def test_half_a_character_is_never_given(text: str) -> None:
    stream = ByteTokenizer().stream()
    shown = ""
    for byte in text.encode("utf-8"):
        shown += stream.push(byte)
        assert text.startswith(shown)
    assert shown == text and stream.finish() == ""


def test_what_never_became_a_character_is_given_at_the_end() -> None:
    stream = ByteTokenizer().stream()
    assert [stream.push(byte) for byte in "a你".encode()[:-1]] == ["a", "", ""]
    assert stream.finish() == "�"


def test_a_first_space_is_the_tokenizers_not_the_texts() -> None:
    tokenizer = sentencepiece()
    the, cat = tokenizer.encode("the cat")
    assert tokenizer.decode([the, cat]) == "the cat"
    assert tokenizer.stream(after=[the]).push(cat) == " cat"
    assert tokenizer.stream().push(cat) == "cat"
