"""Small tokenizers of each family, as other people's tokenizer.json describes them."""

import json
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from partwise.text.bpe import BPETokenizer, learn_bpe

SENTENCES = "the cat sat on the mat. naïve 你好 🙂 the cat's hat, 1234 mats!\n" * 20


def byte_level() -> BPETokenizer:
    """A BPE on bytes, as GPT-2's."""
    return learn_bpe([SENTENCES], 280)


def sentencepiece(**changes: Any) -> BPETokenizer:
    """A BPE with U+2581 for spaces, bytes to fall back on and a space put before, as LLaMA 2's."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "a", "b", "c", "t", "h", "e", "▁t", "he", "▁the", "▁c", "at", "▁cat"]
    merges = ["▁ t", "h e", "▁t he", "▁ c", "a t", "▁c at"]
    value = {
        "version": "1.0",
        "added_tokens": [_special(id, pieces[id]) for id in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {piece: id for id, piece in enumerate(pieces)},
            "merges": merges,
        },
    }
    return BPETokenizer(json.dumps({**value, **changes}))


def whole_words() -> BPETokenizer:
    """One token a word and no way back to the spaces between them."""
    words = {"[UNK]": 0, "the": 1, "cat": 2, "sat": 3, ".": 4}
    rust = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    rust.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return BPETokenizer(rust.to_str())


def with_special(tokenizer: BPETokenizer, content: str, **flags: bool) -> BPETokenizer:
    """The same tokenizer with one more, special, token."""
    value = json.loads(tokenizer.to_json())
    token = {**_special(tokenizer.vocab_size, content), **flags}
    value["added_tokens"] = [*value["added_tokens"], token]
    return BPETokenizer(json.dumps(value))


def _special(id: int, content: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": id, "content": content, "special": True, **flags}
