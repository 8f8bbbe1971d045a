"""Tokenizers as `tokenizer.json`, which every program of the field reads, and back.

A character tokenizer is a BPE without merges over the whole text as one word: it cuts a word into
its characters. A byte tokenizer is one over GPT-2's alphabet for bytes.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Rust
from tokenizers import decoders, models, pre_tokenizers

from partwise.errors import InteropError
from partwise.interop.fields import read_object
from partwise.interop.weights import listed
from partwise.messages import Notice
from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer
from partwise.text.decoding import byte_alphabet
from partwise.text.tokenizers import Tokenizer, load_tokenizer

FILE = "tokenizer.json"
CONFIG = "tokenizer_config.json"


def tokenizer_json(tokenizer: Tokenizer) -> str:
    """The content of a `tokenizer.json` that gives the same ids and the same text back."""
    if isinstance(tokenizer, CharTokenizer):
        return _characters(tokenizer.characters)
    if isinstance(tokenizer, ByteTokenizer):
        return _bytes()
    return tokenizer.to_json()


def tokenizer_config(tokenizer: Tokenizer, context_length: int) -> dict[str, Any]:
    """The content of the `tokenizer_config.json` beside it.

    Args:
        tokenizer: the tokenizer.
        context_length: longest text of the model (tokens).
    """
    end = end_of_text(tokenizer)
    named = {} if end is None else {"eos_token": tokenizer.decode([end])}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        # Otherwise " ." would come back as ".".
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        **named,
    }


def end_of_text(tokenizer: Tokenizer) -> int | None:
    """The special token between texts, or None."""
    found: int | None = getattr(tokenizer, "end_of_text", None)
    return found


@dataclass(frozen=True)
class Read:
    """A tokenizer and what the reader should know of it."""

    tokenizer: Tokenizer
    notices: tuple[Notice, ...]


def read_tokenizer(path: Path, vocab_size: int) -> Read:
    """The tokenizer of a folder; one that we wrote becomes again what it was.

    Args:
        path: the `tokenizer.json`.
        vocab_size: tokens of the model. Added tokens beyond them are left out, as the model has no
            embedding for them.

    Raises:
        InteropError: it has more tokens than the model, or is not there.
        TextError: it is no tokenizer.
    """
    if not path.is_file():
        raise _missing(path)
    value = dict(read_object(path).values)
    ours = _recognised(path, value)
    if ours is not None:
        return Read(ours, ())
    tokenizer = load_tokenizer(path)
    if tokenizer.vocab_size <= vocab_size:
        return Read(tokenizer, ())
    added = [token for token in value.get("added_tokens") or () if isinstance(token, dict)]
    kept = [token for token in added if int(token.get("id", -1)) < vocab_size]
    if len(kept) < len(added):
        from partwise.text.bpe import BPETokenizer

        over = [str(token.get("content")) for token in added if token not in kept]
        source = json.dumps({**value, "added_tokens": kept}, ensure_ascii=False, indent=2)
        trimmed = BPETokenizer(source, label=str(path))
        if trimmed.vocab_size <= vocab_size:
            notice = Notice(
                "the model has no embedding for the added tokens {tokens}; they are left out of "
                "the tokenizer",
                tokens=listed(over),
            )
            return Read(trimmed, (notice,))
    raise InteropError(
        "{path} has {tokens} tokens and the model {vocabulary}; get the tokenizer that belongs to "
        "the model",
        path=path,
        tokens=tokenizer.vocab_size,
        vocabulary=vocab_size,
    )


def _missing(path: Path) -> InteropError:
    folder = path.parent
    others = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    found = next((name for name in others if (folder / name).is_file()), None)
    if found is not None:
        return InteropError(
            "{folder} has {found} but no {file}, which Partwise reads; make one with transformers: "
            'AutoTokenizer.from_pretrained("{folder}").save_pretrained("{folder}")',
            folder=folder,
            found=found,
            file=path.name,
        )
    return InteropError(
        "there is no {path}; get the model's tokenizer.json, or name one with --tokenizer",
        path=path,
    )


def _characters(characters: str) -> str:
    vocabulary = {character: id for id, character in enumerate(characters)}
    rust = Rust(models.BPE(vocab=vocabulary, merges=[]))
    rust.decoder = decoders.Fuse()
    return rust.to_str(pretty=True)


def _bytes() -> str:
    vocabulary = {character: byte for byte, character in enumerate(byte_alphabet())}
    rust = Rust(models.BPE(vocab=vocabulary, merges=[]))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    rust.decoder = decoders.ByteLevel()
    return rust.to_str(pretty=True)


def _recognised(path: Path, value: dict[str, Any]) -> Tokenizer | None:
    """The character or byte tokenizer that `tokenizer_json` wrote so, if it is one."""
    if value.get("kind") == "partwise.tokenizer":
        return load_tokenizer(path)
    model = value.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        return None
    vocabulary = model["vocab"]
    if vocabulary and all(len(token) == 1 for token in vocabulary):
        candidates: list[tuple[str, Tokenizer]] = [(_bytes(), ByteTokenizer())]
        characters = "".join(sorted(vocabulary))
        if not any(0xD800 <= ord(character) <= 0xDFFF for character in characters):
            candidates.append((_characters(characters), CharTokenizer(characters)))
        for written, tokenizer in candidates:
            if json.loads(written) == value:
                return tokenizer
    return None
