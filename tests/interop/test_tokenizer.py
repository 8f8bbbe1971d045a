"""A tokenizer written for other programs cuts every text as ours does, and comes back the same."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Rust

from partwise.errors import InteropError, TextError
from partwise.interop.tokenizer import (
    read_tokenizer,
    tokenizer_config,
    tokenizer_json,
)
from partwise.text.bpe import learn_bpe
from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer
from partwise.text.tokenizers import Tokenizer

# Any text that a file can hold.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
AWKWARD = "  two  spaces\r\n\n\ttab ' don't . , !\x00\ufeff\u2581 naïve 你好 🙂‍👩 <|endoftext|>"


def agrees(tokenizer: Tokenizer, text: str) -> None:
    rust = Rust.from_str(tokenizer_json(tokenizer))
    ids = tokenizer.encode(text).tolist()
    assert rust.encode(text, add_special_tokens=False).ids == ids
    assert rust.encode(text).ids == ids
    assert rust.decode(ids, skip_special_tokens=False) == text


@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_characters_are_the_same_tokens(text: str) -> None:
    if text:
        agrees(CharTokenizer(text), text)


@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_bytes_are_the_same_tokens(text: str) -> None:
    agrees(ByteTokenizer(), text)


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
def test_an_awkward_text_is_the_same_tokens(kind: str) -> None:
    text = AWKWARD * 3
    tokenizers: dict[str, Tokenizer] = {
        "char": CharTokenizer(text),
        "byte": ByteTokenizer(),
        "bpe": learn_bpe([text], 300),
    }
    agrees(tokenizers[kind], text)


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
def test_transformers_reads_it_and_comes_to_the_same(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers: dict[str, Tokenizer] = {
        "char": CharTokenizer(AWKWARD),
        "byte": ByteTokenizer(),
        "bpe": learn_bpe([AWKWARD], 290),
    }
    tokenizer = tokenizers[kind]
    for name, content in (
        ("tokenizer.json", tokenizer_json(tokenizer)),
        ("tokenizer_config.json", json.dumps(tokenizer_config(tokenizer, 64))),
        # With a model type beside it, transformers could take another class.
        ("config.json", '{"model_type": "llama"}'),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer.encode(AWKWARD).tolist()
    assert theirs(AWKWARD)["input_ids"] == ids
    assert theirs.decode(ids) == AWKWARD
    assert theirs.decode(ids, skip_special_tokens=True) == AWKWARD
    assert theirs.batch_decode([[id] for id in ids[:5]]) == [
        tokenizer.decode([id]) for id in ids[:5]
    ]


def test_an_unknown_character_is_left_out_as_with_skip() -> None:
    tokenizer = CharTokenizer("abc")
    rust = Rust.from_str(tokenizer_json(tokenizer))
    assert rust.encode("aXbYc").ids == tokenizer.encode("aXbYc", unknown="skip").tolist()


@pytest.mark.parametrize(
    "tokenizer",
    [
        CharTokenizer(AWKWARD),
        CharTokenizer("x"),
        # All of them printed bytes of GPT-2's alphabet, and not the byte tokenizer.
        CharTokenizer(map(chr, range(0x21, 0x7F))),
        ByteTokenizer(),
        learn_bpe(["the cat sat on the mat"] * 5, 270),
    ],
    ids=lambda tokenizer: tokenizer.name,
)
def test_it_comes_back_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json(tokenizer), encoding="utf-8")
    read = read_tokenizer(path, tokenizer.vocab_size)
    assert type(read.tokenizer) is type(tokenizer)
    assert read.tokenizer.fingerprint == tokenizer.fingerprint
    assert tokenizer_json(read.tokenizer) == tokenizer_json(tokenizer)
    assert read.notices == ()


def test_our_own_file_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(CharTokenizer("abc").to_json(), encoding="utf-8")
    assert read_tokenizer(path, 3).tokenizer.name == "char-3"


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(InteropError, match="there is no"):
        read_tokenizer(path, 3)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(TextError, match="does not describe a tokenizer"):
        read_tokenizer(path, 3)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(InteropError, match="torn or not JSON"):
        read_tokenizer(path, 3)
    path.write_text('{"model": {"type": "BPE", "vocab": {"\\ud800": 0}}}', encoding="utf-8")
    with pytest.raises((InteropError, TextError)):
        read_tokenizer(path, 3)


def test_the_end_of_a_text_is_named() -> None:
    bpe = json.loads(learn_bpe(["the cat"], 257).to_json())
    end = {"id": 256, "content": "<|endoftext|>", "special": True, "single_word": False}
    bpe["added_tokens"] = [{**end, "lstrip": False, "rstrip": False, "normalized": False}]
    from partwise.text.bpe import BPETokenizer

    config = tokenizer_config(BPETokenizer(json.dumps(bpe)), 8)
    assert config["eos_token"] == "<|endoftext|>"
    assert "eos_token" not in tokenizer_config(ByteTokenizer(), 8)
