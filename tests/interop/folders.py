"""Whole folders as they are found in the wild: model, tokenizer, licence, card."""

import json
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedModel

from interop.families import saved

SENTENCES = ["the cat sat on the mat.", "the mat sat on the cat, twice!", "naïve 你好 🙂"] * 4


def byte_level(size: int = 280) -> tokenizers.Tokenizer:
    """A byte-level BPE as GPT-2's and LLaMA 3's are, with a special token at its end."""
    rust = tokenizers.Tokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    rust.train_from_iterator(SENTENCES, trainer)
    return rust


def whole(folder: Path, family: str, *, padding: int = 4) -> PreTrainedModel:
    """A folder with everything, whose embedding is a little longer than its vocabulary."""
    rust = byte_level()
    model = saved(family, folder, vocab_size=rust.get_vocab_size() + padding)
    rust.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "LICENSE").write_text("Do as you like.\n", encoding="utf-8")
    (folder / "NOTICE.txt").write_text("Made elsewhere.\n", encoding="utf-8")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Theirs\n", encoding="utf-8")
    return model
