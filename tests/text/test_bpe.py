"""BPE: every string comes back, streamed encoding is the whole's, special tokens are asked for."""

import json
from typing import Literal

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from partwise.errors import TextError
from partwise.text import bpe
from partwise.text.bpe import BPETokenizer, learn_bpe
from text.tokenizers_json import SENTENCES, byte_level, sentencepiece, whole_words, with_special

LEARNED = byte_level()


@settings(deadline=None)
@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    ids = LEARNED.encode(text)
    assert ids.dtype == np.int64
    assert LEARNED.decode(ids) == text
    assert LEARNED.decode_bytes(ids) == text.encode("utf-8")


def test_merges_make_words_of_bytes() -> None:
    assert LEARNED.vocab_size == 280
    ids = LEARNED.encode(" the").tolist()
    assert len(ids) == 1 and LEARNED.decode(ids) == " the"
    # 256 tokens are the bytes alone.
    bare = learn_bpe([SENTENCES], 256)
    assert len(bare.encode("naïve 你好")) == len("naïve 你好".encode())


def test_learning_is_deterministic_and_does_not_depend_on_blocks() -> None:
    blocks = [SENTENCES[place : place + 97] for place in range(0, len(SENTENCES), 97)]
    assert learn_bpe(blocks, 280).fingerprint == LEARNED.fingerprint
    assert learn_bpe(blocks, 279).fingerprint != LEARNED.fingerprint


@pytest.mark.parametrize("size", [10, 64, 1000])
def test_blocks_are_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "PIECE", size)
    monkeypatch.setattr(bpe, "PIECES", 3)
    text = SENTENCES + "\r\n\n  x\t'll 999 don't\n" * 30
    for tokenizer in (LEARNED, sentencepiece(), with_prefix_space()):
        blocks = list(tokenizer.encode_blocks([text[:50], text[50:51], text[51:]]))
        assert np.concatenate(blocks).tolist() == tokenizer.encode(text).tolist()
        assert len(blocks) > len(text) // size // 2 and blocks[0].dtype == np.dtype("<u2")


def test_a_tokenizer_that_permits_no_cuts_gets_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    value = json.loads(LEARNED.to_json())
    # Without the rule that splits words, tokens may reach from one word into the next.
    value["pre_tokenizer"]["use_regex"] = False
    value["model"]["merges"] += [["t", "Ġ"]]
    value["model"]["vocab"]["tĠ"] = 280
    tokenizer = BPETokenizer(json.dumps(value))
    text = "sat on it and at it\n" * 900
    (block,) = tokenizer.encode_blocks([text])
    assert block.tolist() == tokenizer.encode(text).tolist()
    monkeypatch.setattr(bpe, "UNCUT", 1000)
    with pytest.raises(TextError, match=r"makes other tokens when a text is cut.*1,000"):
        list(tokenizer.encode_blocks([text]))


def test_an_empty_text_has_no_tokens() -> None:
    assert list(LEARNED.encode_blocks(iter(()))) == []
    assert LEARNED.encode("").tolist() == []


def test_special_tokens_are_ordinary_text_unless_asked_for() -> None:
    text = "one<|endoftext|>two"
    plain = with_special(LEARNED, "<|endoftext|>")
    end = plain.vocab_size - 1
    assert end not in plain.encode(text) and plain.decode(plain.encode(text)) == text
    assert end not in np.concatenate(list(plain.encode_blocks([text])))
    special = plain.with_special_tokens(True)
    assert (
        special.encode(text).tolist().count(end) == 1 and special.decode([end]) == "<|endoftext|>"
    )
    assert end in np.concatenate(list(special.encode_blocks([text])))
    # How a text is read is not what the tokenizer is: a run that reads them loads the same file.
    assert special.fingerprint == plain.fingerprint
    assert special.end_of_text == end and LEARNED.end_of_text is None


def test_a_special_token_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "PIECE", 8)
    special = with_special(LEARNED, "end of text", rstrip=True).with_special_tokens(True)
    text = "the cat end of text sat on " * 20
    blocks = np.concatenate(list(special.encode_blocks([text])))
    assert blocks.tolist() == special.encode(text).tolist()
    assert blocks.tolist().count(special.vocab_size - 1) == 20


def test_nothing_is_put_around_a_text() -> None:
    value = json.loads(with_special(LEARNED, "<s>").to_json())
    value["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [280], "tokens": ["<s>"]}},
    }
    value["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    value["model"]["dropout"] = 0.9
    tokenizer = BPETokenizer(json.dumps(value))
    assert tokenizer.encode(SENTENCES).tolist() == LEARNED.encode(SENTENCES).tolist()


def test_sentencepiece_texts_come_back() -> None:
    tokenizer = sentencepiece()
    assert tokenizer.decode(tokenizer.encode("the cat 你\n at")) == "the cat 你\n at"
    assert tokenizer.encode("the cat").tolist() == [268, 271]
    assert tokenizer.name == "bpe-272"


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(TextError, match=r"U\+DC80"):
        LEARNED.encode("a\udc80")
    assert LEARNED.decode(LEARNED.encode("a\udc80", unknown="skip")) == "a"


@pytest.mark.parametrize(
    "source",
    [
        "{",
        "[]",
        "{}",
        '{"model": {"type": "BPE"}}',
        '{"model": {"type": "Nothing"}}',
        '{"model": 3}',
    ],
)
def test_other_json_is_refused_with_the_reason(source: str) -> None:
    with pytest.raises(TextError, match=r"tokenizer\.json (cannot be used: .+;|has no tokens)"):
        BPETokenizer(source)


def of(model: models.Model, *, words: bool = False) -> BPETokenizer:
    rust = tokenizers.Tokenizer(model)
    if words:
        rust.pre_tokenizer = pre_tokenizers.Whitespace()
    return BPETokenizer(rust.to_str())


LETTERS = {letter: id for id, letter in enumerate("abcde \n")}


@pytest.mark.parametrize("blocks", [False, True])
def test_characters_that_would_vanish_are_named(blocks: bool) -> None:
    """A BPE of characters without a token for the unknown leaves them out, and says nothing."""
    tokenizer = of(models.BPE(LETTERS, []))

    def encoded(text: str, unknown: Literal["refuse", "skip"] = "refuse") -> list[int]:
        if blocks:
            return np.concatenate(list(tokenizer.encode_blocks([text], unknown=unknown))).tolist()
        return tokenizer.encode(text, unknown=unknown).tolist()

    assert tokenizer.decode(encoded("abc\n de" * 3)).replace(" ", "") == "abc\nde" * 3
    with pytest.raises(TextError, match=r"bpe-7 does not know '犬' \(U\+72AC\); use other"):
        encoded("ab犬\n")
    assert encoded("ab犬\n", "skip") == encoded("ab\n")
    with pytest.raises(TextError, match=r"does not know U\+0009"):
        encoded("a\tb")


def test_white_space_between_words_may_vanish() -> None:
    tokenizer = of(models.BPE(LETTERS, []), words=True)
    assert tokenizer.encode("ab\tcd").tolist() == [0, 1, 2, 3]
    with pytest.raises(TextError, match="does not know 'z'"):
        tokenizer.encode("ab zd")


def test_a_text_of_bytes_that_have_no_tokens_is_refused() -> None:
    value = json.loads(LEARNED.to_json())
    gone = {"Ã", "©"}
    model = value["model"]
    model["vocab"] = {token: id for token, id in model["vocab"].items() if not gone & set(token)}
    model["merges"] = [pair for pair in model["merges"] if not gone & set("".join(pair))]
    tokenizer = BPETokenizer(json.dumps(value))
    assert tokenizer.decode(tokenizer.encode("the cat")) == "the cat"
    with pytest.raises(TextError, match="does not know 'é'"):
        tokenizer.encode("the café")


@pytest.mark.parametrize(
    "model",
    [
        models.WordLevel({"the": 0}, unk_token="[UNK]"),
        models.WordPiece({"the": 0}, unk_token="[UNK]"),
        models.Unigram([("the", -1.0)]),
        models.BPE({"t": 0}, [], unk_token="<unk>"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_text_that_the_library_cannot_cut_is_one_line(model: models.Model) -> None:
    tokenizer = of(model, words=True)
    for cut in (
        lambda: tokenizer.encode("a dog"),
        lambda: list(tokenizer.encode_blocks(["a dog"])),
    ):
        with pytest.raises(TextError, match="cannot cut this text"):
            cut()


def test_words_alone_do_not_come_back_but_do_not_fail() -> None:
    tokenizer = whole_words()
    assert tokenizer.name == "wordlevel-5"
    assert tokenizer.decode(tokenizer.encode("the  cat dog")) == "the cat [UNK]"


def with_prefix_space() -> BPETokenizer:
    value = json.loads(LEARNED.to_json())
    value["pre_tokenizer"]["add_prefix_space"] = True
    return BPETokenizer(json.dumps(value))
