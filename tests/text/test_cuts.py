"""Cuts: pieces join to the whole, and fall where the usual splitting rules end a word."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from partwise.text import cuts
from partwise.text.bpe import BPETokenizer
from partwise.text.cuts import pieces

# The splitting rules of GPT-2 (Radford et al., 2019), and of tiktoken's cl100k_base and o200k_base.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Words, spaces and marks of the kinds that the rules treat differently.
WORDS = (
    "a|Word|don't|1234| |  |\n|\r\n|\t|.|,|?!|'|/|_|你好|。|，|\u3000|\u00a0|é|e\u0301|🙂|x=1;|'s"
)
TEXTS = st.lists(st.sampled_from([*WORDS.split("|"), "\u2028"]), max_size=60).map("".join)


@settings(deadline=None)
@given(TEXTS, st.integers(1, 20), st.integers(1, 7))
def test_pieces_join_to_the_text(text: str, size: int, block: int) -> None:
    blocks = [text[place : place + block] for place in range(0, len(text), block)]
    found = list(pieces(blocks, size))
    assert "".join(found) == text
    assert "" not in found


@pytest.mark.parametrize("rule", [GPT2, CL100K, O200K])
@settings(deadline=None)
@given(text=TEXTS, size=st.integers(1, 12))
def test_no_word_of_the_usual_rules_is_cut(rule: str, text: str, size: int) -> None:
    split = pre_tokenizers.Split(Regex(rule), "isolated")

    def words(part: str) -> list[str]:
        return [word for word, _ in split.pre_tokenize_str(part)]

    parts = list(pieces([text], size))
    assert [word for part in parts for word in words(part)] == words(text)


@settings(deadline=None)
@given(st.text("ab <|>.\n", max_size=60), st.integers(1, 8))
def test_strings_to_keep_are_never_cut(text: str, size: int) -> None:
    whole = "b <a b>"
    text = f"{text}a {whole} b{text}"
    found = list(pieces([text], size, [whole]))
    assert "".join(found) == text
    assert sum(part.count(whole) for part in found) == text.count(whole)


def test_a_text_without_a_place_is_cut_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LONGEST", 100)
    found = list(pieces(["-" * 30] * 10, 16))
    assert "".join(found) == "-" * 300
    assert max(map(len, found)) <= 100


def test_pieces_stay_near_their_size() -> None:
    found = list(pieces(["word and word, " * 10_000], 1000))
    assert max(map(len, found)) <= 1000 and min(map(len, found[:-1])) > 900


@pytest.mark.parametrize("rule", [CL100K, O200K])
def test_blocks_are_the_whole_with_another_rule(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "He said: “don't!”\n\n  12345 cats, naïve 你好。世界 🙂\r\n\tx = f(1);\n" * 60
    rust = Tokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(rule), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    rust.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet)
    rust.train_from_iterator([text], trainer)
    tokenizer = BPETokenizer(rust.to_str())
    monkeypatch.setattr("partwise.text.bpe.PIECE", 50)
    blocks = list(tokenizer.encode_blocks([text[:777], text[777:]]))
    assert len(blocks) > 20
    assert np.concatenate(blocks).tolist() == tokenizer.encode(text).tolist()
    assert tokenizer.decode(tokenizer.encode(text)) == text
