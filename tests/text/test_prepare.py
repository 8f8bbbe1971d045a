"""Preparation: exact tokens, made once, made anew when the text or the settings change."""

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import StorageError, TextError
from partwise.text import corpora, sources
from partwise.text import prepare as prepare_module
from partwise.text.char import CharTokenizer
from partwise.text.config import DataConfig
from partwise.text.prepare import Prepared, prepare
from partwise.text.tokenizers import load_tokenizer
from text.tokenizers_json import byte_level, whole_words, with_special

MIXED = "\ufeffnaïve 你好 🙂\r\nb\0<|endoftext|>\n" * 40


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def write(path: Path, text: str) -> str:
    path.write_bytes(text.encode("utf-8"))
    return str(path)


def whole(prepared: Prepared) -> str:
    ids = [*prepared.train[:].tolist(), *prepared.validation[:].tolist()]
    return prepared.tokenizer.decode(ids)


def lines(prepared: Prepared) -> list[str]:
    return [str(notice) for notice in prepared.summary]


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
def test_every_text_comes_back_exactly(kind: str, tmp_path: Path, cache: Path) -> None:
    config = DataConfig(tokenizer=kind, bpe_vocab_size=300, shard_tokens=100)  # type: ignore[arg-type]
    prepared = prepare(write(tmp_path / "mixed.txt", MIXED), config, cache=cache)
    assert whole(prepared) == MIXED
    count = len(prepared.train) + len(prepared.validation)
    assert len(prepared.train) == int(count * 0.9)
    assert prepared.name == "mixed"
    said = "\n".join(lines(prepared))
    assert "byte-order marks, kept as they are: 40" in said
    assert "line ends that are CRLF, kept as they are: 40" in said
    assert "NUL characters, kept as they are: 40" in said
    assert (
        f"{len(prepared.train):,} to learn from, {len(prepared.validation):,} to validate" in said
    )


@settings(deadline=None, max_examples=30)
@given(st.text(min_size=1), st.sampled_from(["char", "byte"]), st.integers(1, 4))
def test_any_text_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, text: str, kind: str, block: int
) -> None:
    folder = tmp_path_factory.mktemp("text")
    config = DataConfig(tokenizer=kind, shard_tokens=3)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources, "BLOCK", block)
        prepared = prepare(write(folder / "t.txt", text), config, cache=folder / "cache")
    assert whole(prepared) == text


def test_tiny_shakespeare_is_split_where_everyone_splits_it(cache: Path) -> None:
    folder = os.environ.get("PARTWISE_DATA", "")
    if not folder or not (Path(folder) / corpora.FILE).is_file():
        pytest.skip("PARTWISE_DATA does not name a folder with tinyshakespeare.txt")
    prepared = prepare("tinyshakespeare", DataConfig(), cache=cache, offline=True)
    # nanoGPT's data/shakespeare_char/prepare.py prints these three numbers.
    assert (len(prepared.train), len(prepared.validation)) == (1_003_854, 111_540)
    assert prepared.tokenizer.vocab_size == 65
    assert prepared.text_fingerprint == corpora.SHA256
    assert (prepared.name, prepared.spec) == ("tinyshakespeare", "corpus:tinyshakespeare")


def count_writes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    made: list[Path] = []
    real = prepare_module.write_tokens

    def counted(folder: Path, *values: Any, **named: Any) -> None:
        made.append(folder)
        real(folder, *values, **named)

    monkeypatch.setattr(prepare_module, "write_tokens", counted)
    return made


def test_what_was_prepared_is_found_and_an_edit_is_prepared_anew(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = count_writes(monkeypatch)
    path = tmp_path / "a.txt"
    first = prepare(write(path, "abcd" * 30), DataConfig(), cache=cache)
    again = prepare(str(path), DataConfig(), cache=cache)
    assert len(made) == 1 and whole(again) == whole(first)
    # Same length, same characters, same time of change: only the content differs.
    stamp = path.stat()
    write(path, "abdc" * 30)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    edited = prepare(str(path), DataConfig(), cache=cache)
    assert len(made) == 2 and whole(edited) == "abdc" * 30
    assert edited.text_fingerprint != first.text_fingerprint
    # A copy elsewhere is the same text.
    copy = prepare(write(tmp_path / "copy.txt", "abcd" * 30), DataConfig(), cache=cache)
    assert len(made) == 2 and copy.text_fingerprint == first.text_fingerprint
    # The split is not part of what is made; the tokenizer is.
    prepare(str(path), DataConfig(val_fraction=0.5), cache=cache)
    assert len(made) == 2
    prepare(str(path), DataConfig(tokenizer="byte"), cache=cache)
    assert len(made) == 3


@pytest.mark.parametrize("harm", ["short", "changed", "missing", "header"])
def test_a_torn_token_file_is_made_anew(
    harm: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write(tmp_path / "a.txt", "abcd" * 30)
    folder = prepare(spec, DataConfig(), cache=cache).train.file.folder
    shard = folder / "00000.bin"
    if harm == "short":
        shard.write_bytes(shard.read_bytes()[:-1])
    elif harm == "changed":
        shard.write_bytes(bytes(120))
    elif harm == "missing":
        shard.unlink()
    else:
        (folder / "header.json").write_text('{"kind"', encoding="utf-8")
    made = count_writes(monkeypatch)
    assert whole(prepare(spec, DataConfig(), cache=cache)) == "abcd" * 30
    assert made == [folder]


def test_what_a_killed_process_left_is_swept(tmp_path: Path, cache: Path) -> None:
    spec = write(tmp_path / "a.txt", "abcd" * 30)
    folder = prepare(spec, DataConfig(), cache=cache).train.file.folder
    left = folder.parent / ".partial-0123456789abcdef"
    left.mkdir()
    (left / "00000.bin").write_bytes(b"half")
    prepare(spec, DataConfig(), cache=cache)
    assert not left.exists()


def run_prepare(spec: str, cache: str, results: Any) -> None:
    prepared = prepare(spec, DataConfig(tokenizer="bpe", bpe_vocab_size=300), cache=Path(cache))
    results.put((prepared.tokenizer.fingerprint, whole(prepared)))


def test_two_processes_preparing_one_text_do_no_harm(tmp_path: Path, cache: Path) -> None:
    spec = write(tmp_path / "a.txt", MIXED * 20)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=run_prepare, args=(spec, str(cache), results)) for _ in "12"]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    assert found[0] == found[1] and found[0][1] == MIXED * 20
    assert len(list(cache.glob("tokens/*/tokens"))) == 1
    assert list(cache.rglob(".partial-*")) == []


def test_validation_may_be_a_text_of_its_own(tmp_path: Path, cache: Path) -> None:
    train = write(tmp_path / "train.txt", "abc" * 40)
    validation = write(tmp_path / "val.txt", "xyz")
    prepared = prepare(train, DataConfig(validation=validation), cache=cache)
    decode = prepared.tokenizer.decode
    assert decode(prepared.train[:]) == "abc" * 40 and decode(prepared.validation[:]) == "xyz"
    # The characters of both are known, and a change of either changes the fingerprint.
    assert prepared.tokenizer.vocab_size == 6
    write(tmp_path / "val.txt", "xyy")
    changed = prepare(train, DataConfig(validation=validation), cache=cache)
    assert changed.text_fingerprint != prepared.text_fingerprint


def test_the_context_is_checked_against_both_parts(tmp_path: Path, cache: Path) -> None:
    prepared = prepare(write(tmp_path / "a.txt", "ab" * 100), DataConfig(), cache=cache)
    with pytest.raises(TextError) as caught:
        prepared.require_tokens(64)
    line = "the validation part has 20 characters where 65 are needed; context_length=19 would fit"
    assert str(caught.value) == line
    prepared.require_tokens(19)
    with pytest.raises(TextError, match=r"the training part has 180 .*context_length=19 would fit"):
        prepared.require_tokens(180)


def test_a_given_tokenizer_is_used(tmp_path: Path, cache: Path) -> None:
    spec = write(tmp_path / "a.txt", "abba")
    prepared = prepare(spec, DataConfig(), cache=cache, tokenizer=CharTokenizer("zab"))
    assert prepared.train[:].tolist() == [0, 1, 1] and prepared.tokenizer.vocab_size == 3


def test_characters_a_given_tokenizer_lacks_are_refused_or_left_out(
    tmp_path: Path, cache: Path
) -> None:
    spec = write(tmp_path / "a.txt", "ab你好ab")
    with pytest.raises(TextError, match=r"char-2 does not know '你' \(U\+4F60\), '好' \(U\+597D\)"):
        prepare(spec, DataConfig(), cache=cache, tokenizer=CharTokenizer("ab"))
    assert list(cache.glob("tokens/*/tokens")) == []
    skipping = DataConfig(unknown="skip")
    prepared = prepare(spec, skipping, cache=cache, tokenizer=CharTokenizer("ab"))
    assert whole(prepared) == "abab"
    assert any(
        "left out, unknown to the tokenizer char-2: '你'" in line for line in lines(prepared)
    )


def test_a_tokenizer_file_is_loaded_and_its_losses_said(tmp_path: Path, cache: Path) -> None:
    spec = write(tmp_path / "a.txt", "the  cat sat. <|endoftext|>")
    path = tmp_path / "tokenizer.json"
    path.write_text(whole_words().to_json(), encoding="utf-8")
    prepared = prepare(spec, DataConfig(tokenizer_file=str(path)), cache=cache)
    assert prepared.tokenizer.name == "wordlevel-5"
    assert any("does not give this text back exactly" in line for line in lines(prepared))

    path.write_text(with_special(byte_level(), "<|endoftext|>").to_json(), encoding="utf-8")
    prepared = prepare(spec, DataConfig(tokenizer_file=str(path)), cache=cache)
    assert 280 not in prepared.validation[:] and whole(prepared) == "the  cat sat. <|endoftext|>"
    assert not any("exactly" in line for line in lines(prepared))
    config = DataConfig(tokenizer_file=str(path), special_tokens=True)
    assert prepare(spec, config, cache=cache).validation[-1] == 280
    # A tokenizer that is given reads them as the settings say, too.
    given = load_tokenizer(path)
    assert prepare(spec, config, cache=cache, tokenizer=given).validation[-1] == 280


def test_merges_are_learned_on_a_sample_of_the_training_part(tmp_path: Path, cache: Path) -> None:
    # Were the end of the text looked at, "zq" would be its most frequent pair.
    text = "abc abd " * 1000 + "zq" * 400
    spec = write(tmp_path / "a.txt", text)
    config = DataConfig(tokenizer="bpe", bpe_vocab_size=260, bpe_sample=1000)
    prepared = prepare(spec, config, cache=cache)
    vocabulary = json.loads(prepared.tokenizer.to_json())["model"]["vocab"]
    assert "ab" in vocabulary and "zq" not in vocabulary
    assert any(
        "learned on 1,000 of 7,920 training bytes, a piece" in line for line in lines(prepared)
    )
    assert whole(prepared) == text
    # Learned once.
    again = prepare(spec, config, cache=cache)
    assert again.tokenizer.fingerprint == prepared.tokenizer.fingerprint
    assert len(list(cache.glob("tokenizers/*.json"))) == 1


def test_the_sample_is_spread_over_the_text(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BLOCK", 1000)
    text = "".join(f"{name * 100} " * 10 for name in "abcdefgh")
    config = DataConfig(tokenizer="bpe", bpe_vocab_size=300, bpe_sample=800)
    prepared = prepare(write(tmp_path / "a.txt", text), config, cache=cache)
    vocabulary = json.loads(prepared.tokenizer.to_json())["model"]["vocab"]
    assert all(name * 4 in vocabulary for name in "abcdefg")


def test_too_few_pairs_are_said(tmp_path: Path, cache: Path) -> None:
    config = DataConfig(tokenizer="bpe", bpe_vocab_size=4096)
    prepared = prepare(write(tmp_path / "a.txt", "abc abc abc abc"), config, cache=cache)
    count = prepared.tokenizer.vocab_size
    assert 256 < count < 300
    assert any(f"{count} tokens instead of 4,096" in line for line in lines(prepared))


def test_bytes_that_are_not_utf8_are_refused_or_replaced(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 au lait")
    spec = str(tmp_path / "a.txt")
    with pytest.raises(TextError, match=r"a\.txt is not UTF-8 at byte 3 \(0xe9\)"):
        prepare(spec, DataConfig(), cache=cache)
    prepared = prepare(spec, DataConfig(errors="replace"), cache=cache)
    assert whole(prepared) == "caf\ufffd au lait"
    assert any("U+FFFD, which stand for bytes" in line for line in lines(prepared))


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_empty_text_is_refused(kind: str, tmp_path: Path, cache: Path) -> None:
    write(tmp_path / "a.txt", "")
    spec = tmp_path / "a.txt" if kind == "file" else tmp_path
    with pytest.raises(TextError, match="is empty; give a text"):
        prepare(str(spec), DataConfig(), cache=cache)


def test_progress_ends_at_its_total(tmp_path: Path, cache: Path) -> None:
    spec = write(tmp_path / "a.txt", MIXED)
    for _ in range(2):
        told: list[tuple[int, int]] = []

        def tell(done: int, total: int, told: list[tuple[int, int]] = told) -> None:
            told.append((done, total))

        prepare(spec, DataConfig(), cache=cache, progress=tell)
        size = len(MIXED.encode("utf-8"))
        assert told[-1] == (2 * size, 2 * size)
        assert told == sorted(told) and told[0][0] > 0


def test_a_text_that_changes_under_our_hands_is_refused(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    spec = write(path, "abcd" * 30)
    real = prepare_module.write_tokens

    def meddling(*values: Any, **named: Any) -> None:
        write(path, "abcde" * 30)
        real(*values, **named)

    monkeypatch.setattr(prepare_module, "write_tokens", meddling)
    with pytest.raises(TextError, match=r"'e'|was changed while it was read"):
        prepare(spec, DataConfig(), cache=cache)
    assert list(cache.glob("tokens/*/tokens")) == []


def test_no_room_is_said_before_anything_is_written(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, bytes_needed: int) -> None:
        assert bytes_needed == 120
        raise StorageError("no room")

    monkeypatch.setattr(prepare_module, "require_free", full)
    with pytest.raises(StorageError, match="no room"):
        prepare(write(tmp_path / "a.txt", "abcd" * 30), DataConfig(), cache=cache)


def test_a_c_locale_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "naïve 你好 🙂" * 5)
    code = (
        "import sys; from pathlib import Path\n"
        "from partwise.text.config import DataConfig\n"
        "from partwise.text.prepare import prepare\n"
        "p = prepare(sys.argv[1], DataConfig(), cache=Path(sys.argv[2]))\n"
        "ids = [*p.train[:].tolist(), *p.validation[:].tolist()]\n"
        "sys.stdout.buffer.write(p.tokenizer.decode(ids).encode('utf-8'))\n"
    )
    # UTF-8 mode is off, or Python itself would hide a missing encoding.
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-W", "error::EncodingWarning", "-X", "warn_default_encoding", "-c"]
    found = subprocess.run(
        [*command, code, str(tmp_path / "a.txt"), str(tmp_path / "cache")],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert found.stdout.decode("utf-8") == "naïve 你好 🙂" * 5, found.stderr.decode()


def test_memory_does_not_grow_with_the_text(tmp_path: Path, cache: Path) -> None:
    import tracemalloc

    def peak(megabytes: int) -> int:
        spec = write(tmp_path / f"{megabytes}.txt", "naïve text, " * (megabytes * 80_000))
        tracemalloc.start()
        prepare(spec, DataConfig(), cache=cache)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    assert peak(6) < peak(2) + (1 << 20)
