"""Loading: what was saved comes back the same; a pickle or anything else is refused."""

import json
import pickle
from pathlib import Path

import pytest

from partwise.errors import StorageError, TextError
from partwise.text.bpe import BPETokenizer
from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer
from partwise.text.tokenizers import Tokenizer, load_tokenizer
from text.tokenizers_json import byte_level, sentencepiece, with_special


@pytest.mark.parametrize(
    "tokenizer",
    [CharTokenizer("naïve 你好🙂\0\r\n\ufeff"), ByteTokenizer(), byte_level(), sentencepiece()],
    ids=lambda tokenizer: tokenizer.name,
)
def test_a_tokenizer_comes_back_from_its_json(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_json(), encoding="utf-8")
    back = load_tokenizer(path)
    assert type(back) is type(tokenizer)
    assert (back.fingerprint, back.vocab_size) == (tokenizer.fingerprint, tokenizer.vocab_size)
    assert back.encode("naïve").tolist() == tokenizer.encode("naïve").tolist()
    assert back.to_json() == tokenizer.to_json()


def test_fingerprints_tell_tokenizers_apart() -> None:
    known = [ByteTokenizer(), CharTokenizer("ab"), CharTokenizer("ac"), byte_level()]
    assert len({tokenizer.fingerprint for tokenizer in known}) == len(known)


def test_the_layout_of_the_json_changes_no_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer = byte_level()
    path.write_text(json.dumps(json.loads(tokenizer.to_json()), indent=8), encoding="utf-8")
    assert load_tokenizer(path).fingerprint == tokenizer.fingerprint


def test_special_tokens_are_read_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(with_special(byte_level(), "</s>").to_json(), encoding="utf-8")
    assert len(load_tokenizer(path).encode("</s>")) > 1
    special = load_tokenizer(path, special_tokens=True)
    assert isinstance(special, BPETokenizer)
    assert special.encode("</s>").tolist() == [special.end_of_text]


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize("name", ["meta.pkl", "tokenizer.pt", "tokenizer.json"])
def test_a_pickle_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(pickle.dumps({"stoi": Trap()}))
    with pytest.raises(StorageError, match="is a pickle"):
        load_tokenizer(path)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"\xff\xfe", "is not JSON"),
        (b"abc", "is not JSON"),
        (b"[" * 200_000, "is not JSON"),
        (b"[1]", "does not describe a tokenizer"),
        (b'{"kind": "partwise.tokenizer", "version": 1, "type": "morse"}', "does not describe"),
        (b'{"kind": "partwise.tokenizer", "version": 1, "type": "char"}', "does not describe"),
        (b'{"kind": "partwise.tokenizer", "version": 2, "type": "byte"}', "version 2.*upgrade"),
        (b'{"model": {"type": "BPE"}}', "tokenizer.json cannot be used"),
    ],
)
def test_anything_else_is_refused(content: bytes, line: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(TextError, match=line) as caught:
        load_tokenizer(path)
    assert str(path) in str(caught.value)
