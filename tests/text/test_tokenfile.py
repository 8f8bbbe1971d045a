"""Token files: what is written is what is read, and what is torn or another's is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import StorageError, TextError
from partwise.text.byte import ByteTokenizer
from partwise.text.char import CharTokenizer
from partwise.text.dtypes import dtype_for
from partwise.text.tokenfile import HEADER, TokenFile, write_tokens
from partwise.text.tokenizers import Tokenizer

BYTES = ByteTokenizer()


def written(
    folder: Path, blocks: list[Any], tokenizer: Tokenizer = BYTES, shard_tokens: int = 10
) -> TokenFile:
    write_tokens(
        folder,
        map(np.asarray, blocks),
        tokenizer=tokenizer,
        text="text",
        text_fingerprint="f" * 64,
        shard_tokens=shard_tokens,
    )
    return TokenFile(folder, tokenizer, verify=True)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 255), max_size=12), min_size=1, max_size=6),
    st.integers(1, 15),
    st.data(),
)
def test_any_part_can_be_read(
    tmp_path_factory: pytest.TempPathFactory,
    blocks: list[list[int]],
    shard_tokens: int,
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("tokens") / "file"
    file = written(folder, [np.array(block, int) for block in blocks], shard_tokens=shard_tokens)
    tokens = [token for block in blocks for token in block]
    assert len(file) == len(tokens)
    assert [shard[1] for shard in file.header.shards] == [
        len(tokens[place : place + shard_tokens]) for place in range(0, len(tokens), shard_tokens)
    ]
    places = st.integers(-25, 90)
    start, stop, a, b = (data.draw(places) for _ in range(4))
    view = file.view(max(start, 0), max(stop, 0))
    inside = tokens[max(start, 0) : max(stop, 0)]
    assert len(view) == len(inside)
    assert view[:].tolist() == inside and view[a:b].tolist() == inside[a:b]
    assert view[::2].tolist() == inside[::2] and view[::-1].tolist() == inside[::-1]
    if -len(inside) <= a < len(inside):
        assert view[a] == inside[a]
    else:
        with pytest.raises(IndexError):
            view[a]


def test_a_part_of_one_shard_is_not_copied(tmp_path: Path) -> None:
    file = written(tmp_path / "file", [range(20)])
    assert not file.view()[3:7].flags.owndata
    assert file.view()[8:12].tolist() == [8, 9, 10, 11]


@pytest.mark.parametrize("shard_tokens", [7, 100])
def test_rows_are_what_is_read_one_by_one(tmp_path: Path, shard_tokens: int) -> None:
    view = written(tmp_path / "file", [range(50)], shard_tokens=shard_tokens).view(5, 45)
    for starts in ([0, 35, 3, 3], [1, 2], []):
        rows = view.rows(np.array(starts, np.int64), 5)
        assert rows.shape == (len(starts), 5)
        assert rows.tolist() == [view[start : start + 5].tolist() for start in starts]
        assert rows.flags.owndata


def test_ids_are_as_narrow_as_the_vocabulary_permits() -> None:
    sizes = {1: "u1", 256: "u1", 257: "<u2", 65_536: "<u2", 65_537: "<u4", 2**31: "<u4"}
    assert {size: dtype_for(size) for size in sizes} == {
        size: np.dtype(kind) for size, kind in sizes.items()
    }


def test_wide_ids_come_back(tmp_path: Path) -> None:
    wide = CharTokenizer(chr(point) for point in range(70_000) if not 0xD800 <= point < 0xE000)
    file = written(tmp_path / "wide", [[0, 66_000, 5]], wide)
    assert file.header.dtype == "<u4" and file.view()[:].tolist() == [0, 66_000, 5]


def test_the_header_says_what_it_is(tmp_path: Path) -> None:
    header = written(tmp_path / "file", [range(25)]).header
    assert (header.tokens, header.vocab_size, header.unit) == (25, 256, "bytes")
    assert header.tokenizer_fingerprint == BYTES.fingerprint
    assert (header.text, header.text_fingerprint) == ("text", "f" * 64)
    assert [name for name, _, _ in header.shards] == ["00000.bin", "00001.bin", "00002.bin"]
    assert (tmp_path / "file" / "00002.bin").read_bytes() == bytes(range(20, 25))


def test_another_tokenizer_is_refused_with_both_names(tmp_path: Path) -> None:
    written(tmp_path / "file", [[0, 1, 2]], CharTokenizer("abc"))
    with pytest.raises(TextError) as caught:
        TokenFile(tmp_path / "file", CharTokenizer("abcd"))
    assert "char-3" in str(caught.value) and "char-4" in str(caught.value)
    # The same name and another vocabulary is another tokenizer.
    with pytest.raises(TextError) as caught:
        TokenFile(tmp_path / "file", CharTokenizer("xyz"))
    assert CharTokenizer("xyz").fingerprint[:8] in str(caught.value)


@pytest.mark.parametrize("left", [0, 9])
def test_a_shard_cut_short_is_refused(tmp_path: Path, left: int) -> None:
    written(tmp_path / "file", [range(20)])
    shard = tmp_path / "file" / "00001.bin"
    shard.write_bytes(shard.read_bytes()[:left])
    with pytest.raises(StorageError, match=r"00001\.bin is torn"):
        TokenFile(tmp_path / "file")


def test_a_missing_shard_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "file", [range(20)])
    (tmp_path / "file" / "00000.bin").unlink()
    with pytest.raises(StorageError, match="is torn"):
        TokenFile(tmp_path / "file")


def test_a_changed_shard_is_refused_when_verified(tmp_path: Path) -> None:
    written(tmp_path / "file", [range(20)])
    shard = tmp_path / "file" / "00000.bin"
    shard.write_bytes(bytes(10))
    with pytest.raises(StorageError, match="is torn"):
        TokenFile(tmp_path / "file", verify=True)


def test_a_newer_header_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "file", [range(20)])
    path = tmp_path / "file" / HEADER
    value = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**value, "version": 99}), encoding="utf-8")
    with pytest.raises(StorageError, match="version 99"):
        TokenFile(tmp_path / "file")


def test_a_fault_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def blocks() -> Any:
        yield np.arange(15)
        raise TextError("no more")

    with pytest.raises(TextError, match="no more"):
        write_tokens(
            tmp_path / "file",
            blocks(),
            tokenizer=BYTES,
            text="text",
            text_fingerprint="",
            shard_tokens=10,
        )
    assert list(tmp_path.iterdir()) == []


def test_no_tokens_are_a_file_too(tmp_path: Path) -> None:
    file = written(tmp_path / "file", [[], []])
    assert len(file) == 0 and file.view()[:].tolist() == []
