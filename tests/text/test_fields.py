"""Every field of `DataConfig` changes what is prepared: none is taken and then ignored."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from partwise.errors import PartwiseError
from partwise.settings import build, options
from partwise.text.batches import Batches, ahead
from partwise.text.char import CharTokenizer
from partwise.text.config import DataConfig
from partwise.text.prepare import prepare

WORDS = "the cat sat on the mat <|endoftext|>\n" * 40


def special() -> str:
    """A byte-level tokenizer.json with one special token."""
    letters = {byte: number for number, byte in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    made = Tokenizer(models.BPE(vocab=letters, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|endoftext|>")])
    return str(made.to_str())


# The field: what stands beside it, and two values that must differ.
CASES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "tokenizer": ({}, "char", "byte"),
    "tokenizer_file": ({}, None, "letters.json"),
    "bpe_vocab_size": ({"tokenizer": "bpe"}, 257, 260),
    "bpe_sample": ({"tokenizer": "bpe"}, 50, 1000),
    "special_tokens": ({"tokenizer_file": "special.json"}, False, True),
    "errors": ({"tokenizer": "byte"}, "strict", "replace"),
    "unknown": ({"tokenizer_file": "few.json"}, "refuse", "skip"),
    "val_fraction": ({}, 0.1, 0.5),
    "validation": ({}, None, "other.txt"),
    "shard_tokens": ({}, 1000, 100),
}


def effects(settings: dict[str, Any], cache: Path, text: str) -> list[Any]:
    """All that preparing does: tokens of both parts, the tokenizer, the files; or its refusal."""
    try:
        found = prepare(text, build(DataConfig, settings), cache=cache)
    except PartwiseError as error:
        return [str(error)]
    return [
        found.train[:].tolist(),
        found.validation[:].tolist(),
        found.tokenizer.fingerprint,
        sorted(path.name for path in found.train.file.folder.iterdir()),
    ]


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(WORDS, encoding="utf-8")
    Path("other.txt").write_text(WORDS[:200], encoding="utf-8")
    Path("latin.txt").write_bytes(WORDS.encode("utf-8") + "é".encode("latin-1"))
    Path("letters.json").write_text(CharTokenizer(WORDS + "z").to_json(), encoding="utf-8")
    Path("few.json").write_text(CharTokenizer("thecat \n").to_json(), encoding="utf-8")
    Path("special.json").write_text(special(), encoding="utf-8")


def test_there_is_a_case_for_each_field() -> None:
    assert {*CASES, "workers"} == set(options(DataConfig))


@pytest.mark.parametrize("field", CASES)
def test_each_field_of_a_text_has_an_effect(field: str, tmp_path: Path) -> None:
    beside, one, other = CASES[field]
    text = "latin.txt" if field == "errors" else "text.txt"
    first, second = (
        effects({**beside, field: value}, tmp_path / str(number), text)
        for number, value in enumerate((one, other))
    )
    assert first != second
    again = effects({**beside, field: one}, tmp_path / "again", text)
    assert first == again, "else the test would pass whatever the field does"


def test_workers_draw_in_threads_and_change_no_batch(tmp_path: Path) -> None:
    """By nature they change nothing but how long a step waits."""
    prepared = prepare("text.txt", DataConfig(), cache=tmp_path)
    seen: set[str] = set()

    class Watched(Batches):
        def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
            seen.add(threading.current_thread().name)
            return super().batch(step, rank, world)

    def draw(workers: int) -> list[Any]:
        seen.clear()
        drawn = ahead(Watched(prepared.train, 8, 4, 1), 0, workers)
        found = [next(drawn) for _ in range(5)]
        drawn.close()  # type: ignore[attr-defined]
        return found

    here = draw(0)
    assert seen == {threading.current_thread().name}
    there = draw(2)
    assert threading.current_thread().name not in seen
    assert all(
        np.array_equal(a, b)
        for one, other in zip(here, there, strict=True)
        for a, b in zip(one, other, strict=True)
    )
